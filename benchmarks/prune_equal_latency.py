"""framefit and Torch-Pruning at equal measured latency, after the same repair.

    python -m benchmarks.prune_equal_latency [--steps 60] [--network road|crops]

framefit prunes to half the float latency on OpenVINO. Torch-Pruning's pruning ratio is searched
until its network is as fast, measured in turns with framefit's. All are then distilled from the
original with the same steps, samples and seed. Torch-Pruning is installed beside framefit once:

    .venv/bin/uv pip install --no-deps --target out/torch_pruning torch-pruning==1.6.1
"""

import argparse
import json
import time
from collections.abc import Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from artifacts.atomic import write_json, write_text
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.prune_cases import CASES, PruneCase, prune_to_speed, repair
from benchmarks.torch_pruning_peer import (
    IMPORTANCES,
    VERSION,
    WITHIN,
    Search,
    TorchPruning,
    open_torch_pruning,
    search_ratio,
)
from framefit.exported_module import Exporter
from framefit.network_clock import NetworkClock

OUT = Path("out/bench/prune_equal_latency.json")
FOLDER = OUT.with_suffix("")
PAGE, SECTION = Path("docs/pruning.md"), "prune_equal_latency"
RUNTIME, SHARE = "openvino", 0.5
OURS = "framefit"
DISTURBED = 0.05
"""Difference of latencies that were equal while searching, from which they were disturbed."""


def compare(case: PruneCase, steps: int) -> dict[str, Any]:
    """Prunes with every tool, repairs, and measures all; returns the figures."""
    clock = NetworkClock(RUNTIME)
    began = time.monotonic()

    def tell(*texts: str) -> None:
        print(f"{case.name} {time.monotonic() - began:4.0f} s:", *texts, flush=True)

    original = case.export(case.module)
    rows: dict[str, dict[str, Any]] = {"float": {"after": case.measure(original)}}
    tell("float", str(rows["float"]["after"]))
    ours, notes = _prune_here(case)
    goal = case.export(ours)
    float_ms, ours_ms = clock([original, goal])
    tell(OURS, f"{ours_ms / float_ms:.3f} of the float latency; {notes or 'no notes'}")
    pruned: dict[str, nn.Module] = {OURS: ours}
    rows[OURS] = {"notes": notes}

    def measure(module: nn.Module) -> float:
        reference_ms, found_ms = clock([goal, case.export(module)])
        return found_ms / reference_ms

    for importance in IMPORTANCES:
        name = f"Torch-Pruning {importance}"
        prune = TorchPruning(case.module, case.example, case.data.importance, importance)
        search = search_ratio(prune, measure, float_ms / ours_ms, partial(tell, name))
        rows[name] = _describe(search)
        if search.module is not None:
            pruned[name] = search.module
    models = {"float": original}
    for name, module in pruned.items():
        rows[name]["before"] = case.measure(case.export(module))
        rows[name]["losses"] = repair(case, module, steps)
        models[name] = case.export(module)
        rows[name]["after"] = case.measure(models[name])
        rows[name]["parameters"] = sum(value.numel() for value in module.parameters())
        tell(name, f"{rows[name]['before']} → {rows[name]['after']}")
    for name, ms in zip(models, clock(list(models.values())), strict=True):
        rows[name]["ms"] = ms
    seconds = round(time.monotonic() - began)
    return {"what": case.what, "seconds": seconds, "rows": rows, "verdicts": judge(case, rows)}


def _prune_here(case: PruneCase) -> tuple[nn.Module, list[str]]:
    """Returns framefit's network at half the float latency, and its notes."""
    result = prune_to_speed(case, 1 / SHARE, Exporter({"input": case.shape}, RUNTIME))
    return result.module, list(result.notes)


def _describe(search: Search) -> dict[str, Any]:
    if search.module is None:
        return {"failure": str(search.trials[-1][1]), "trials": search.trials}
    notes = []
    if abs(search.share - 1) > WITHIN:
        notes.append(f"no ratio was found whose latency is within {WITHIN:.0%} of framefit's")
    errors = sum(isinstance(share, str) for _, share in search.trials)
    if errors:
        notes.append(f"{errors} of {len(search.trials)} ratios failed")
    return {"ratio": search.ratio, "notes": notes, "trials": search.trials}


