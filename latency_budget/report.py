"""The report: what was measured and judged, as plain data (schema 1 of `docs/latency.md`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.digest import sha256_file
from latency_budget.budget import Budget, HeadContract
from latency_budget.clock import unix_time_s
from latency_budget.environment import Environment
from latency_budget.experiment import Experiment
from latency_budget.experiment_figures import describe_experiment
from latency_budget.report_extras import ReportExtras
from latency_budget.run import DROPPED_NS, Nanoseconds, Run
from latency_budget.statistics import bound_ns, percentile_ns
from latency_budget.verdict import Gate, Judgement, Verdict
from latency_budget.why.missed_frames import explain_misses, summarise_misses

SCHEMA = 1
NETWORK_STAGE = "network"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One measured variant of the network or frame.

    Attributes:
        name: such as "fp32" or "int8".
        artifact: the measured file's name, empty where there is none.
        sha256: its digest; the verdict is about this file and no other.
        size_bytes: its size.
        runtime: what ran it.
        network_ms: percentiles of the stage `network`; None where it was not measured.
        frame_ms: percentiles from arrival to result, with `misses`.
        stages: per stage name, p50, p99 and budget_ms (None without a budget).
        heads: per head {"metric": …, "value": …}, with "lower_is_better" where a contract says so.
        verdict: of this variant alone; None where it was only measured.
        gates: of this variant.
        details: further figures: bounds, closed loop, cold start, session.
        run: the raw samples.
    """

    name: str
    artifact: str = ""
    sha256: str = ""
    size_bytes: int = 0
    runtime: str = ""
    network_ms: dict[str, Any] | None
    frame_ms: dict[str, Any]
    stages: list[dict[str, Any]]
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdict: Verdict | None = None
    gates: tuple[Gate, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    run: Run

    def to_dict(self) -> dict[str, Any]:
        """Returns the variant as report.json holds it, without the raw samples."""
        return {
            "name": self.name,
            "artifact": self.artifact,
            "sha256": self.sha256,
            "size_bytes": self.size_bytes,
            "runtime": self.runtime,
            "network_ms": self.network_ms,
            "frame_ms": self.frame_ms,
            "stages": self.stages,
            "heads": self.heads,
            "verdict": self.verdict.value if self.verdict else None,
            "gates": [_gate_to_dict(gate) for gate in self.gates],
            "details": self.details,
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole check. Its verdict and gates are those of the last variant, the one to be shipped.

    Attributes:
        variants: from the reference to the candidate.
        verdict: the outcome.
        gates: the candidate's gates, and any others that belong to the whole.
        environment: {"verdict": …, "checks": [...], "machine": {...}}; empty where not observed.
        frame: rate_hz, deadline_ms and the other limits of the budget.
        title: what was checked.
        notes: what a reader must know, such as what was not judged.
        created_s: Unix time.
        extras: what is shown besides, such as a roofline; not part of report.json.
    """

    variants: tuple[Variant, ...]
    verdict: Verdict
    gates: tuple[Gate, ...]
    environment: dict[str, Any] = field(default_factory=dict)
    frame: dict[str, float] = field(default_factory=dict)
    title: str = "Frame budget"
    notes: tuple[str, ...] = ()
    created_s: int = field(default_factory=unix_time_s)
    extras: ReportExtras = field(default_factory=ReportExtras)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as report.json holds it, without the raw samples."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "title": self.title,
            "created_s": self.created_s,
            "frame": self.frame,
            "variants": [variant.to_dict() for variant in self.variants],
            "environment": self.environment,
            "gates": [_gate_to_dict(gate) for gate in self.gates],
            "notes": list(self.notes),
        }


def build_variant(
    name: str,
    run: Run,
    budget: Budget,
    *,
    judgement: Judgement | None = None,
    experiment: Experiment | None = None,
    artifact: Path | str | None = None,
    runtime: str = "",
    session: Mapping[str, Any] | None = None,
    heads: Mapping[str, Mapping[str, Any]] | None = None,
) -> Variant:
    """Summarises a run.

    Args:
        name: the variant's name.
        run: the paced or recorded frames.
        budget: the limits the stages are shown against.
        judgement: the variant's own gates.
        experiment: the measurement it comes from, for closed loop and pacing figures.
        artifact: the measured file; its digest and size are taken now.
        runtime: what ran it.
        session: what `Session.describe()` said.
        heads: per head {"metric": …, "value": …}.
    """
    path = Path(artifact) if artifact else None
    return Variant(
        name=name,
        artifact=path.name if path else "",
        sha256=sha256_file(path) if path else "",
        size_bytes=path.stat().st_size if path else 0,
        runtime=runtime,
        network_ms=summarise_ms(run.stage_ns(NETWORK_STAGE))
        if NETWORK_STAGE in run.stage_names
        else None,
        frame_ms=summarise_ms(run.latency_ns)
        | {"misses": int(run.find_misses(budget.frame.deadline_ns).sum())},
        stages=[_summarise_stage(run, stage, budget) for stage in run.stage_names],
        heads={
            head: {**values, **_direction_of(budget.heads.get(head), values)}
            for head, values in (heads or {}).items()
        },
        verdict=judgement.verdict if judgement else None,
        gates=judgement.gates if judgement else (),
        details=_summarise_details(run, experiment, session)
        | {"missed": summarise_misses(explain_misses(run, budget.frame.deadline_ns))},
        run=run,
    )


def build_report(
    variants: list[Variant],
    budget: Budget,
    judgement: Judgement,
    *,
    environment: Environment | None = None,
    title: str = "Frame budget",
    notes: tuple[str, ...] = (),
) -> Report:
    """Puts variants and the candidate's judgement together."""
    return Report(
        variants=tuple(variants),
        verdict=judgement.verdict,
        gates=judgement.gates,
        environment=_environment_to_dict(environment),
        frame={
            "rate_hz": budget.frame.rate_hz,
            "deadline_ms": round(budget.frame.deadline_ns / 1e6, 6),
            "p99_over_p50": budget.frame.p99_over_p50,
            "max_consecutive_misses": budget.frame.max_consecutive_misses,
        },
        title=title,
        notes=notes,
    )


def summarise_ms(latency_ns: Nanoseconds) -> dict[str, Any]:
    """Returns nearest-rank percentiles in milliseconds.

    Args:
        latency_ns: [n] nanoseconds, `DROPPED_NS` for dropped frames.

    Returns:
        p50, p95, p99, p999, max and n; None where there are too few samples for a percentile or it
        falls on a dropped frame; `max` is that of the processed frames.
    """
    ordered = np.sort(latency_ns)
    processed = ordered[ordered < DROPPED_NS]
    percentiles = {
        key: _to_ms(percentile_ns(ordered, quantile))
        for key, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))
    }
    largest = _to_ms(int(processed[-1])) if len(processed) else None
    return {**percentiles, "max": largest, "n": len(ordered)}


