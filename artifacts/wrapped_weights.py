"""The weights inside what a training wrote: a dictionary of dictionaries, averaged ones among them.

Torch is not imported here.
"""

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from artifacts.wording import name_some

if TYPE_CHECKING:
    from torch import Tensor

_AVERAGED = (
    *("state_dict_ema", "model_state_dict_ema", "model_ema", "ema", "ema_model"),
    *("ema_state_dict", "params_ema", "module_ema"),
)
"""Where timm, torchvision, Ultralytics, DETRs and BasicSR keep what is to be used afterwards."""
_PLAIN = ("state_dict", "model_state_dict", "model", "net", "network", "module", "params")
_TRAINING_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What `torch.compile`, FSDP and activation checkpointing put in front of a layer's names."""
_SWAPPED_BY = "message_hub"
"""MMEngine stores the averaged weights as `state_dict` and the others as `ema_state_dict`."""
_AVERAGED_WORD = re.compile(r"(?:^|[._])(?:ema|averaged)(?:[._]|$)")
_TENSOR_TYPES = ("Tensor", "Parameter")
_SHOWN = 5

_log = logging.getLogger(__name__)


def find_weights(content: Any) -> dict[str, "Tensor"]:
    """Returns the state dict inside common wrappers, or nothing.

    Of averaged weights and others the averaged ones are taken, if they are whole: they are what a
    training keeps them for. A warning says so, and names what was not taken.
    """
    if not isinstance(content, dict):
        return {}
    if is_state_dict(content):
        return content
    found = {key: find_weights(content.get(key)) for key in (*_AVERAGED, *_PLAIN)}
    found = {key: weights for key, weights in found.items() if weights}
    if not found:
        return _take_only(content)
    key = _choose(found, is_swapped=_SWAPPED_BY in content)
    others = [other for other in found if other != key]
    if others and (key in _AVERAGED or any(other in _AVERAGED for other in others)):
        _log.warning("the weights are those of '%s'; not used: %s", key, name_some(others, _SHOWN))
    return found[key]


def name_state_dicts(content: Any) -> list[str]:
    """Returns the keys of a dictionary whose values are weights by name."""
    if not isinstance(content, dict):
        return []
    return [
        str(key)
        for key, value in content.items()
        if isinstance(value, dict) and is_state_dict(value)
    ]


def is_state_dict(content: Mapping[Any, Any]) -> bool:
    """Whether it holds tensors by name and nothing else."""
    return bool(content) and all(
        isinstance(name, str) and type(value).__name__ in _TENSOR_TYPES
        for name, value in content.items()
    )


def is_averaged(prefix: str) -> bool:
    """Whether the names below a prefix are those of averaged weights."""
    return _AVERAGED_WORD.search(prefix) is not None


def drop_training_wrappers(name: str) -> str:
    """Returns a weight's name without the parts that `torch.compile` and the like put into it."""
    return ".".join(part for part in name.split(".") if part not in _TRAINING_WRAPPERS)


def _take_only(content: Mapping[str, Any]) -> dict[str, "Tensor"]:
    """Returns the weights below the one key that holds any; none where several do."""
    names = name_state_dicts(content)
    if len(names) != 1:
        return {}
    _log.warning("the weights are those of '%s'", names[0])
    return content[names[0]]  # type: ignore[no-any-return]


def _choose(found: Mapping[str, Mapping[str, Any]], *, is_swapped: bool) -> str:
    plain = next((key for key in _PLAIN if key in found), None)
    averaged = next((key for key in _AVERAGED if key in found), None)
    if plain is None or averaged is None:
        return next(iter(found))
    is_whole = _layer_names(found[plain]) <= _layer_names(found[averaged])
    return averaged if is_whole and not is_swapped else plain


def _layer_names(weights: Mapping[str, Any]) -> set[str]:
    """Names that averaged and other weights have in common, whatever held them in training."""
    return {drop_training_wrappers(name).removeprefix("module.") for name in weights}
