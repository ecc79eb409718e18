"""Checks of weights by name: plain, finite, fitting their network. Torch is not imported here."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from artifacts.compiled_module import without_compiler
from artifacts.errors import InputError
from artifacts.wording import name_some
from artifacts.wrapped_weights import drop_training_wrappers, is_averaged

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = "the weights"
_SHOWN = 5
_COUNTER = "num_batches_tracked"
"""Of a BatchNorm; files that were converted often lack it, and PyTorch needs it for no result."""
_PROFILED = ("total_ops", "total_params")
"""What thop's profile leaves in each layer."""
_LAZY_TYPES = ("UninitializedParameter", "UninitializedBuffer")

_log = logging.getLogger(__name__)


def fit_weights(
    module: Any, state_dict: Mapping[str, "Tensor"], *, label: str = WEIGHTS
) -> "nn.Module":
    """Loads weights into a module, all of them and nothing else.

    BatchNorms' counters and all but one name of tied weights may lack. What thop's profile counted
    is left out, with a warning.

    Where the module was a part of what was trained (`module.` of DDP and of averaged models,
    `model.` of Lightning), its weights are those below one prefix; a warning names the others. Of
    several the averaged ones are taken (`ema_model.`).

    Args:
        module: the network; one that was compiled too.
        state_dict: its weights by name.
        label: what they are, for the errors ("the weights of net.pt").

    Raises:
        InputError: keys are missing or left over, shapes differ (the first five are named), or the
            network is found below several prefixes.
    """
    network = require_module(module)
    own = network.state_dict()
    twins = _find_twins(own)
    state_dict = _drop_profiled(_take_part(state_dict, own, twins), own)
    state_dict = _name_twins(state_dict, twins)
    problems = {
        "missing": [name for name in _list_needed(own) if name not in state_dict],
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
            f"{label} do not fit the network: {'; '.join(found)}",
            "the weights of this very network",
        )
    load_by_name(network, state_dict)
    network.eval()
    return network


def load_by_name(network: "nn.Module", weights: Mapping[str, "Tensor"]) -> None:
    """Loads all weights of a network, in the layout of its own version.

    A plain dictionary says no version; layers that changed their layout once refuse it then, as
    torchvision's MNASNet does.
    """
    stated = network.state_dict()
    stated.update(weights)
    network.load_state_dict(stated, strict=True)


def _find_twins(own: Mapping[str, "Tensor"]) -> dict[str, tuple[str, ...]]:
    """Returns the other names of weights that a network has under several (tied weights)."""
    names: dict[tuple[Any, ...], list[str]] = {}
    for name, value in own.items():
        if value.numel() and value.device.type != "meta":
            names.setdefault((value.data_ptr(), value.shape, value.stride()), []).append(name)
    return {
        name: tuple(other for other in same if other != name)
        for same in names.values()
        if len(same) > 1
        for name in same
    }


def _name_twins(
    state_dict: Mapping[str, Any], twins: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Returns the weights with tied ones under each of their names; safetensors keeps one."""
    added = {
        name: state_dict[other]
        for name, others in twins.items()
        for other in others
        if name not in state_dict and other in state_dict
    }
    return {**state_dict, **added}


def _take_part(
    state_dict: Mapping[str, Any],
    own: Mapping[str, "Tensor"],
    twins: Mapping[str, tuple[str, ...]],
) -> Mapping[str, Any]:
    """Returns the weights by the network's own names, where they have these behind a prefix.

    Names as short as a layer's own stand behind many prefixes; shapes then tell which are meant.
    """
    needed = _list_needed(own)
    names = frozenset(name for name in needed if name not in twins) or frozenset(needed)
    if names <= state_dict.keys():
        return state_dict
    plain = {drop_training_wrappers(name): value for name, value in state_dict.items()}
    if names <= plain.keys():
        return plain
    last = "." + min(names)
    prefixes = [name.removesuffix(min(names)) for name in plain if name.endswith(last)]
    fitting = [one for one in prefixes if all(one + name in plain for name in names)]
    if len(fitting) > 1:
        fitting = [
            one
            for one in fitting
            if all(plain[one + name].shape == value.shape for name, value in own.items())
        ]
    averaged = [one for one in fitting if is_averaged(one)]
    if len(fitting) > 1 and len(averaged) == 1:
        fitting = averaged
    if len(fitting) > 1:
        raise InputError(
            f"the file holds the network {len(fitting)} times: below {', '.join(fitting)}",
            "its weights once",
            "save those to be used alone, without the prefix",
        )
    if not fitting:
        return state_dict
    (prefix,) = fitting
    others = [name for name in plain if name.removeprefix(prefix) not in own]
    if others:
        _log.warning(
            "the network's weights are those below '%s'; not used: %s",
            prefix,
            name_some(others, _SHOWN),
        )
    return {name: plain[prefix + name] for name in own if prefix + name in plain}


def _list_needed(own: Mapping[str, Any]) -> list[str]:
    """Returns the names of a network's weights that a file has to hold."""
    return [name for name in own if name.rpartition(".")[2] != _COUNTER]


def _drop_profiled(state_dict: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the weights without what a profiler counted, which is named."""
    counts = [
        name for name in state_dict if name.rpartition(".")[2] in _PROFILED and name not in own
    ]
    if counts:
        _log.warning("counts of a profiler, not used: %s", name_some(counts, _SHOWN))
    return {name: value for name, value in state_dict.items() if name not in counts}


def require_module(module: Any) -> "nn.Module":
    """Returns what a builder returned if it is a network, without what `torch.compile` puts on it.

    Raises:
        InputError: it is something else, or a layer of it does not know its shapes yet.
    """
    is_class = isinstance(module, type)
    if is_class or not hasattr(module, "load_state_dict"):
        raise InputError(
            f"the builder returned {module.__name__ if is_class else type(module).__name__}"
            f"{', a class' * is_class}",
            "a torch.nn.Module (the network)",
            "call the class where the network is built" * is_class,
        )
    network: nn.Module = without_compiler(module)
    for name, value in network.state_dict().items():
        if type(value).__name__ in _LAZY_TYPES:
            raise InputError(
                f"'{name}' has no shape: its layer (nn.Lazy...) has not run yet",
                "a network whose weights have their shapes",
                "run it once on a sample where it is built",
            )
    return network


def copy_weights(weights: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Returns weights as files hold them: on the CPU, in one piece, none sharing its memory."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}


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
