"""Objects that trainings store beside weights: read as nothing, so that no code of theirs runs.

Torch is not imported here.
"""

import shlex
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from artifacts.file_kind import printable

NAMES = (
    *(f"numpy.{core}.multiarray.scalar" for core in ("core", "_core")),
    *(f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")),
    *("numpy.dtype", "numpy.ndarray"),
    *("argparse.Namespace", "types.SimpleNamespace"),
    *("pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath"),
    *("datetime.date", "datetime.datetime", "datetime.timedelta", "datetime.timezone"),
    "mmengine.logging.history_buffer.HistoryBuffer",
    *(f"omegaconf.base.{name}" for name in ("ContainerMetadata", "Metadata", "UnionNode")),
    *("omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig"),
    *(
        f"omegaconf.nodes.{kind}Node"
        for kind in ("Any", "Boolean", "Bytes", "Enum", "Float", "Integer", "Path", "String")
    ),
    *(f"typing.{name}" for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")),
    *(f"builtins.{name}" for name in ("bool", "bytes", "dict", "float", "int", "list", "str")),
    *("builtins.tuple", "collections.defaultdict", "functools.partial"),
    *("torch.optim.adam.Adam", "torch.optim.adamw.AdamW", "torch.optim.sgd.SGD"),
)
"""Scores, options, paths and dates: what trainings write that has nothing to do with weights.

Types are there because options name them (OmegaConf's, Hydra's and Lightning's).

numpy's own types are not let in either: `dtype.__setstate__` takes flags that say where in an
array's bytes pointers are.
"""
DICTIONARIES = (
    "lightning.fabric.utilities.data.AttributeDict",
    "lightning_fabric.utilities.data.AttributeDict",
    *(
        f"{name}.utilities.parsing.AttributeDict"
        for name in ("lightning.pytorch", "pytorch_lightning")
    ),
    *("addict.addict.Dict", "easydict.EasyDict", "yacs.config.CfgNode"),
    "mmengine.config.config.ConfigDict",
)
"""Dictionaries of a kind of their own, which are read as plain ones."""
_RESAVE = (
    "import sys, torch; x = torch.load(sys.argv[1], map_location='cpu', weights_only=False); "
    "x = x.get('ema') or x.get('state_dict') or x.get('model') if isinstance(x, dict) else x; "
    "torch.save(x.state_dict() if hasattr(x, 'state_dict') else x, sys.argv[2])"
)


class Dropped:
    """Stands for an object that is not read: it takes whatever a pickle says of it, holds nothing.

    Every global of `NAMES` is this class to the unpickler, so that calling it, building it and
    giving it a state run nothing but the three lines below.
    """

    def __new__(cls, *_args: Any, **_kwargs: Any) -> "Dropped":
        """Ignores what it is made of."""
        return super().__new__(cls)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Ignores what it is made of."""

    def __setstate__(self, _state: Any) -> None:
        """Ignores its state."""


STAND_INS: Mapping[str, type] = {
    **dict.fromkeys(NAMES, Dropped),
    **dict.fromkeys(DICTIONARIES, OrderedDict),
}
"""What each global of a pickle that is not torch's own is read as."""


def holds_dropped(content: Any) -> bool:
    """Whether plain containers hold something that was not read."""
    if isinstance(content, Mapping):
        return any(map(holds_dropped, content.values()))
    if isinstance(content, list | tuple):
        return any(map(holds_dropped, content))
    return content is Dropped or isinstance(content, Dropped)


def resave_hint(path: str) -> str:
    """Returns what the owner of a file can do who trusts it: a command that saves its weights."""
    named = shlex.quote(printable(path))
    return f'if you trust it, run where its code is installed: python -c "{_RESAVE}" {named} w.pt'
