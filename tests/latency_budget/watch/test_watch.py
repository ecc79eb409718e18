import io
import json
import os
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError, UnavailableError
from framefit.cli import main
from framefit.watch_job import watch
from latency_budget.budget import Budget
from latency_budget.clock import ManualClock
from latency_budget.statistics import bound_ns, percentile_ns
from latency_budget.watch.ring_file import RingReader, RingWriter
from latency_budget.watch.sample import Sample, parse_line
from latency_budget.watch.sources import LineSource, RingSource, open_source
from latency_budget.watch.watcher import Watcher

MS = 1_000_000
BUDGET = Budget(stages={"network": 22.0})


def lines(latencies_ms):
    return "".join(
        json.dumps({"latency_ms": value, "network_ms": value - 2} if value else {"dropped": 1})
        + "\n"
        for value in latencies_ms
    )


def test_figures_are_those_of_the_same_frames_judged_at_once():
    rng = np.random.default_rng(0)
    values = rng.normal(20, 1, 1000)
    values[[100, 101, 102, 500]] = 40
    watcher = Watcher(BUDGET)
    for line in lines(values).splitlines():
        watcher.add(parse_line(line))
    watcher.add(Sample(None))
    figures = watcher.figures()
    ordered = np.sort(np.append(np.round(values * MS).astype(np.int64), np.iinfo(np.int64).max))
    assert (figures.frames, figures.misses, figures.dropped) == (1001, 5, 1)
    assert figures.longest_run == 3
    assert figures.p50_ms == percentile_ns(ordered, 0.5) / 1e6
    assert figures.p99_ms == percentile_ns(ordered, 0.99) / 1e6
    assert figures.p99_upper_ms == bound_ns(ordered, 0.99, 0.95, upper=True) / 1e6
    assert figures.stages_ms["network"][0] == pytest.approx(18, abs=0.2)


def test_percentiles_forget_and_counts_do_not():
    watcher = Watcher(BUDGET, window=200)
    for value in [50] * 10 + [20] * 300:
        watcher.add(Sample(value * MS))
    figures = watcher.figures()
    assert (figures.misses, figures.longest_run, figures.window_misses) == (10, 10, 0)
    assert (figures.window, figures.p99_ms) == (200, 20.0)


def test_too_few_frames_have_no_percentile():
    watcher = Watcher(BUDGET)
    watcher.add(Sample(20 * MS))
    assert watcher.figures().p99_ms is None
    assert watcher.figures().p99_upper_ms is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[1]",
        "{",
        '{"latency_ms": -1}',
        '{"latency_ms": "9"}',
        '{"latency_ms": NaN}',
        '{"latency_ms": true}',
        '{"network_ms": 3}',
        '{"latency_ms": 1e300}',
        f'{{"latency_ns": {"9" * 400}}}',
        '{"latency_ms": 20, "latency_ms": 90}',
        '{"latency_ms": 20, "dropped": "perhaps"}',
    ],
)
def test_lines_that_are_no_frame_are_counted_and_passed_over(line):
    source = LineSource(io.StringIO(f'{line}\n{{"latency_us": 20000}}\n'))
    found = [sample for batch in source.batches() for sample in batch]
    assert found == [Sample(20 * MS)]
    assert source.unreadable == (1 if line else 0)


@pytest.mark.parametrize("flag", ["1", "true", '"yes"', '"1"', "1.0"])
def test_a_frame_is_dropped_in_every_form_that_recorded_samples_have(flag):
    source = LineSource(io.StringIO(f'{{"latency_ms": 20, "dropped": {flag}}}\n'))
    assert [sample for batch in source.batches() for sample in batch] == [Sample(None)]


@pytest.mark.parametrize(
    ("numbers", "lost"),
    [((0, 1, 2), 0), ((7, 8, 11, 12), 2), ((5, 0, 1), 0), ((1, None, 9), 0), ((3, True, 1.5), 0)],
)
def test_frames_that_the_numbers_leave_out_are_lost(numbers, lost):
    lines = [json.dumps({"latency_ms": 20, "frame": number}) for number in numbers]
    source = LineSource(io.StringIO("\n".join(lines)))
    assert len([sample for batch in source.batches() for sample in batch]) == len(numbers)
    assert (source.lost, source.unreadable) == (lost, 0)


@pytest.mark.parametrize(
    ("numbers", "backward"),
    [((0, 1, 2), 0), ((7, 8, 8, 9), 1), ((5, 7, 6, 8), 1), ((5, 0, 1), 1), ((4, None, 3), 0)],
)
def test_numbers_that_do_not_grow_are_told(numbers, backward, tmp_path, budget, capsys):
    path, out = tmp_path / "frames.jsonl", tmp_path / "figures.json"
    rows = [json.dumps({"latency_ms": 20, "frame": number}) for number in numbers]
    path.write_text("\n".join(rows))
    assert main(["watch", str(path), "--budget", budget, "--no-follow", "--json", str(out)]) == 0
    assert ("did not grow" in capsys.readouterr().out) == bool(backward)
    figures = json.loads(out.read_text())
    assert (figures["backward"], figures["unreadable"]) == (backward, 0)


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), max_size=10))
def test_no_text_ends_the_watch(texts):
    source = LineSource(io.StringIO("\n".join(texts)))
    assert all(isinstance(batch, list) for batch in source.batches())


