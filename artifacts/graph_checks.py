"""Checks of an ONNX graph that name the culprit: operators, names, order and weights."""

from collections.abc import Collection, Container, Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx

from artifacts.errors import InputError, first_line
from artifacts.external_data import iter_tensors, tensor_bytes
from artifacts.shape_inference import infer_shapes

NEWEST_OPSET = onnx.defs.onnx_opset_version()
_RUNTIME_DOMAINS = frozenset({"com.microsoft", "com.ms.internal.nhwc", "ai.onnx.ml"})
_MAX_NESTING = 32
_NATIVE_ERRORS = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    ValueError,
    RuntimeError,
)


def model_opset(model: onnx.ModelProto) -> int:
    """Returns the version of the standard operator set that a model uses."""
    versions = [item.version for item in model.opset_import if item.domain in ("", "ai.onnx")]
    return int(versions[0]) if versions else 0


def check_versions(model: onnx.ModelProto, path: Path) -> None:
    """Refuses an opset, or a version of the format, that nobody has defined yet.

    Raises:
        InputError: it has one.
    """
    opset = model_opset(model)
    if not 1 <= opset <= NEWEST_OPSET:
        raise InputError(
            f"{path} uses opset {opset}",
            f"1 to {NEWEST_OPSET}",
            "export it with opset 17, which every runtime here supports",
        )
    if model.ir_version > onnx.IR_VERSION:
        raise InputError(
            f"{path} has IR version {model.ir_version}",
            f"at most {onnx.IR_VERSION}",
            "export it again",
        )


def check_graph(model: onnx.ModelProto, path: Path) -> None:
    """Refuses a model that cannot be run, and says which node or tensor is the reason.

    Args:
        model: the parsed model with its external data loaded.
        path: its file, for the errors.

    Raises:
        InputError: unknown operator or opset, undefined or doubly defined value, a cycle,
            or a tensor that is too short.
    """
    opset = model_opset(model)
    if not model.graph.node or not model.graph.output:
        raise InputError(f"{path} has no graph that computes an output", "a complete ONNX model")
    check_versions(model, path)
    for tensor in iter_tensors(model.graph):
        _check_names([tensor.name], path)
    check_sizes(model.graph, path)
    _check_names([value.name for value in (*model.graph.input, *model.graph.output)], path)
    functions = {(function.domain, function.name) for function in model.functions}
    for node in iter_nodes(model.graph.node):
        _check_names([node.op_type, node.domain, node.name, *node.input, *node.output], path)
        _check_operator(node, opset, functions, path)
    check_random(model.graph, path)
    check_definitions(model.graph, path)
    _check_order(model.graph, set(), path)


def check_random(graph: onnx.GraphProto, path: Path) -> None:
    """Refuses random numbers without a spread: onnxruntime ends the whole process at them.

    Args:
        graph: the graph; its sub-graphs are checked too.
        path: its file, for the errors.

    Raises:
        InputError: naming the node.
    """
    for node in iter_nodes(graph.node):
        _check_random(node, path)


def _check_random(node: onnx.NodeProto, path: Path) -> None:
    settings = {item.name: item.f for item in node.attribute}
    is_normal = node.op_type in ("RandomNormal", "RandomNormalLike")
    is_uniform = node.op_type in ("RandomUniform", "RandomUniformLike")
    if is_normal and not settings.get("scale", 1.0) > 0:
        problem = f"a scale of {settings['scale']:g}", "a scale above 0"
    elif is_uniform and not settings.get("low", 0.0) <= settings.get("high", 1.0):
        problem = "a low above its high", "low at most high"
    else:
        return
    raise InputError(
        f"node '{node.name or node.op_type}' of {path} draws random numbers with {problem[0]}",
        problem[1],
        "export the network in its evaluation mode, without random numbers",
    )


def run_checker(model: onnx.ModelProto, path: Path) -> None:
    """Runs ONNX's own checker; outputs that state no shape, as runtimes accept, get one first.

    The branches of an If may differ in theirs, so that none can be said; the checker wants the
    field and does not look into it.

    Raises:
        InputError: with the checker's reason.
    """
    try:
        if not all(value.type.tensor_type.HasField("shape") for value in model.graph.output):
            model = infer_shapes(model)
            for value in model.graph.output:
                value.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(model)
    except _NATIVE_ERRORS as error:
        raise InputError(
            f"{path} is not a valid ONNX model: {first_line(error)}", fix="export it again"
        ) from error


def check_finite(graph: onnx.GraphProto, path: Path, *, may_be_infinite: bool = False) -> None:
    """Refuses weights that are NaN or infinite.

    A single infinite number (the limit of a Clip, the value of a Pad) is not a weight and may be.

    Args:
        graph: the graph, with its external data loaded.
        path: its file, for the errors.
        may_be_infinite: refuse NaN alone; a mask of attention holds infinity for a reason.

    Raises:
        InputError: naming the first such tensor.
    """
    for tensor in graph.initializer:
        if tensor.data_type not in FLOAT_TYPES:
            continue
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype.kind != "f":
            values = values.astype(np.float32)
        is_right = ~np.isnan(values) if may_be_infinite else np.isfinite(values)
        if is_right.all() or (values.size == 1 and np.isinf(values).all()):
            continue
        count = int(values.size - is_right.sum())
        raise InputError(
            f"tensor '{tensor.name}' in {path} has {count} of {values.size} values that are "
            f"{'NaN' if may_be_infinite else 'NaN or infinite'}",
            "finite weights",
            "export the network from a checkpoint that did not diverge",
        )


