"""Runs an export with the places that its module chose, such as the queries of a detector.

Near ties among scores change places with the least rounding, and whole rows of outputs with them.
That is no fault of an export: what it computes of the same places can be compared.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from artifacts.decided_outputs import pin_choices

Choice = tuple[NDArray[Any], NDArray[Any]]
"""The values that a TopK or a sort chose, and their places."""

_CHOOSING = ("aten::topk", "aten::sort")


class _Recorder(TorchDispatchMode):
    """Keeps what is chosen while it is entered, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[Choice] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs an operator as it would without."""
        del types
        result = func(*args, **(kwargs or {}))
        if getattr(func, "name", str)().partition(".")[0] in _CHOOSING:
            values, places = (np.array(part.cpu().numpy()) for part in result)
            self.choices.append((values, places))
        return result


@torch.no_grad()
def record_choices(module: nn.Module, sample: Mapping[str, Tensor]) -> list[Choice]:
    """Returns what a module chooses on a sample, in the order in which it does."""
    recorder = _Recorder()
    with recorder:
        module(*sample.values())
    return recorder.choices


def run_at_choices(
    model: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], choices: list[Choice]
) -> tuple[dict[str, NDArray[Any]], list[NDArray[Any]]] | None:
    """Runs an export with the places that its module chose in place of its own.

    Args:
        model: the export, static; it is not changed.
        feeds: the sample.
        choices: what the module chose on it; each belongs to a TopK of the export.

    Returns:
        the outputs, and the values that the TopKs themselves chose; None where the export has
        other TopKs than the module, or none.
    """
    import onnxruntime

    chosen = [(*node.output, "")[:2] for node in model.graph.node if node.op_type == "TopK"]
    outputs = [item.name for item in model.graph.output]
    if not chosen or len(chosen) != len(choices):
        return None
    pinned = {
        places: choice[1].astype(np.int64)
        for (_, places), choice in zip(chosen, choices, strict=True)
        if places and places not in outputs
    }
    values = [name for name, _ in chosen]
    model = pin_choices(model, tuple(pinned))
    shown = (name for name in values if name not in outputs)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shown)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        results = dict(
            zip(
                [item.name for item in session.get_outputs()],
                session.run(None, {**feeds, **pinned}),
                strict=True,
            )
        )
    except Exception:
        return None
    return {name: results[name] for name in outputs}, [results[name] for name in values]
