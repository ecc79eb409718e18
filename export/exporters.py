"""The two exporters of PyTorch, tried in turn.

The one built on `torch.export` comes first: its graphs are fully static and already folded (a
transformer has no Shape, Where or Expand left). Its older brother, which traces with TorchScript,
takes some modules that the first refuses, so it is the second try.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
from torch import Tensor, nn

from artifacts.errors import InputError
from export.adaptive_pools import write_adaptive_max_pool, write_adaptive_pool
from export.masked_writes import select_masked_writes
from export.quiet import quiet
from export.torchlib_table import table_made_once
from export.written_slices import write_without_scatters

OPSET = 19
"""The first opset whose Q/DQ take FP16 scales; every runtime of `engines` reads it."""


def _export_by_torch_export(module: nn.Module, arguments: Any, names: Any, path: Path) -> None:
    import torch

    with table_made_once():
        program: Any = torch.onnx.export(
            module,
            arguments,
            dynamo=True,
            opset_version=OPSET,
            input_names=names[0],
            output_names=names[1],
            custom_translation_table=_translations(),
            verbose=False,
        )
    _register_constants(program.model.graph)
    program.save(str(path), external_data=False)


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Returns how operators are written for which the exporter has no form, or a costly one."""
    import torch
    from onnxscript import opset19

    def write_all(values: Any) -> Any:
        """`torch._check_tensor_all`, a check while tracing (RT-DETRv2, D-FINE)."""
        ones = opset19.Cast(values, to=onnx.TensorProto.INT32)
        return opset19.Cast(opset19.ReduceMin(ones, keepdims=0), to=onnx.TensorProto.BOOL)

    return {
        torch.ops.aten._adaptive_avg_pool2d.default: write_adaptive_pool,
        torch.ops.aten._adaptive_avg_pool3d.default: write_adaptive_pool,
        torch.ops.aten.adaptive_max_pool2d.default: write_adaptive_max_pool,
        torch.ops.aten.adaptive_max_pool3d.default: write_adaptive_max_pool,
        torch.ops.aten._is_all_true.default: write_all,
    }


def _export_by_tracing(module: nn.Module, arguments: Any, names: Any, path: Path) -> None:
    import torch
    from onnxscript import ir, optimizer

    torch.onnx.export(
        module,
        arguments,
        str(path),
        dynamo=False,
        opset_version=OPSET,
        input_names=names[0],
        output_names=names[1],
    )
    model = optimizer.optimize(ir.load(path))
    _register_constants(model.graph)
    ir.save(model, path)


def _register_constants(graph: Any) -> None:
    """Gives a graph the constants that its nodes read and a file of it would lack.

    onnxscript's optimizer names the bounds of two Clips that it makes one after the tensor that
    they read. Where two such pairs read one tensor (`inverse_sigmoid`, called twice), the second's
    bounds take the place of the first's among the initializers.

    Args:
        graph: an optimized `onnx_ir.Graph`; changed in place.
    """
    for node in graph.all_nodes():
        for value in node.inputs:
            if value is None or value.producer() is not None or value.const_value is None:
                continue
            if not value.is_initializer():
                if value.name in graph.initializers:
                    value.name = f"{value.name}_of_{node.name}"
                graph.register_initializer(value)


EXPORTERS: dict[str, Callable[[nn.Module, Any, Any, Path], None]] = {
    "torch.export": _export_by_torch_export,
    "torchscript": _export_by_tracing,
}


def export_with(
    exporter: str,
    module: nn.Module,
    arguments: Sequence[Tensor],
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> onnx.ModelProto:
    """Exports a module with one exporter.

    Args:
        exporter: a key of `EXPORTERS`.
        module: returns a tuple of tensors; in evaluation mode.
        arguments: one tensor per input.
        input_names: their names.
        output_names: the names of the tensors it returns.

    Returns:
        the model, free of traces of the machine that made it.

    Raises:
        InputError: the exporter refuses the module.
    """
    names = (list(input_names), list(output_names))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            with quiet():
                EXPORTERS[exporter](module, tuple(arguments), names, path)
                model = onnx.load(path)
        except Exception as error:
            raise InputError(f"{exporter} cannot export it: {_reason(error)}") from error
    _strip(model)
    return select_masked_writes(write_without_scatters(model))


def _reason(error: BaseException) -> str:
    """Returns the line of an exporter's long message that names the cause."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[0][:240] if lines else 'no reason given'}"


def _strip(model: onnx.ModelProto) -> None:
    """Removes stack traces and paths, so that the same module gives the same file."""
    del model.metadata_props[:]
    model.doc_string = ""
    del model.graph.metadata_props[:]
    model.graph.doc_string = ""
    for item in (*model.graph.node, *model.graph.initializer, *model.graph.value_info):
        item.doc_string = ""
        del item.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = ""
        del value.metadata_props[:]