FLOAT_TYPES = frozenset(
    (
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.BFLOAT16,
    )
)


def iter_nodes(nodes: Iterable[onnx.NodeProto], depth: int = 0) -> Iterator[onnx.NodeProto]:
    """Yields nodes, and those of their subgraphs."""
    if depth > _MAX_NESTING:
        raise InputError(f"sub-graphs are nested more than {_MAX_NESTING} deep")
    for node in nodes:
        yield node
        for graph in node_subgraphs(node):
            yield from iter_nodes(graph.node, depth + 1)


def node_subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Returns the graphs inside a node's attributes (the branches of an If, the body of a Loop)."""
    graphs = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)
    return graphs


def _check_names(names: Iterable[object], path: Path) -> None:
    """Protobuf gives text that is not UTF-8 as bytes."""
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"{path} has the name {name!r}, which is not UTF-8")


def check_sizes(graph: onnx.GraphProto, path: Path) -> None:
    """Refuses tensors that have more or fewer values than their shape says.

    Args:
        graph: the graph, with its external data loaded.
        path: its file, for the errors.

    Raises:
        InputError: naming the tensor.
    """
    for tensor in iter_tensors(graph):
        _check_size(tensor, path)


def _check_size(tensor: onnx.TensorProto, path: Path) -> None:
    if tensor.data_type == onnx.TensorProto.STRING:
        return
    if not tensor.HasField("raw_data"):
        _check_listed(tensor, path)
        return
    expected = tensor_bytes(tensor, path)
    if len(tensor.raw_data) != expected:
        raise InputError(
            f"tensor '{tensor.name}' in {path} has {len(tensor.raw_data)} bytes",
            f"{expected} bytes for its shape {list(tensor.dims)[:8]}",
        )


def _check_listed(tensor: onnx.TensorProto, path: Path) -> None:
    """Values that are stored one by one have no length in bytes; reading them says if they fit."""
    try:
        onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the values of tensor '{tensor.name}' in {path} cannot be read: {first_line(error)}",
            f"values for its shape {list(tensor.dims)[:8]}",
        ) from error


def is_known_operator(
    node: onnx.NodeProto, opset: int, functions: Container[tuple[str, str]]
) -> bool:
    """Returns whether a node can be computed here: a standard operator, or a function of the file.

    Args:
        node: of a model.
        opset: the model's.
        functions: domain and name of each function that the model defines.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    if (node.domain, node.op_type) in functions or domain in _RUNTIME_DOMAINS:
        return True
    return not domain and onnx.defs.has(node.op_type, opset, "")


def _check_operator(
    node: onnx.NodeProto, opset: int, functions: Container[tuple[str, str]], path: Path
) -> None:
    if is_known_operator(node, opset, functions):
        return
    domain = "" if node.domain == "ai.onnx" else node.domain
    label = f"{domain}::{node.op_type}" if domain else node.op_type
    place = f" of node '{node.name}'" if node.name else ""
    raise InputError(
        f"{path} uses the operator '{label}'{place}, which opset {opset} does not have",
        "standard ONNX operators",
        "export the network without custom operators; only behind the last layer do compress and "
        "export leave them aside",
    )


def check_definitions(
    graph: onnx.GraphProto, path: Path, outer: Collection[str] = frozenset()
) -> None:
    """Refuses a value that is defined twice: each runtime would take one of the two.

    Args:
        graph: the graph; its sub-graphs are checked too.
        path: its file, for the errors.
        outer: values that a graph around it has defined.

    Raises:
        InputError: naming the value.
    """
    names = [tensor.name for tensor in graph.initializer]
    names += [sparse.values.name for sparse in graph.sparse_initializer]
    _refuse_twice(names, "initializer", path)
    inputs = [value.name for value in graph.input]
    _refuse_twice(inputs, "input", path)
    known = {*outer, *names, *inputs}
    for node in graph.node:
        for subgraph in node_subgraphs(node):
            check_definitions(subgraph, path, known)
        for name in filter(None, node.output):
            if name in known:
                raise InputError(
                    f"{path} defines the value '{name}' more than once", "one definition"
                )
            known.add(name)


def _check_order(graph: onnx.GraphProto, outer: set[str], path: Path) -> None:
    """Each value is defined before its use."""
    known = outer | {tensor.name for tensor in graph.initializer}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    known |= {value.name for value in graph.input}
    produced = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                _refuse_input(node, name, name in produced, path)
        for subgraph in node_subgraphs(node):
            _check_order(subgraph, known, path)
        known.update(filter(None, node.output))
    for value in graph.output:
        if value.name not in known:
            raise InputError(f"output '{value.name}' of {path} is computed by no node")


def _refuse_twice(names: list[str], kind: str, path: Path) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path} has the {kind} '{name}' more than once")
        seen.add(name)


def _refuse_input(node: onnx.NodeProto, name: str, is_later: bool, path: Path) -> None:
    problem = "a cycle computes" if is_later else "nothing defines"
    raise InputError(
        f"node '{node.name or node.op_type}' of {path} reads '{name}', which {problem}",
        "nodes that can be put into an order",
        "export it again",
    )
