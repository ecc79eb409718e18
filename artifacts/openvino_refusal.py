"""Why OpenVINO did not read a model, out of its message of many lines."""

import re
from dataclasses import dataclass

_MISSING = re.compile(r"No conversion rule found for operations: (.+)")
_FAILED = re.compile(r"^-- (\S+) with a message:\n(.*?)(?=^-- |\n\n|\Z)", re.M | re.S)
_NODE = re.compile(r"<Node\([^)]*\): ([^>]*)>")
_FRIENDLY = re.compile(r"friendly_name '([^']+)'|[Oo]peration name: (\S+)")
_NOISE = ("Exception from", "Check '", "FrontEnd API failed", "While validating", "at ", "File ")


@dataclass(frozen=True, kw_only=True)
class OpenVinoRefusal:
    """What OpenVINO's ONNX reader could not take.

    Attributes:
        missing: operators without a conversion, such as "DeformConv-19" or "my.domain.Foo".
        failed: operator, its node's output and the reason, where a conversion failed; behind a
            missing operator it may fail for that alone.
        reason: the telling line of the message.
    """

    missing: tuple[str, ...]
    failed: tuple[tuple[str, str, str], ...]
    reason: str

    def __str__(self) -> str:
        if self.missing:
            return f"No conversion rule found for operations: {', '.join(self.missing)}"
        if self.failed:
            return "; ".join(
                f"{operator} '{place}': {reason}" for operator, place, reason in self.failed
            )
        return self.reason


def read_refusal(message: str) -> OpenVinoRefusal:
    """Reads the message of the exception that `read_model` raised."""
    missing = _MISSING.search(message)
    failed = []
    for operator, text in _FAILED.findall(message):
        node = _NODE.search(text)
        failed.append((operator, node.group(1) if node else "", _telling_line(text)))
    return OpenVinoRefusal(
        missing=tuple(missing.group(1).replace(",", " ").split()) if missing else (),
        failed=tuple(failed),
        reason=_telling_line(message),
    )


def read_node(message: str) -> str:
    """Returns which node the message of an exception of `compile_model` names; often none."""
    named = _FRIENDLY.search(message)
    return "".join(part or "" for part in named.groups()) if named else ""


def _telling_line(text: str, limit: int = 200) -> str:
    """Returns the last line that says more than where in OpenVINO's source it was raised."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_NOISE)]
    return (telling or lines or ["no reason given"])[-1 if telling else 0][:limit]