def judge(case: PruneCase, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns how much better framefit's figures are than each peer's, and its relative latency."""
    ours, verdicts = rows[OURS], {}
    for name, row in rows.items():
        if name in ("float", OURS) or "failure" in row:
            continue
        gains = {
            figure: (row["after"][figure] - value) * (1 if figure in case.lower_is_better else -1)
            for figure, value in ours["after"].items()
        }
        verdicts[name] = {
            "gains": gains,
            "latency": ours["ms"] / row["ms"],
            "is_reached": min(gains.values()) >= 0,
        }
    return verdicts


def render(figures: Mapping[str, Any]) -> list[str]:
    """Returns the lines of the page's section."""
    lines = [
        f"`python -m benchmarks.prune_equal_latency`, {figures['date']}; {figures['machine']}; "
        f"Torch-Pruning {VERSION}, global ranking, rounded to 8, the outputs' layers ignored; "
        f"{figures['steps']} steps of distillation without labels for each, on the same samples.",
        "",
    ]
    for name, case in figures["networks"].items():
        lines += [f"**{name}**: {case['what']}.", "", *_table(case), "", *_list(case), ""]
    return lines[:-1]


def _list(case: Mapping[str, Any]) -> list[str]:
    """Returns the verdicts and the notes."""
    lines = []
    for peer, verdict in case["verdicts"].items():
        gains = ", ".join(f"{figure} {gain:+.4f}" for figure, gain in verdict["gains"].items())
        word = "at least as good" if verdict["is_reached"] else "**not at least as good**"
        lines.append(
            f"* framefit beside {peer}, after the repair: {word} ({gains}; above 0 is better), "
            f"at {verdict['latency']:.3f} times its latency."
        )
        if abs(verdict["latency"] - 1) > DISTURBED:
            lines.append(
                "* That is no equal latency: measured again at the end, they differ by more than "
                f"{DISTURBED:.0%}. The machine was disturbed."
            )
    for name, row in case["rows"].items():
        lines += [f"* {name}: {note}" for note in row.get("notes", [])]
    return lines


def _table(case: Mapping[str, Any]) -> list[str]:
    names = list(case["rows"]["float"]["after"])
    float_ms = case["rows"]["float"]["ms"]
    columns = ["network", "ms", "of float", "weights", *names]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name, row in case["rows"].items():
        if "failure" in row:
            cells = [name, f"failed: {row['failure'].replace('|', '/')}"]
        else:
            cells = [name, f"{row['ms']:.3g}", f"{row['ms'] / float_ms:.3f}"]
            cells.append(f"{row['parameters'] / 1e6:.2f} M" if "parameters" in row else "")
            cells += [_change(row, figure) for figure in names]
        lines.append(f"| {' | '.join(cells + [''] * (len(columns) - len(cells)))} |")
    return lines


def _change(row: Mapping[str, Any], figure: str) -> str:
    after = f"{row['after'][figure]:.4f}"
    return f"{row['before'][figure]:.4f} → {after}" if "before" in row else after


def main() -> None:
    """Measures, and writes the raw figures and the page's section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=60, help="of the repair, for each network")
    parser.add_argument("--network", choices=list(CASES), help="only this one")
    parser.add_argument("--out", type=Path, default=OUT, help="file of the figures")
    parser.add_argument("--no-page", action="store_true", help=f"leave {PAGE} as it is")
    arguments = parser.parse_args()
    open_torch_pruning()
    known = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    is_same = known.get("steps") == arguments.steps and arguments.network
    figures: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "steps": arguments.steps,
        "networks": known["networks"] if is_same else {},
    }
    for name in [arguments.network] if arguments.network else CASES:
        figures["networks"][name] = compare(CASES[name](FOLDER), arguments.steps)
        write_json(arguments.out, figures)
    lines = render(figures)
    if not arguments.no_page:
        write_text(PAGE, replace_section(PAGE.read_text(encoding="utf-8"), SECTION, lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
