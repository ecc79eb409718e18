"""The section of docs/benchmarks.md about the peers."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.package_networks import PACKAGE_NETWORKS
from benchmarks.peers.cost import COST_CASES
from benchmarks.peers.judge import ONNXRUNTIME, OPENVINO, TITLES
from benchmarks.peers.makers import OURS
from benchmarks.peers.standing import BETTER_DB, CPU_TIME, SLOWER_ALLOWED, find_misread

OURS_TO_TUNE, PACKAGES, OWN = "peers", "packages", "own"
"""The networks that framefit was tuned on, those of public packages, a user's own."""
ON_ONNXRUNTIME = "peers-onnxruntime"
"""Those of `OURS_TO_TUNE`, run by onnxruntime."""
WITHOUT_VNNI = "peers-without-vnni"
"""Those of `OURS_TO_TUNE`, on a processor where products of 8-bit integers overflow."""
SECONDS = (
    "Seconds are those of the tool's process, which its user waits for; in brackets its work "
    "without the imports before it (framefit imports most as it works)."
)
_JUDGED = "A peer is judged by the better of *said* and *run*, framefit by the worse."
_JUDGED_RUN = (
    "All are judged by *run*: on this processor products of 8-bit integers overflow, and no "
    "kernel computes what the peers' files say."
)
_TITLES = {
    OURS_TO_TUNE: "Beside the peers",
    PACKAGES: "Beside the peers, on networks out of public packages",
    OWN: "Beside the peers, on networks of your own",
    ON_ONNXRUNTIME: "Beside the peers, on onnxruntime",
    WITHOUT_VNNI: "Beside the peers, on a processor without VNNI",
}
_WRITERS = {
    OPENVINO: "`make bench-quantize`",
    ONNXRUNTIME: "`python -m benchmarks.peers --runtime onnxruntime`",
}


