"""The plan of a check, fixed before its first frame, and how often it was tried.

A rule chosen after the frames were seen proves nothing, and neither does the one green run of
twenty. So the limits, the evidence and the artifact are hashed before anything is measured, and
each attempt leaves a line in a ledger before its first frame, aborted ones too.
"""

import fcntl
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from artifacts.atomic import make_folder, sync
from artifacts.digest import sha256_bytes
from artifacts.errors import InputError
from latency_budget.budget import Budget
from latency_budget.clock import unix_time_s
from latency_budget.tiers import Tier

PLAN_VERSION = 1
_BESIDE_THE_CLAIM = {
    "tier": ("frames", "min_frames", "restarts"),
    "how": ("warmup_frames", "phase_ns"),
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was decided before the first frame.

    Attributes:
        values: everything that can change the verdict besides the frames themselves.
        attempt: the how-manieth try of the same claim this is, from 1; None where it could not be
            counted.
    """

    values: dict[str, Any]
    attempt: int | None = 1

    @property
    def sha256(self) -> str:
        """The plan's digest, over JSON with sorted keys."""
        return _digest(self.values)

    @property
    def claim_sha256(self) -> str:
        """The digest of what is claimed, by which attempts are counted.

        A file of another name, more frames or a longer warm-up make no first attempt of a second.
        """
        values = dict(self.values)
        if values["artifact_sha256"]:
            del values["subject"]
        for part, names in _BESIDE_THE_CLAIM.items():
            values[part] = {key: value for key, value in values[part].items() if key not in names}
        return _digest(values)

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as report.json holds it."""
        return {"sha256": self.sha256, "attempt": self.attempt, "values": self.values}


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return sha256_bytes(text.encode())


def make_plan(
    budget: Budget, tier: Tier, *, subject: str, sha256: str, how: Mapping[str, Any]
) -> Plan:
    """Fixes a plan.

    Args:
        budget: the limits that the run is judged by.
        tier: the evidence.
        subject: what is measured.
        sha256: the artifact's digest, empty where there is none.
        how: further settings: policy, warm-up, mode, runtime, scheduling.
    """
    return Plan(
        values={
            "version": PLAN_VERSION,
            "subject": subject,
            "artifact_sha256": sha256,
            "frame": asdict(budget.frame),
            "stages": budget.stages,
            "heads": {name: asdict(contract) for name, contract in budget.heads.items()},
            "environment": budget.environment,
            "tier": asdict(tier),
            "how": dict(how),
        }
    )


def begin_attempt(plan: Plan, ledger: Path | None, *, is_judged: bool = True) -> Plan:
    """Writes the attempt down and returns the plan with its number.

    Args:
        plan: what is about to be measured.
        ledger: a file of JSON lines, made if missing; None counts nothing.
        is_judged: the verdict depends on the number. Where it is only shown, a ledger that cannot
            be written (a folder mounted read-only) costs the number and not the measurement.

    Raises:
        InputError: the ledger cannot be read or written, and the number is judged.
    """
    if ledger is None:
        return plan
    try:
        make_folder(ledger.parent)
        with ledger.open("a", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            before, is_torn = _count(ledger, plan)
            line = {
                "plan": plan.sha256,
                "claim": plan.claim_sha256,
                "attempt": before + 1,
                "started_s": unix_time_s(),
            }
            stream.write("\n" * is_torn + json.dumps(line) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
            sync(ledger.parent)
    except OSError as error:
        what = f"cannot write the attempts to {ledger}: {error.strerror}"
        if is_judged:
            raise InputError(what, fix="name another file with --ledger") from error
        _log.warning("%s; this one is not counted (--ledger names another file)", what)
        return replace(plan, attempt=None)
    return replace(plan, attempt=before + 1)


def _count(ledger: Path, plan: Plan) -> tuple[int, bool]:
    """Returns the attempts of the plan's claim, and whether the last line is torn.

    Lines that are torn or of another kind count for nothing; older ones tell the plan only.
    """
    sha256, claim = plan.sha256, plan.claim_sha256
    found, text = 0, ledger.read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found += claim == entry.get("claim") or sha256 == entry.get("plan")
    return found, bool(text) and not text.endswith("\n")