def test_a_growing_file_is_followed_and_half_a_line_waited_for(tmp_path):
    path = tmp_path / "frames.jsonl"
    path.write_text('{"latency_ms": 20}\n{"laten')
    grow = iter(['cy_ms": 21}\n', '{"latency_ms": 22}\n'])

    def wait(seconds):
        with path.open("a") as stream:
            stream.write(next(grow))

    source = LineSource(path.open(), follow=True, wait=wait)
    found = []
    for batch in source.batches():
        found += [sample.latency_ns for sample in batch]
        if len(found) == 3:
            break
    assert found == [20 * MS, 21 * MS, 22 * MS]
    source.close()


def test_the_ring_gives_what_was_written(tmp_path):
    path = tmp_path / "ring"
    with RingWriter(path, ("prepare", "network"), slots=16) as writer:
        reader = RingReader(path)
        assert reader.poll() == []
        writer.write(20 * MS, (2 * MS, 18 * MS))
        writer.write(None)
        assert reader.poll() == [
            Sample(20 * MS, {"prepare": 2 * MS, "network": 18 * MS}),
            Sample(None),
        ]
        assert reader.poll() == []
        reader.close()


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=12))
def test_a_slow_reader_loses_frames_and_counts_each(tmp_path_factory, bursts):
    path = tmp_path_factory.mktemp("ring") / "ring"
    with RingWriter(path, slots=16) as writer:
        reader = RingReader(path)
        seen, number = [], 0
        for burst in bursts:
            for _ in range(burst):
                number += 1
                writer.write(number)
            seen += [sample.latency_ns for sample in reader.poll()]
        assert seen == sorted(set(seen))
        assert len(seen) + reader.lost == number
        assert not number or seen[-1] == number
        reader.close()


def test_no_frame_is_torn_while_another_thread_writes(tmp_path):
    path = tmp_path / "ring"
    with RingWriter(path, ("a", "b"), slots=64) as writer:
        reader = RingReader(path)
        done = threading.Event()

        def run():
            for index in range(1, 50_001):
                writer.write(index, (2 * index, 3 * index))
            done.set()

        thread = threading.Thread(target=run)
        thread.start()
        found = []
        while not done.is_set():
            found += reader.poll()
        thread.join()
        found += reader.poll()
        reader.close()
    assert found
    assert all(s.stages_ns == {"a": 2 * s.latency_ns, "b": 3 * s.latency_ns} for s in found)
    assert len(found) + reader.lost == 50_000


@pytest.mark.parametrize("damage", [b"", b"FFRING01", b"FFRING01" + b"\xff" * 600, b"x" * 700])
def test_a_file_that_is_no_ring_is_refused(tmp_path, damage):
    path = tmp_path / "ring"
    path.write_bytes(damage)
    with pytest.raises(InputError):
        RingReader(path)


def run_watch(text, **options):
    shown = []
    source = LineSource(io.StringIO(text))
    outcome = watch(
        source,
        Watcher(BUDGET),
        clock=ManualClock(),
        show=lambda figures, _: shown.append(figures),
        **options,
    )
    return outcome, shown


def test_it_stops_at_the_first_overrun_with_a_snapshot(tmp_path):
    path = tmp_path / "snapshot.json"
    outcome, shown = run_watch(
        lines([20] * 150 + [40] + [20] * 50), is_stopping=True, snapshot=path
    )
    assert outcome.overrun_frame == 150
    assert outcome.figures.frames == 151
    assert shown[-1] == outcome.figures
    content = json.loads(path.read_text())
    assert content["overrun_frame"] == content["frames"][-1]["frame"] == 150
    assert [frame["missed"] for frame in content["frames"]] == [False] * 119 + [True]
    assert content["frames"][-1]["stages_ns"] == {"network": 38 * MS}


def test_without_being_asked_it_goes_on():
    outcome, _ = run_watch(lines([40, 0, 20]))
    assert outcome.overrun_frame is None
    assert (outcome.figures.misses, outcome.figures.dropped) == (2, 1)


