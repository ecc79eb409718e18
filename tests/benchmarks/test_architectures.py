import time
from dataclasses import dataclass

import pytest
from torch import nn

from benchmarks.architectures.architecture import Architecture
from benchmarks.architectures.child import measure_architecture
from benchmarks.architectures.other_networks import list_others
from benchmarks.architectures.page import render
from benchmarks.architectures.transformers_networks import list_transformers
from benchmarks.own_processes import run_each

FACTS = {
    "machine": "2 cores",
    "versions": "framefit 0.1.0",
    "packages": "own 1.0",
    "left": ["unseen"],
}


DAY = {"date": "2026-11-28"}


def build_two_heads() -> nn.Module:
    return TwoHeads()


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3)
        )
        self.heads = nn.ModuleList([nn.Conv2d(32, 8, 1), nn.Conv2d(32, 4, 1)])

    def forward(self, picture):
        return [head(self.trunk(picture)) for head in self.heads]


@dataclass(frozen=True)
class Item:
    name: str


def work(item: Item) -> dict[str, object]:
    if item.name == "slow":
        time.sleep(60.0)
    if item.name == "crash":
        raise SystemExit(3)
    return {"name": item.name, "seconds": {"all": 1.0}}


def own(build, name="two heads") -> Architecture:
    return Architecture(package="own", name=name, build=build, shape=(1, 3, 32, 48))


@pytest.mark.timeout(120)
def test_a_network_goes_through_every_stage():
    row = measure_architecture(own(build_two_heads))
    assert "problem" not in row
    assert list(row["seconds"]) == ["build", "export", "quantize", "run", "prune"]
    assert row["layers"] + row["stays_float"] >= 2
    assert len(row["outputs_db"]) == 2
    assert row["macs"][1] < row["macs"][0]
    page = render([row | DAY], FACTS)
    assert "2026-11-28; 2 cores; framefit 0.1.0; own 1.0." in page
    assert "**1 of 1 pass every stage.**" in page
    assert "## own" in page
    assert "## What stops" not in page


def test_what_stops_a_network_is_named_with_its_stage():
    def fail() -> nn.Module:
        raise KeyError("no such encoder")

    row = measure_architecture(own(fail))
    assert row["problem"] == "build: KeyError: 'no such encoder'"
    page = render([row | DAY], FACTS)
    assert "**0 of 1 pass every stage.**" in page
    assert "Not run: unseen." in page
    assert f"* two heads (own): {row['problem']}" in page


def test_the_page_names_what_is_slower_and_what_departs():
    row = {
        "name": "poor",
        "package": "own",
        "layers": 3,
        "stays_float": 1,
        "outputs_db": {"a": 12.0, "b": 30.0},
        "said_db": {"a": 25.0},
        "float_ms": 1.0,
        "int8_ms": 1.1,
        "macs": (100, 40),
    }
    page = render([row | DAY], FACTS)
    assert "more than 2%: 1 (poor)." in page
    assert "computes otherwise: 1 (poor)." in page
    assert "| poor | 3 | 1 | 12.0 | 1.00, 1.10 | 1 | 0.40 |" in page


def test_architectures_have_names_of_their_own_and_need_no_package_to_be_listed():
    names = [item.name for item in (*list_transformers(), *list_others())]
    assert len(names) == len(set(names)) > 100


def test_what_crashes_does_not_stop_the_rest():
    told = []
    crash, good = run_each(work, [Item("crash"), Item("good")], timeout_s=100.0, tell=told.append)
    assert crash["problem"] == "its process died (exit status 3)"
    assert good == {"name": "good", "seconds": {"all": 1.0}}
    assert told == [crash, good]


def test_what_never_ends_does_not_stop_the_rest():
    (slow,) = run_each(work, [Item("slow")], timeout_s=0.01)
    assert slow["problem"] == "not finished in 0 s"
