import pytest

from benchmarks.peers.standing import CPU_TIME, find_misread, judge_peer


def file(ms: float, said: dict[str, float], run: dict[str, float] | None = None) -> dict:
    def outputs(values: dict[str, float]) -> dict:
        return {name: {"sqnr_db": db, "sqnr_mean_db": db + 1} for name, db in values.items()}

    return {"min_ms": ms, "cpu_ms": 2 * ms, "said": outputs(said), "run": outputs(run or said)}


def test_faster_and_better_on_every_output_beats() -> None:
    verdict = judge_peer(file(2.0, {"a": 20, "b": 30}), {"ours": file(2.05, {"a": 24, "b": 33})})
    assert verdict["beaten_by"] == "ours"
    assert verdict["gain_db"] == pytest.approx(3.5)
    assert verdict["worst_output_db"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    "ours",
    [
        file(2.2, {"a": 40, "b": 40}),
        file(1.0, {"a": 22, "b": 32}),
        file(1.0, {"a": 60, "b": 29}),
        file(1.0, {"a": 40, "b": 40}, run={"a": 5, "b": 40}),
    ],
    ids=["slower", "under 3 dB", "one output worse", "said but not run"],
)
def test_a_peer_stands_where_one_condition_fails(ours: dict) -> None:
    verdict = judge_peer(file(2.0, {"a": 20, "b": 30}), {"ours": ours})
    assert verdict["beaten_by"] is None
    assert verdict["closest"] == "ours"


def test_the_peer_gets_the_better_of_said_and_run() -> None:
    peer = file(2.0, {"a": 20}, run={"a": -5})
    assert judge_peer(peer, {"ours": file(1.0, {"a": 10})})["beaten_by"] is None


def test_a_file_that_only_openvino_reads_is_judged_by_its_run() -> None:
    peer = file(2.0, {"a": 20}) | {"said": {"failure": "not ONNX"}}
    assert judge_peer(peer, {"ours": file(1.0, {"a": 24})})["beaten_by"] == "ours"


def test_the_closest_file_is_named() -> None:
    ours = {"slow": file(4.0, {"a": 40}), "near": file(2.0, {"a": 22.9})}
    assert judge_peer(file(2.0, {"a": 20}), ours)["closest"] == "near"


def test_on_a_busy_machine_processor_time_says_what_is_fast() -> None:
    peer, ours = file(2.0, {"a": 20}), file(1.0, {"a": 30}) | {"cpu_ms": 9.0}
    assert judge_peer(peer, {"ours": ours})["beaten_by"] == "ours"
    assert judge_peer(peer, {"ours": ours}, CPU_TIME)["beaten_by"] is None


def test_files_that_openvino_computes_otherwise_are_found() -> None:
    only_openvino = file(3.0, {"a": 20.0}) | {"said": {"failure": "not ONNX"}}
    found = find_misread(
        {
            "same": file(3.0, {"a": 20.0, "b": 30.0}),
            "little": file(3.0, {"a": 20.0, "b": 30.0}, {"a": 15.0, "b": 30.0}),
            "much": file(3.0, {"a": 20.0, "b": 30.0}, {"a": 14.0, "b": 30.0}),
            "better": file(3.0, {"a": 20.0}, {"a": 40.0}),
            "one runtime": only_openvino,
            "not made": {"failure": "refused"},
        }
    )
    assert found == {"same": False, "little": False, "much": True, "better": False}


def test_where_nothing_else_can_be_computed_only_that_counts() -> None:
    peer, ours = file(2.0, {"a": 40}, run={"a": 20}), {"ours": file(2.0, {"a": 30})}
    assert judge_peer(peer, ours)["beaten_by"] is None
    assert judge_peer(peer, ours, kinds=("run",))["beaten_by"] == "ours"
