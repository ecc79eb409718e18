"""What a network computes and moves: per node, and per kernel as a runtime would fuse it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latency_budget.why.graph_tensors import DEQUANTIZE, VIEWS, GraphTensors, StoredTensor
from latency_budget.why.operation_counts import ELEMENTWISE, Count, count_operations

if TYPE_CHECKING:
    import onnx

UNOWNED = "none"
PRECISIONS = ("int8", "fp16", "fp32")
_BYTE_TYPES = ("INT8", "UINT8")
_FREE = VIEWS | {DEQUANTIZE, "Constant", "Shape", "Size"}
_VIEW_READERS = frozenset({"Slice", "Split", "Gather", "GatherND", "GatherElements"})


@dataclass(frozen=True, kw_only=True)
class NodeCost:
    """One node's work.

    Attributes:
        name: the node.
        op_type: its operator.
        owner: "trunk", a head, or "none" for a node that no head needs.
        precision: "int8" (both operands are quantized), "fp16" or "fp32".
        macs: multiply-accumulates.
        operations: two per multiply-accumulate, and all other arithmetic.
        read_bytes: activations read.
        weight_bytes: weights read.
        write_bytes: results written.
        passes: how often the first input is read.
        kernel: name of the node whose kernel it is fused into; its own where it is not.
    """

    name: str
    op_type: str
    owner: str
    precision: str
    macs: int
    operations: int
    read_bytes: float
    weight_bytes: float
    write_bytes: float
    passes: int
    kernel: str

    @property
    def moved_bytes(self) -> float:
        """All bytes that the node moves when it runs by itself."""
        return self.read_bytes + self.weight_bytes + self.write_bytes

    @property
    def intensity(self) -> float:
        """Operations per byte moved; 0 for a node that moves nothing."""
        return self.operations / self.moved_bytes if self.moved_bytes else 0.0


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """Nodes that a runtime can run as one, so that what passes between them stays in registers.

    Attributes:
        name: its first node, which gives the kernel its kind.
        op_type: of that node.
        owner: of its last node.
        precision: of its first node.
        nodes: all of them.
        macs: of all nodes.
        operations: of all nodes.
        moved_bytes: what the kernel reads from and writes to memory as a whole.
    """

    name: str
    op_type: str
    owner: str
    precision: str
    nodes: tuple[str, ...]
    macs: int
    operations: int
    moved_bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte moved."""
        return self.operations / self.moved_bytes if self.moved_bytes else 0.0


@dataclass(frozen=True, kw_only=True)
class NetworkCosts:
    """The work of a network.

    Attributes:
        nodes: every node that computes or moves something, in the graph's order.
        kernels: the same work, fused.
        unknown: operators that have no rule, or whose sizes depend on the picture
            (NonMaxSuppression and what follows it); their work is missing in the sums.
    """

    nodes: tuple[NodeCost, ...]
    kernels: tuple[Kernel, ...]
    unknown: tuple[str, ...]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole network."""
        return sum(node.macs for node in self.nodes)

    @property
    def operations(self) -> int:
        """Operations of the whole network."""
        return sum(node.operations for node in self.nodes)

    @property
    def moved_bytes(self) -> float:
        """Bytes that the fused kernels move."""
        return sum(kernel.moved_bytes for kernel in self.kernels)

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights that are read."""
        return sum(node.weight_bytes for node in self.nodes)

    def share_of(self, precision: str) -> float:
        """Returns the share of the operations that run in a precision, 0 to 1."""
        part = sum(node.operations for node in self.nodes if node.precision == precision)
        return part / self.operations if self.operations else 0.0

    def owners(self) -> dict[str, dict[str, float]]:
        """Returns macs, operations and moved_bytes per owner, the trunk first."""
        found: dict[str, dict[str, float]] = {}
        for node in self.nodes:
            part = found.setdefault(node.owner, {"macs": 0, "operations": 0, "moved_bytes": 0})
            part["macs"] += node.macs
            part["operations"] += node.operations
        for kernel in self.kernels:
            found[kernel.owner]["moved_bytes"] += kernel.moved_bytes
        return dict(sorted(found.items(), key=lambda item: -item[1]["operations"]))


