"""Pruning to a latency in INT8, beside pruning to one in float and quantizing afterwards.

    python -m benchmarks.prune_int8 [--steps 60] [--network road|crops]

The first network is pruned until its INT8 form takes a share of the original's INT8 latency. The
others are pruned in float: to the same share, as one would without knowing more, and then on until
their INT8 form is as fast as the first. All are distilled alike; figures are those of the float
weights, latencies those of the INT8 forms, measured in turns at the end.
"""

import argparse
import json
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from torch import nn

from artifacts.atomic import write_json, write_text
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section
from benchmarks.prune_cases import CASES, PruneCase, prune_to_speed, repair
from compress.errors import LatencyError
from framefit.exported_clock import ExportedClock
from framefit.exported_module import Exporter
from framefit.network_clock import NetworkClock

OUT = Path("out/bench/prune_int8.json")
FOLDER = OUT.with_suffix("")
PAGE, SECTION = Path("docs/pruning.md"), "prune_int8"
RUNTIME, SHARE = "openvino", 0.6
WITHIN, TRIALS = 0.03, 5
"""How near in latency is as fast, and how many speeds in float are tried for it."""
OURS, ONCE, SEARCHED = "to the INT8 latency", "to that share in float", "in float, until as fast"


class Pruner:
    """Prunes one network by its latency in float or in INT8.

    Args:
        case: the network.
    """

    def __init__(self, case: PruneCase) -> None:
        self._case = case
        shapes = {"input": case.shape}
        feeds = [{"input": image.numpy()} for (image,) in case.data.calibration[:2]]
        self.in_int8 = Exporter(shapes, RUNTIME, feeds)
        self._in_float = Exporter(shapes, RUNTIME)
        self._clock = ExportedClock(case.module, self.in_int8)

    def prune(self, speed_up: float, *, is_int8: bool) -> nn.Module:
        """Returns the network pruned until it is so many times as fast."""
        export = self.in_int8 if is_int8 else self._in_float
        return prune_to_speed(self._case, speed_up, export).module

    def share(self, module: nn.Module) -> float:
        """Returns the share of the original's INT8 latency that a network takes in INT8."""
        found_ms, original_ms = self._clock(module)
        return found_ms / original_ms


def compare(case: PruneCase, steps: int) -> dict[str, Any]:
    """Prunes in each way, repairs, and measures all; returns the figures."""
    began = time.monotonic()
    pruner = Pruner(case)
    modules = {OURS: pruner.prune(1 / SHARE, is_int8=True)}
    wanted = pruner.share(modules[OURS])
    print(case.name, OURS, wanted, flush=True)
    trials = _search(pruner, wanted)
    modules[ONCE] = trials[0][2]
    nearest = min(trials, key=lambda trial: abs(trial[1] / wanted - 1))
    modules[SEARCHED] = nearest[2]
    rows: dict[str, dict[str, Any]] = {
        "original": {"after": case.measure(case.export(case.module))}
    }
    models = {"original": pruner.in_int8(case.module)}
    for name, module in modules.items():
        rows[name] = {"before": case.measure(case.export(module))}
        repair(case, module, steps)
        rows[name]["after"] = case.measure(case.export(module))
        rows[name]["parameters"] = sum(value.numel() for value in module.parameters())
        models[name] = pruner.in_int8(module)
    rows[ONCE]["speed_up"], rows[SEARCHED]["speed_up"] = trials[0][0], nearest[0]
    for name, ms in zip(models, NetworkClock(RUNTIME)(list(models.values())), strict=True):
        rows[name]["ms"] = ms
    seconds = round(time.monotonic() - began)
    tried = [[speed_up, share] for speed_up, share, _ in trials]
    return {"what": case.what, "seconds": seconds, "rows": rows, "trials": tried}


def _search(pruner: Pruner, wanted: float) -> list[tuple[float, float, nn.Module]]:
    """Returns the networks pruned in float that were tried: speed-up, share in INT8, network."""
    trials: list[tuple[float, float, nn.Module]] = []
    speed_up, slow, fast = 1 / SHARE, 1.0, 0.0
    for _ in range(TRIALS):
        try:
            module = pruner.prune(speed_up, is_int8=False)
        except LatencyError as error:
            print(f"  {speed_up:.2f}x in float: {error}", flush=True)
            fast = speed_up
        else:
            share = pruner.share(module)
            print(f"  {speed_up:.2f}x in float: {share:.3f} in INT8", flush=True)
            trials.append((speed_up, share, module))
            if abs(share / wanted - 1) <= WITHIN:
                break
            if share > wanted:
                slow = speed_up
            else:
                fast = speed_up
        speed_up = (slow * fast) ** 0.5 if fast else speed_up * 1.5
    return trials


def render(figures: Mapping[str, Any]) -> list[str]:
    """Returns the lines of the page's section."""
    lines = [
        f"`python -m benchmarks.prune_int8`, {figures['date']}; {figures['machine']}; goal: "
        f"{SHARE:.0%} of the original's INT8 latency; {figures['steps']} steps of distillation "
        "without labels for each. Latencies in INT8, figures of the float weights before → after "
        "the repair.",
        "",
    ]
    for name, case in figures["networks"].items():
        lines += [f"**{name}**: {case['what']}.", "", *_table(case), ""]
    return lines[:-1]


def _table(case: Mapping[str, Any]) -> list[str]:
    names = list(case["rows"]["original"]["after"])
    original_ms = case["rows"]["original"]["ms"]
    columns = ["pruned", "INT8, ms", "of the original", "times as fast in float", "weights", *names]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name, row in case["rows"].items():
        cells = [name, f"{row['ms']:.3g}", f"{row['ms'] / original_ms:.3f}"]
        cells.append(f"{row['speed_up']:.2f} asked" if "speed_up" in row else "")
        cells.append(f"{row['parameters'] / 1e6:.2f} M" if "parameters" in row else "")
        for figure in names:
            after = f"{row['after'][figure]:.4f}"
            cells.append(f"{row['before'][figure]:.4f} → {after}" if "before" in row else after)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measures, and writes the raw figures and the page's section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=60, help="of the repair, for each network")
    parser.add_argument("--network", choices=list(CASES), help="only this one")
    parser.add_argument("--no-page", action="store_true", help=f"leave {PAGE} as it is")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "steps": arguments.steps,
        "networks": {},
    }
    for name in [arguments.network] if arguments.network else CASES:
        figures["networks"][name] = compare(CASES[name](FOLDER), arguments.steps)
        write_json(OUT, figures)
    lines = render(figures)
    if not arguments.no_page:
        write_text(PAGE, replace_section(PAGE.read_text(encoding="utf-8"), SECTION, lines))
    print(json.dumps(figures["networks"], indent=1), *lines, sep="\n")


if __name__ == "__main__":
    main()
