"""Which of the search's best sets is best on other pictures; a table of docs/quantization.md.

`python -m benchmarks.search_finalists [NETWORK ...]`

The sets that end a search are judged by what the sensitivity matrix adds up, and by the network
once it is quantized, both on calibration pictures. Here all of them are looked at on held-out
pictures. The machines are simulated, as in `benchmarks.simulated_search`, so that each has other
sets.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from artifacts.atomic import write_json, write_text
from benchmarks.marked import replace_section, table_lines
from benchmarks.peers.cases import Case, CaseFiles, Feeds, list_cases, read_feeds
from benchmarks.quantizer_choices import PAGE, RAW
from benchmarks.simulated_search import (
    PREFERRED,
    SAMPLES,
    Network,
    SimulatedMachine,
    SimulatedSearch,
)
from compress.head_judge import HeadJudge
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.search.candidates import mean_db
from compress.quantize.search.stress import enlarge_quarters
from compress.quantize.settings import PREFERENCES, QuantizeSettings
from compress.quantize.streaming import StreamingPass

NETWORKS = ("FastestDet", "UltraFace", "FastestDet, swapped", "UltraFace, swapped")
MACHINES = 4
NOISE = 0.01
SECTION = "search_finalists"
KINDS = ("all INT8", "added up", "measured", "best")


@dataclass
class Finalists:
    """Measures sets of layers in float as the search does, and keeps what others never see.

    Attributes:
        samples: calibrate.
        seen: judges on these and their enlarged quarters.
        unseen: judges on held-out pictures.
        seen_db: of each set that was measured, the mean over heads.
        unseen_db: the same on held-out pictures.
    """

    samples: list[Feeds]
    seen: HeadJudge
    unseen: HeadJudge
    seen_db: dict[frozenset[str], float] = field(default_factory=dict)
    unseen_db: dict[frozenset[str], float] = field(default_factory=dict)

    @classmethod
    def open(cls, case: Case, network: Network) -> "Finalists":
        """Reads a network's pictures."""
        with TemporaryDirectory() as folder:
            files = CaseFiles(Path(folder))
            case.write(files)
            samples = read_feeds(files.calibration)[:SAMPLES]
            held_out = read_feeds(files.held_out)
        model, heads = network.prepared.write_float(), network.matrix.heads
        seen = HeadJudge(model, [*samples, *enlarge_quarters(samples)], heads)
        return cls(samples, seen, HeadJudge(model, held_out, heads))

    def __call__(self, network: PreparedNetwork) -> dict[str, float]:
        """Returns what the search is told."""
        settings = QuantizeSettings(target="openvino", symmetric=False)
        model = network.write_model(StreamingPass(network, settings).run(self.samples))
        head_db = self.seen.measure(model)
        self.seen_db[network.kept] = mean_db(head_db)
        self.unseen_db[network.kept] = mean_db(self.unseen.measure(model))
        return head_db


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    wanted = sys.argv[1:] or NETWORKS
    rows = [row for case in list_cases() if case.name in wanted for row in _measure(case)]
    write_json(RAW.with_name(f"{SECTION}.json"), rows)
    lines = [
        f"Mean over heads of the SQNR on held-out pictures, dB, on average of {MACHINES} simulated "
        "machines.",
        "",
        *table_lines(
            ("network", "--prefer", "all INT8", "best as added up", "best as measured", "best"),
            (
                (row["network"], row["prefer"], *(f"{np.mean(row[kind]):.2f}" for kind in KINDS))
                for row in rows
            ),
        ),
    ]
    write_text(PAGE, replace_section(PAGE.read_text(encoding="utf-8"), SECTION, lines))


def _measure(case: Case) -> Iterator[dict[str, Any]]:
    """Yields, for each preference, the held-out dB of the sets that each rule takes."""
    network = Network.open(case)
    for prefer in PREFERRED:
        row: dict[str, Any] = {"network": case.name, "prefer": prefer}
        found = [_search(case, network, prefer, seed) for seed in range(MACHINES)]
        yield row | {kind: [one[kind] for one in found if one] for kind in KINDS}


def _search(case: Case, network: Network, prefer: str, seed: int) -> dict[str, float]:
    """Returns what each rule takes on one machine; nothing where a single set is fast enough."""
    finalists = Finalists.open(case, network)
    search = SimulatedSearch(
        network.prepared,
        network.decisions,
        SimulatedMachine(network, NOISE, seed),
        PREFERENCES[prefer],
        network.matrix,
        finalists,
    )
    search.choose()
    seen_db, unseen_db = dict(finalists.seen_db), dict(finalists.unseen_db)
    if not unseen_db:
        return {}
    finalists(network.prepared)
    return {
        "all INT8": finalists.unseen_db[frozenset()],
        "added up": unseen_db[max(unseen_db, key=network.predict_db)],
        "measured": unseen_db[max(seen_db, key=lambda kept: seen_db[kept])],
        "best": max(unseen_db.values()),
    }


if __name__ == "__main__":
    main()