def count_network(
    model: "onnx.ModelProto", heads: Mapping[str, Sequence[str]] | None = None
) -> NetworkCosts:
    """Counts a network's operations and bytes.

    Nodes that work on weights alone are folded away by every runtime and left out, and so are
    views, which move nothing. A tensor that passes through Q/DQ is stored as integers.

    Args:
        model: static shapes, inferred, as `load_onnx` gives it.
        heads: graph outputs of each head; None for those of the model's metadata.

    Raises:
        InputError: the shape of an input is not known.
    """
    from artifacts.ownership import node_owners
    from latency_budget.why.folded_shapes import with_known_shapes

    model = with_known_shapes(model)
    owners = node_owners(model, heads)
    tensors = GraphTensors(model)
    kernel_of: dict[str, str] = {}
    nodes: list[NodeCost] = []
    unknown: list[str] = []
    for node in model.graph.node:
        if node.op_type in _FREE or all(tensors.is_constant(name) for name in node.output if name):
            continue
        if not _has_known_sizes(node, tensors):
            unknown.append(node.op_type)
            continue
        counted = count_operations(node, tensors)
        if counted is None:
            unknown.append(node.op_type)
        kernel_of[node.name] = _find_kernel(node, tensors, kernel_of)
        nodes.append(
            _cost(
                node,
                tensors,
                counted or Count(),
                owners.get(node.name, UNOWNED),
                kernel_of[node.name],
            )
        )
    return NetworkCosts(
        nodes=tuple(nodes),
        kernels=_fuse(model, nodes, tensors, kernel_of),
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _has_known_sizes(node: "onnx.NodeProto", tensors: GraphTensors) -> bool:
    """Whether what a node reads and writes has sizes that no picture changes.

    Raises:
        InputError: it reads an input of the network of which that is not known.
    """
    names = [tensors.source(name) for name in (*node.input, *node.output) if name]
    for name in names:
        if name in tensors.inputs:
            tensors.shape(name)
    return all(tensors.is_known(name) for name in names)


def _find_kernel(node: "onnx.NodeProto", tensors: GraphTensors, kernel_of: dict[str, str]) -> str:
    """An elementwise node joins the last of its producers; others begin a kernel of their own."""
    if node.op_type in ELEMENTWISE:
        for name in reversed(node.input):
            producer = tensors.producers.get(_behind_views(name, tensors))
            if producer is not None and producer.name in kernel_of:
                return kernel_of[producer.name]
    return str(node.name)


def _behind_views(name: str, tensors: GraphTensors) -> str:
    node = tensors.producers.get(name)
    while node is not None and node.op_type in VIEWS:
        name = node.input[0]
        node = tensors.producers.get(name)
    return name


def _cost(
    node: "onnx.NodeProto", tensors: GraphTensors, count: Count, owner: str, kernel: str
) -> NodeCost:
    read, weights = 0.0, 0.0
    for position, stored in enumerate(_inputs(node, tensors)):
        if stored.is_constant:
            weights += stored.size_bytes
        else:
            read += _read_bytes(node, tensors, position, count.passes)
    return NodeCost(
        name=node.name,
        op_type=node.op_type,
        owner=owner,
        precision=_precision(node, tensors),
        macs=count.macs,
        operations=count.operations,
        read_bytes=read,
        weight_bytes=weights,
        write_bytes=sum(tensors.stored(name).size_bytes for name in node.output if name),
        passes=count.passes,
        kernel=kernel,
    )


def _read_bytes(node: "onnx.NodeProto", tensors: GraphTensors, position: int, passes: int) -> float:
    """Bytes of one input: what is picked out of it, or all of it as often as it is read."""
    size = _inputs(node, tensors)[position].size_bytes
    if node.op_type in _VIEW_READERS:
        return min(size, sum(tensors.stored(name).size_bytes for name in node.output if name))
    return size * passes if position == 0 else size


def _inputs(node: "onnx.NodeProto", tensors: GraphTensors) -> list[StoredTensor]:
    return [tensors.stored(name) for name in node.input if name]


def _precision(node: "onnx.NodeProto", tensors: GraphTensors) -> str:
    """Integers where both operands of a product are; else the type of the first input."""
    operands = [name for name in node.input[:2] if name]
    if operands and all(tensors.stored(name).dtype in _BYTE_TYPES for name in operands):
        return "int8"
    kind = tensors.dtype(node.input[0]) if node.input else "FLOAT"
    return "fp16" if kind in ("FLOAT16", "BFLOAT16") else "fp32"


def _fuse(
    model: "onnx.ModelProto",
    nodes: list[NodeCost],
    tensors: GraphTensors,
    kernel_of: dict[str, str],
) -> tuple[Kernel, ...]:
    by_kernel: dict[str, list[NodeCost]] = {}
    for node in nodes:
        by_kernel.setdefault(node.kernel, []).append(node)
    moved = dict.fromkeys(by_kernel, 0.0)
    seen: set[tuple[str, str]] = set()
    protos = {node.name: node for node in model.graph.node}
    costs = {node.name: node for node in nodes}
    for name, kernel in kernel_of.items():
        node, cost = protos[name], costs[name]
        moved[kernel] += cost.weight_bytes
        for position, stored in enumerate(_inputs(node, tensors)):
            inside = kernel_of.get(getattr(tensors.producers.get(stored.name), "name", ""))
            if stored.is_constant or inside == kernel or (kernel, stored.name) in seen:
                continue
            seen.add((kernel, stored.name))
            moved[kernel] += _read_bytes(node, tensors, position, cost.passes)
        moved[kernel] += _written(node, kernel, tensors, kernel_of)
    return tuple(
        Kernel(
            name=name,
            op_type=parts[0].op_type,
            owner=parts[-1].owner,
            precision=parts[0].precision,
            nodes=tuple(part.name for part in parts),
            macs=sum(part.macs for part in parts),
            operations=sum(part.operations for part in parts),
            moved_bytes=moved[name],
        )
        for name, parts in by_kernel.items()
    )


def _written(
    node: "onnx.NodeProto", kernel: str, tensors: GraphTensors, kernel_of: dict[str, str]
) -> float:
    """Bytes of the results that something outside the kernel reads."""
    total = 0.0
    for name in node.output:
        if name and _leaves(name, kernel, tensors, kernel_of):
            total += tensors.stored(name).size_bytes
    return total


def _leaves(name: str, kernel: str, tensors: GraphTensors, kernel_of: dict[str, str]) -> bool:
    if name in tensors.outputs:
        return True
    for reader in tensors.consumers[name]:
        if reader.op_type in VIEWS or reader.op_type == DEQUANTIZE:
            if any(_leaves(out, kernel, tensors, kernel_of) for out in reader.output):
                return True
        elif kernel_of.get(reader.name, "") != kernel:
            return True
    return False