def sections(figures: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the lines of each section that something was measured for."""
    packaged = {network.name for network in PACKAGE_NETWORKS}
    known = {name: case for name, case in figures["cases"].items() if name not in packaged}
    foreign = {name: case for name, case in figures["cases"].items() if name in packaged}
    costs = [(case.title, figures[case.name]) for case in COST_CASES if case.name in figures]
    if figures.get("runtime") == ONNXRUNTIME:
        return {ON_ONNXRUNTIME: render(ON_ONNXRUNTIME, figures, figures["cases"])}
    lines = {}
    if known or costs:
        section = WITHOUT_VNNI if figures.get("overflows") else OURS_TO_TUNE
        lines[section] = render(section, figures, known)
        for title, cost in costs:
            lines[section] += _cost_lines(title, cost)
    if foreign:
        lines[PACKAGES] = render(PACKAGES, figures, foreign)
    return lines


def render(section: str, figures: Mapping[str, Any], cases: Mapping[str, Any]) -> list[str]:
    """Returns the lines of a section about some cases."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    runtime = figures.get("runtime", OPENVINO)
    lines = [
        f"## {_TITLES[section]}",
        "",
        f"Written by {_WRITERS[runtime]}: every tool gets the same float network and the same "
        "calibration pictures, and all files are judged on pictures that no tool was given. SQNR "
        "is the mean over pictures (all pooled) in dB, per output: *said* is what the file says "
        f"(onnxruntime without any optimization), *run* what {TITLES[runtime]} makes of it, each "
        f"against the float network on the same runtime. Times are {TITLES[runtime]}'s with 2 "
        "threads, batch 1: the files take turns of three inferences, of which the first, with the "
        "caches full of another file, does not count, in several processes; the smallest is shown, "
        "how many times faster than float that is, and the smallest processor time over all "
        f"threads. {_JUDGED_RUN if figures.get('overflows') else _JUDGED} {SECONDS}",
        "",
        f"{figures['date']}; {figures['machine']}; {versions}.",
        "",
    ]
    for name, case in cases.items():
        lines += _case_lines(name, case, TITLES[runtime])
    return lines


def case_heading(name: str, case: Mapping[str, Any]) -> list[str]:
    """Returns the lines above a case's table."""
    return [
        f"### {name}",
        "",
        f"{case['split'][0].upper()}{case['split'][1:]}. Float: {case['float_ms']:.2f} ms. "
        f"Other processes took {case['others']:.0%} of the processors' time meanwhile.",
        "",
    ]


def waited_s(cost: Mapping[str, float]) -> float:
    """Returns how long a tool's process took, its imports included."""
    return cost["seconds"] + cost["import_s"]


def seconds_cell(cost: Mapping[str, Any]) -> str:
    """Returns how long a tool took; those of another load are marked."""
    star = "*" if cost.get("is_reused") else ""
    return f"{waited_s(cost):.1f} ({cost['seconds']:.1f}){star}"


def _case_lines(name: str, case: Mapping[str, Any], runtime: str) -> list[str]:
    lines = [
        *case_heading(name, case),
        "| file | said | run | ms | CPU ms | seconds | peak MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for file, row in case["files"].items():
        if "failure" in row:
            lines.append(f"| {file} | failed: {_cell(row['failure'])} | | | | | |")
            continue
        lines.append(
            f"| {file} | {_quality(row['said'])} | {_quality(row['run'])} | {row['min_ms']:.2f} "
            f"({case['float_ms'] / row['min_ms']:.2f}x) | {row['cpu_ms']:.2f} | "
            f"{seconds_cell(row)} | {row['peak_mib']:.0f} |"
        )
    if any(row.get("is_reused") for row in case["files"].values()):
        lines += ["", "(*) made in an earlier run under another load: not to be compared."]
    left = [file for file, verdict in case["standing"].items() if not verdict["beaten_by"]]
    summary = (
        f"Of {len(case['standing'])} files of the peers, {len(left)} are left standing; one falls "
        f"to a file of framefit that is at most {SLOWER_ALLOWED - 1:.0%} slower, {BETTER_DB:g} dB "
        "better over the outputs (both pooled and as the mean), and worse on none."
    )
    if case["judged_by"] == CPU_TIME:
        summary += (
            " The machine had other work, so that latencies say little: fast is here what takes "
            "little processor time."
        )
    summary += f" {_misread_line(find_misread(case['files']), runtime)}"
    return [*lines, "", summary, "", *_standing_lines(case["standing"]), ""]


def _misread_line(misread: Mapping[str, bool], runtime: str) -> str:
    ours = [is_misread for file, is_misread in misread.items() if file.startswith(OURS)]
    peers = [is_misread for file, is_misread in misread.items() if not file.startswith(OURS)]
    return (
        f"With at least {BETTER_DB:g} dB less than they say {runtime} computes {sum(peers)} of "
        f"{len(peers)} of the peers' files, and {sum(ours)} of framefit's {len(ours)}."
    )


def _standing_lines(standing: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    for file, verdict in standing.items():
        figures = (
            f"{verdict['gain_db']:+.1f} dB (worst output {verdict['worst_output_db']:+.1f}), "
            f"{verdict['time_ratio']:.2f} times its latency "
            f"({verdict['cpu_ratio']:.2f} times its CPU time)"
        )
        if verdict["beaten_by"]:
            yield f"* {file}: beaten by *{verdict['beaten_by']}*: {figures}."
        else:
            yield f"* {file}: **stands**; closest is *{verdict['closest']}*: {figures}."


def _cost_lines(title: str, cost: Mapping[str, Any]) -> list[str]:
    lines = [
        f"### {title}",
        "",
        f"{cost['what']}; each tool with its own defaults, framefit also without "
        "timing the result on the target, which no other does; one after the other.",
        "",
        "| tool | seconds | CPU seconds, imports included | peak MiB |",
        "|---|---|---|---|",
    ]
    for name, row in cost["files"].items():
        if "failure" in row:
            lines.append(f"| {name} | failed: {_cell(row['failure'])} | | |")
        else:
            lines.append(
                f"| {name} | {seconds_cell(row)} | {row['cpu_s']:.1f} | {row['peak_mib']:.0f} |"
            )
    return [*lines, "", *_cost_summary(cost["files"]), ""]


def _cost_summary(rows: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    made = {name: row for name, row in rows.items() if "failure" not in row}
    peers = [row for name, row in made.items() if not name.startswith(OURS)]
    if not peers:
        return
    for name, row in made.items():
        if name.startswith(OURS):
            waited = waited_s(row) / min(map(waited_s, peers))
            worked = row["seconds"] / min(peer["seconds"] for peer in peers)
            peak = row["peak_mib"] / min(peer["peak_mib"] for peer in peers)
            yield (
                f"* {name}: {waited:.2f} times the time of the fastest peer (goal: at most 2; "
                f"without imports {worked:.2f}), {peak:.2f} times the smallest peak memory of the "
                "peers' (goal: at most 1)."
            )


def _quality(outputs: Mapping[str, Any]) -> str:
    if "failure" in outputs:
        return _cell(outputs["failure"])
    return "; ".join(
        f"{name} {value['sqnr_mean_db']:.1f} ({value['sqnr_db']:.1f})"
        for name, value in outputs.items()
    )


def _cell(text: str) -> str:
    return text.replace("|", "/")
