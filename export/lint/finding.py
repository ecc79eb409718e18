"""One thing that is wrong, or slow, at one place of a graph."""

from dataclasses import dataclass

ERROR, WRONG, WARNING, INFO = "error", "wrong", "warning", "info"
SEVERITIES = (ERROR, WRONG, WARNING, INFO)
"""error: the target does not build it. wrong: it builds, and computes something else. warning: it
runs slower than it could. info: worth knowing."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding.

    Attributes:
        rule: the name of the rule that found it.
        severity: one of `SEVERITIES`.
        place: the node, or "from -> to" for an edge.
        what: what is there.
        why: what the target makes of it.
        fix: what to do.
        traffic_bytes: memory traffic per inference that it costs, an estimate; 0 if not known.
    """

    rule: str
    severity: str
    place: str
    what: str
    why: str
    fix: str
    traffic_bytes: int = 0
