"""Checks of weights by name: plain, finite, fitting their network. Torch is not imported here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

_WRAPPERS = ("state_dict", "model_state_dict", "model", "ema", "net")
_SHOWN = 5
_TENSOR_TYPES = ("Tensor", "Parameter")


def fit_weights(module: Any, state_dict: Mapping[str, "Tensor"]) -> "nn.Module":
    """Loads weights into a module, all of them and nothing else.

    Raises:
        InputError: keys are missing or left over, or shapes differ; the first five are named.
    """
    network = require_module(module)
    own = network.state_dict()
    problems = {
        "missing": [name for name in own if name not in state_dict],
        "not in the network": [name for name in state_dict if name not in own],
        "of another shape": [
            f"{name} {list(state_dict[name].shape)} instead of {list(own[name].shape)}"
            for name in own
            if name in state_dict and own[name].shape != state_dict[name].shape
        ],
    }
    found = [
        f"{len(names)} {problem}: {', '.join(names[:_SHOWN])}{' …' if len(names) > _SHOWN else ''}"
        for problem, names in problems.items()
        if names
    ]
    if found:
        raise InputError(
            f"the weights do not fit the network: {'; '.join(found)}",
            "the weights of this very network",
        )
    network.load_state_dict(dict(state_dict), strict=True)
    network.eval()
    return network


def require_module(module: Any) -> "nn.Module":
    """Returns what a builder returned if it is a network.

    Raises:
        InputError: it is something else.
    """
    if not hasattr(module, "load_state_dict"):
        raise InputError(
            f"the builder returned {type(module).__name__}", "a torch.nn.Module (the network)"
        )
    return module  # type: ignore[no-any-return]


def find_weights(content: Any) -> dict[str, "Tensor"]:
    """Returns the state dict inside common wrappers, or nothing."""
    if not isinstance(content, dict):
        return {}
    if content and all(
        isinstance(name, str) and type(value).__name__ in _TENSOR_TYPES
        for name, value in content.items()
    ):
        return content
    for key in _WRAPPERS:
        inner = find_weights(content.get(key))
        if inner:
            return inner
    return {}


def check_weights(weights: Mapping[str, "Tensor"], label: str) -> dict[str, "Tensor"]:
    """Checks every tensor of a state dict and returns it as a dictionary.

    Raises:
        InputError: as `check_tensor`.
    """
    for name, tensor in weights.items():
        check_tensor(name, tensor, label)
    return dict(weights)


def check_tensor(name: str, tensor: "Tensor", label: str) -> None:
    """Checks that a tensor is dense, no larger than its data, and finite.

    Raises:
        InputError: it is not; the message names it.
    """
    what = f"tensor '{name}' in {label}"
    if str(tensor.layout) != "torch.strided" or tensor.device.type != "cpu":
        raise InputError(f"{what} is {tensor.layout} on {tensor.device}", "a dense tensor")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise InputError(f"{what} is a view that is larger than its data", "a dense tensor")
    if tensor.is_floating_point() and not tensor.float().isfinite().all():
        count = int((~tensor.float().isfinite()).sum())
        raise InputError(
            f"{what} has {count} of {tensor.numel()} values that are NaN or infinite",
            "finite weights",
            "use a checkpoint from before the training diverged",
        )
