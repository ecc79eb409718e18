"""Finds out whether loading a `.pt2` archive (torch.export) could run code.

`torch.export.load` is not safe on its own: it unpickles the sample inputs (falling back to full
pickle when the safe loader refuses), pickled weights and custom objects; it evaluates symbolic
shapes with sympy; it resolves any dotted name below `torch` as an operator (`torch.os.system`);
and it imports modules named in a tree spec. An ordinary export of a network with static shapes
needs none of that.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts.errors import UnsafeFileError
from artifacts.file_kind import printable
from artifacts.zip_check import check_torch_zip, refuse_compressed

_HARMLESS_MEMBERS = re.compile(
    r"data/weights/weight_\d+|data/weights/[\w.-]+_weights_config\.json"
    r"|data/constants/tensor_\d+|data/constants/[\w.-]+_constants_config\.json"
    r"|data/sample_inputs/[\w.-]+\.pt|models/[\w.-]+\.json"
    r"|archive_format|archive_version|byteorder|version|\.data/\w+|\.format_version"
    r"|\.storage_alignment"
)
_SAMPLE_INPUTS = "data/sample_inputs/"
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|torchvision|quantized_decomposed|higher_order)(\.[A-Za-z]\w*){1,2}"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge)"
)
_CODE_MARKS = ("__enum__", "defaultdict", "\\u")


def read_sample_inputs(path: Path) -> list[bytes]:
    """Checks a `.pt2` archive and returns its pickled sample inputs.

    The caller has to load those with `weights_only=True` first: only if that succeeds is
    `torch.export.load` as harmless as the check says.

    Raises:
        UnsafeFileError: loading the archive could run code; the message says how.
        InputError: the archive is damaged.
    """
    label = printable(path)
    members = check_torch_zip(path)
    refuse_compressed(path)
    for name in members:
        if not _HARMLESS_MEMBERS.fullmatch(name):
            raise _refusal(label, f"its member '{name[:80]}' may hold pickled objects or code")
    samples = []
    with zipfile.ZipFile(path) as archive:
        for item, name in zip(archive.infolist(), members, strict=True):
            if name.endswith(".json"):
                _check_json(archive.read(item), name, label)
            elif name.startswith(_SAMPLE_INPUTS):
                samples.append(archive.read(item))
    return samples


def _check_json(content: bytes, name: str, label: str) -> None:
    try:
        tree = json.loads(content)
        for key, value in _walk(tree):
            if key == "use_pickle" and value is not False:
                raise _refusal(label, "it holds pickled weights")
            if key in ("expr_str", "as_expr"):
                raise _refusal(label, "it holds symbolic shapes, which are evaluated as code")
            if key == "target" and not _is_known_operator(value):
                raise _refusal(label, f"it calls '{str(value)[:80]}'")
            if isinstance(value, str) and any(mark in value for mark in _CODE_MARKS):
                raise _refusal(label, "it names a class to import")
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnsafeFileError):
            raise
        raise _refusal(label, f"its member '{name}' is not valid JSON") from error


def _is_known_operator(target: Any) -> bool:
    """Values without a dot are names inside the graph, not operators."""
    is_plain = isinstance(target, str) and "." not in target and not target.startswith("#")
    return is_plain or (isinstance(target, str) and bool(_OPERATOR.fullmatch(target)))


def _walk(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yields every key and value of a JSON tree."""
    pending = [("", tree)]
    while pending:
        key, value = pending.pop()
        yield key, value
        if isinstance(value, dict):
            pending.extend(value.items())
            pending.extend(("", name) for name in value)
        elif isinstance(value, list):
            pending.extend(("", item) for item in value)


def _refusal(label: str, reason: str) -> UnsafeFileError:
    return UnsafeFileError(
        f"loading {label} could run code: {reason}",
        "an archive of torch.export with static shapes",
        "if you made it yourself or trust its maker, add --trust",
    )