def _direction_of(contract: HeadContract | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns which way a head's metric counts by its contract; a name alone may mislead."""
    if contract is None or contract.metric != values.get("metric"):
        return {}
    return {"lower_is_better": contract.lower_is_better}


def _summarise_stage(run: Run, name: str, budget: Budget) -> dict[str, Any]:
    summary = summarise_ms(run.stage_ns(name))
    return {
        "name": name,
        "p50": summary["p50"],
        "p99": summary["p99"],
        "budget_ms": budget.stages.get(name),
    }


def _summarise_details(
    run: Run, experiment: Experiment | None, session: Mapping[str, Any] | None
) -> dict[str, Any]:
    ordered = np.sort(run.latency_ns)
    details: dict[str, Any] = {
        "mode": run.mode,
        "is_whole_frame": run.is_whole_frame,
        "p50_lower_ms": _to_ms(bound_ns(ordered, 0.5, 0.975, upper=False)),
        "p99_upper_ms": _to_ms(bound_ns(ordered, 0.99, 0.95, upper=True)),
        "p99_interval_ms": [
            _to_ms(bound_ns(ordered, 0.99, 0.975, upper=upper)) for upper in (False, True)
        ],
        "dropped": int(run.dropped.sum()),
        "service_ms": summarise_ms((run.done_ns - run.start_ns)[~run.dropped]),
        "queue_ms": summarise_ms(run.queue_ns),
        "gc_collections": run.gc_collections,
        "first_frame_ms": _to_ms(int(run.warmup_ns[0])) if len(run.warmup_ns) else None,
        "first_ten_ms": [_to_ms(int(value)) for value in run.warmup_ns[:10]],
        "warmup_frames": len(run.warmup_ns),
    }
    if experiment is not None:
        details |= describe_experiment(experiment)
        details["closed_ms"] = summarise_ms(experiment.closed.latency_ns)
        details["pacing_penalty"] = experiment.pacing_penalty
        details["omission_gap_ms"] = experiment.omission_gap_ms
    if session:
        details["session"] = dict(session)
    return details


def _environment_to_dict(environment: Environment | None) -> dict[str, Any]:
    if environment is None:
        return {}
    return {
        "verdict": environment.verdict,
        "checks": [
            {"name": check.name, "verdict": check.verdict, "detail": check.detail}
            for check in environment.checks
        ],
        "machine": environment.machine,
    }


def _gate_to_dict(gate: Gate) -> dict[str, str]:
    return {"name": gate.name, "verdict": gate.verdict.value, "detail": gate.detail}


def _to_ms(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / 1e6, 6)
