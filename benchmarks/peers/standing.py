"""Whether a peer's file is left standing: no file of framefit is as fast and clearly better."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

SLOWER_ALLOWED = 1.03
BETTER_DB = 3.0
KINDS = ("said", "run")
"""What a file says, and what the runtime makes of it."""
FIGURES = ("sqnr_mean_db", "sqnr_db")
LATENCY, CPU_TIME = "min_ms", "cpu_ms"


def counted_kinds(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns which of `KINDS` count: what a file says does not where all of them overflow.

    Args:
        figures: {"overflows": whether the processor does that}, see `artifacts.processor`.
    """
    return ("run",) if figures.get("overflows") else KINDS


def output_gains(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> dict[str, float]:
    """Returns per output how much better ours is, in dB: the smaller of mean and pooled."""
    return {
        name: min(ours[name][figure] - value[figure] for figure in FIGURES)
        for name, value in peer.items()
    }


def judge_peer(
    peer: Mapping[str, Any],
    ours: Mapping[str, Mapping[str, Any]],
    time: str = LATENCY,
    kinds: Sequence[str] = KINDS,
) -> dict[str, Any]:
    """Looks for a file of framefit that leaves no reason to use a peer's.

    It is at least as fast (`SLOWER_ALLOWED` times the peer's latency), at least `BETTER_DB` better
    averaged over the outputs, and no output of it is worse.

    Args:
        peer: {"min_ms", "cpu_ms", "said", "run"}; the better one of said and run counts for each
            output.
        ours: the same per file; the worse one counts.
        time: which of the two times says what is fast: `LATENCY`, or `CPU_TIME` for figures of a
            machine that had other work.
        kinds: of `KINDS` that count.

    Returns:
        {"beaten_by": name or None, "closest": name, "gain_db", "worst_output_db", "time_ratio",
        "cpu_ratio"}; the figures are those of `closest`, which misses least.
    """
    rows = []
    for name, item in ours.items():
        gains = output_gains(
            judge_outputs(item, is_ours=True, kinds=kinds),
            judge_outputs(peer, is_ours=False, kinds=kinds),
        )
        gain, worst = sum(gains.values()) / len(gains), min(gains.values())
        ratios = {key: item[key] / peer[key] for key in (LATENCY, CPU_TIME)}
        ratio = ratios[time]
        missing_db = max(BETTER_DB - gain, -worst, 0.0)
        is_beaten = missing_db == 0 and ratio <= SLOWER_ALLOWED
        miss = missing_db / BETTER_DB + max(ratio / SLOWER_ALLOWED - 1, 0.0) * 10
        rows.append(
            {
                "beaten_by": name if is_beaten else None,
                "closest": name,
                "gain_db": gain,
                "worst_output_db": worst,
                "time_ratio": ratios[LATENCY],
                "cpu_ratio": ratios[CPU_TIME],
                "_order": (miss, -gain),
            }
        )
    best = min(rows, key=lambda row: row["_order"])
    del best["_order"]
    return best


def judge_outputs(
    file: Mapping[str, Any], *, is_ours: bool, kinds: Sequence[str] = KINDS
) -> dict[str, dict[str, float]]:
    """Returns what counts of {"said", "run"} per output: our worse one, a peer's better one."""
    choose = min if is_ours else max
    known = [file[kind] for kind in kinds if "failure" not in file[kind]]
    return {
        name: {figure: choose(outputs[name][figure] for outputs in known) for figure in FIGURES}
        for name in known[0]
    }


def find_misread(files: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Returns of which files the runtime computes something else than they say.

    Args:
        files: {"said", "run"} each; those that only one runtime takes are left out.

    Returns:
        by file, whether its outputs have at least `BETTER_DB` less on the runtime, as their mean.
    """
    return {
        name: _mean_db(item["said"]) - _mean_db(item["run"]) >= BETTER_DB
        for name, item in files.items()
        if "said" in item and not any("failure" in item[kind] for kind in ("said", "run"))
    }


def _mean_db(outputs: Mapping[str, Mapping[str, float]]) -> float:
    return mean(figures["sqnr_mean_db"] for figures in outputs.values())
