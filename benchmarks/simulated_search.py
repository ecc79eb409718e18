"""What the search for layers in float misses, on simulated machines; a table of the page.

`python -m benchmarks.simulated_search`

A real machine does not tell what the best choice would have been; a simulated one does. Each layer
costs what its work says times a factor drawn from a lognormal distribution (one in seven is faster
in float), passing between float and INT8 costs a drawn share, and every timing has noise. The
sensitivity matrices are those of real networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx

from artifacts.atomic import write_json, write_text
from artifacts.onnx_file import load_onnx
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, list_cases, read_feeds
from benchmarks.quantizer_choices import PAGE, RAW
from compress.quantize.decisions import Decisions
from compress.quantize.prepare import prepare_network
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.candidates import (
    count_layer_macs,
    gain_db,
    list_edges,
    mean_db,
    predict_db,
)
from compress.quantize.search.precision import PrecisionSearch
from compress.quantize.search.sensitivity import SensitivityMatrix, measure_layers
from compress.quantize.search.time_model import TimeModel
from compress.quantize.settings import PREFERENCES, QuantizeSettings
from compress.quantize.streaming import StreamingPass

NETWORKS = ("demo", "FastestDet", "UltraFace")
PREFERRED = ("balanced", "quality")
NOISES = (0.005, 0.015)
SAMPLES = 8
MACHINES = 40
SPREAD = 1.2
"""Standard deviation of the logarithm of what a layer costs beside its work."""
SECTION = "simulated_search"


class SimulatedSearch(PrecisionSearch):
    """A search whose clock is given the sets instead of the networks."""

    def _write(self, kept: frozenset[str]) -> Any:
        return kept


class KnownCosts(TimeModel):
    """A model that need not learn.

    Args:
        costs_ms: [layers + 1], of each layer, and of passing all values between float and INT8.
    """

    def __init__(
        self, layers: Sequence[str], edges: Sequence[tuple[str, str, int]], costs_ms: np.ndarray
    ) -> None:
        super().__init__(layers, np.ones(len(layers)), edges, 1.0)
        self._costs_ms = costs_ms


class SimulatedMachine:
    """Times sets of layers in float; INT8 saves 1 ms.

    Args:
        network: whose layers they are.
        noise: standard deviation of a timing, as a share of it.
        seed: of everything that is drawn.
    """

    def __init__(self, network: "Network", noise: float, seed: int) -> None:
        self._rng, self._noise = np.random.default_rng(seed), noise
        layers = network.matrix.layers
        macs = count_layer_macs(network.prepared, layers)
        costs = (0.5 * macs / macs.sum() + 0.5 / len(macs)) * self._rng.lognormal(
            0.0, SPREAD, len(macs)
        )
        costs *= self._rng.choice([-0.3, 1.0], len(macs), p=[0.15, 0.85])
        cut_ms = self._rng.uniform(0.1, 1.0)
        costs_ms = np.append(costs / costs.sum(), cut_ms)
        self.costs = KnownCosts(layers, list_edges(network.prepared), costs_ms)
        self.int8_ms = 1.0 / self._rng.uniform(0.3, 1.5)
        self.float_ms = self.int8_ms + 1.0

    def latency_ms(self, kept: frozenset[str]) -> float:
        """Returns the latency with these layers in float, without noise."""
        return self.int8_ms + self.costs.predict_ms(kept)

    def __call__(self, networks: Sequence[Any]) -> list[float]:
        """Returns the latencies as a clock does: of the float network, then of sets."""
        exact = [
            self.float_ms if isinstance(item, onnx.ModelProto) else self.latency_ms(item)
            for item in networks
        ]
        return [ms * (1 + self._noise * self._rng.standard_normal()) for ms in exact]


@dataclass(frozen=True)
class Network:
    """What the search needs of a network."""

    name: str
    prepared: PreparedNetwork
    decisions: Decisions
    matrix: SensitivityMatrix

    @classmethod
    def open(cls, case: Case) -> "Network":
        """Measures the sensitivity matrix of a network."""
        with case.written() as files:
            samples = read_feeds(files.calibration)[:SAMPLES]
            settings = QuantizeSettings(target="openvino", symmetric=False)
            prepared = prepare_network(load_onnx(files.model), samples, settings)
        decisions = StreamingPass(prepared, settings).run(samples)
        (matrix,) = measure_layers(prepared, decisions, [samples])
        return cls(case.name, prepared, decisions, matrix)

    def predict_db(self, kept: frozenset[str]) -> float:
        """Returns the quality that the search maximizes."""
        return mean_db(predict_db(self.matrix, kept))


def main() -> None:
    """Simulates, writes the raw figures and the section of the page."""
    networks = [Network.open(case) for case in list_cases() if case.name in NETWORKS]
    rows = [
        {"network": network.name, "prefer": prefer, "noise": noise}
        | _simulate(network, prefer, noise)
        for network in networks
        for prefer in PREFERRED
        for noise in NOISES
    ]
    write_json(RAW.with_name(f"{SECTION}.json"), rows)
    lines = [
        f"{MACHINES} simulated machines each; quality lost against the best choice that knows all "
        "costs: the mean (the worst).",
        "",
        *table_lines(
            (
                "network",
                "--prefer",
                "noise of a timing",
                "quality lost, dB",
                "time beside the limit",
            ),
            (
                (
                    row["network"],
                    row["prefer"],
                    f"{row['noise']:.1%}",
                    f"{np.mean(row['lost_db']):.1f} ({np.max(row['lost_db']):.1f})",
                    f"{np.mean(row['time']):.2f} ({np.max(row['time']):.2f})",
                )
                for row in rows
            ),
        ),
    ]
    write_text(PAGE, replace_section(PAGE.read_text(encoding="utf-8"), SECTION, lines))


def _simulate(network: Network, prefer: str, noise: float) -> dict[str, list[float]]:
    """Returns, for each machine, what was lost in dB and the time spent beside the limit."""
    lost_db, time = [], []
    for seed in range(MACHINES):
        machine = SimulatedMachine(network, noise, seed)
        search = SimulatedSearch(
            network.prepared, network.decisions, machine, PREFERENCES[prefer], network.matrix
        )
        choice = search.choose()
        fastest_ms = min(machine.latency_ms(item.float_nodes) for item in choice.tried)
        limit_ms = PREFERENCES[prefer].limit_ms(fastest_ms, machine.float_ms)
        lost_db.append(_best_db(network, machine, limit_ms) - choice.chosen.quality_db)
        time.append(machine.latency_ms(choice.chosen.float_nodes) / limit_ms)
    return {"lost_db": lost_db, "time": time}


def _best_db(network: Network, machine: SimulatedMachine, limit_ms: float) -> float:
    """Returns the best quality of the sets that are proposed by who knows all costs."""
    worth = partial(gain_db, network.matrix.head_noise())
    budgets = (limit_ms - machine.int8_ms) * np.linspace(0.5, 1.0, 6)
    sets = [machine.costs.spend(worth, budget) for budget in budgets]
    return max(network.predict_db(k) for k in sets if machine.latency_ms(k) <= limit_ms + 1e-9)


if __name__ == "__main__":
    main()