def test_prometheus_sees_every_frame():
    pytest.importorskip("prometheus_client", reason="the extra 'watch' is not installed")
    from latency_budget.watch.prometheus import PrometheusEndpoint

    endpoint = PrometheusEndpoint(33.0, 0)
    try:
        out_of_order = '{"latency_ms": 20, "frame": 9}\n{"latency_ms": 20, "frame": 3}\n'
        text = lines([20] * 398 + [40, 0]) + "noise\n" + out_of_order
        run_watch(text, endpoint=endpoint)
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as reply:
            text = reply.read().decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert float(values["framefit_frames_total"]) == 402
        assert float(values["framefit_frames_missed_total"]) == 2
        assert float(values["framefit_frames_dropped_total"]) == 1
        assert float(values['framefit_frame_latency_seconds_bucket{le="0.033"}']) == 400
        assert float(values["framefit_p50_seconds"]) == 0.02
        assert float(values["framefit_frames_unreadable"]) == 1
        assert float(values["framefit_frame_numbers_backward"]) == 1
        assert float(values["framefit_frames_lost"]) == 0
        with pytest.raises(UnavailableError, match="cannot be opened"):
            PrometheusEndpoint(33.0, endpoint.port)
    finally:
        endpoint.close()


@pytest.fixture
def budget(tmp_path):
    path = tmp_path / "budget.toml"
    path.write_text("[frame]\nrate_hz = 30\ndeadline_ms = 33.0\n")
    return str(path)


def test_the_command_reads_a_file(tmp_path, budget, capsys):
    path = tmp_path / "frames.jsonl"
    path.write_text(lines([20] * 300) + "noise\n")
    out = tmp_path / "figures.json"
    code = main(["watch", str(path), "--budget", budget, "--no-follow", "--json", str(out)])
    assert code == 0
    assert "300 frames, 0 missed" in capsys.readouterr().out
    assert json.loads(out.read_text())["p50_ms"] == 20.0


def test_the_command_reads_a_ring_and_stops_with_code_1(tmp_path, budget, capsys):
    path = tmp_path / "ring"
    with RingWriter(path, ("network",)) as writer:
        for value in (20, 20, 45, 20):
            writer.write(value * MS, (value * MS,))
    snapshot = tmp_path / "snapshot.json"
    code = main(
        ["watch", str(path), "--budget", budget, "--stop-on-overrun", "--snapshot", str(snapshot)]
    )
    assert code == 1
    assert "stopped at frame 2" in capsys.readouterr().out
    assert json.loads(snapshot.read_text())["overrun_frame"] == 2


def test_a_missing_file_is_bad_input(tmp_path, budget):
    assert main(["watch", str(tmp_path / "none.jsonl"), "--budget", budget]) == 2
    with pytest.raises(InputError):
        open_source(str(Path(tmp_path)), follow=False)


def test_a_ring_source_ends_where_it_does_not_follow(tmp_path):
    with RingWriter(tmp_path / "ring") as writer:
        writer.write(5)
    source = RingSource(tmp_path / "ring", follow=False)
    assert [sample for batch in source.batches() for sample in batch] == [Sample(5)]
    source.close()


def test_impossible_times_of_a_ring_are_no_frames(tmp_path, budget, capsys):
    """A pipeline whose clock went back would else be told as one that keeps its deadline."""
    path, out = tmp_path / "ring", tmp_path / "figures.json"
    with RingWriter(path, ("network",)) as writer:
        for latency, network in ((20, 18), (-5, 3), (0, 0), (20, -3), (None, 0)):
            writer.write(latency, (network,))
    words = ["watch", str(path), "--budget", budget, "--no-follow", "--json", str(out)]
    assert main(words) == 0
    assert "2 frames, 1 missed (1 dropped)" in (text := capsys.readouterr().out)
    assert "3 unreadable records" in text
    assert json.loads(out.read_text())["unreadable"] == 3


def follow(source, steps):
    """Runs a source that does the next of `steps` whenever it has nothing; returns the frames."""
    steps, found = iter(steps), []
    for batch in source.batches():
        found += [sample.latency_ns // MS for sample in batch]
        if not batch and (step := next(steps, None)) is None:
            break
        if not batch:
            step()
    source.close()
    return found


def test_a_rotated_and_a_cut_file_are_followed(tmp_path):
    path = tmp_path / "frames.jsonl"

    def write(*values):
        path.write_text("".join(f'{{"latency_ms": {value}}}\n' for value in values))

    def rotate():
        path.rename(tmp_path / "frames.1")

    write(20, 21)
    source = open_source(str(path), follow=True)
    source._wait = lambda seconds: None
    assert follow(source, [rotate, lambda: write(22, 23), lambda: write(24)]) == [*range(20, 25)]
    assert source.unreadable == 0


def test_the_ring_of_a_pipeline_that_started_again_is_followed(tmp_path):
    path = tmp_path / "ring"

    def write(*values):
        with RingWriter(path, slots=16) as ring:
            for value in values:
                ring.write(value * MS)

    write(*range(1, 21))
    source = open_source(str(path), follow=True)
    source._wait = lambda seconds: None
    assert follow(source, [lambda: write(30, 31)])[-3:] == [20, 30, 31]
    assert source.lost > 0


def test_a_pipe_is_read_from_its_first_byte(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text('{"latency_ms": 20}\n'))
    writer.start()
    assert follow(open_source(str(pipe), follow=False), []) == [20]
    writer.join()
