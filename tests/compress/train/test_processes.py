"""Killed runs, and runs of several processes; each starts Python anew, so there are few."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)


def assert_equal(left: Path, right: Path) -> None:
    pairs = [(value, weights(right)[name]) for name, value in weights(left).items()]
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_run_killed_in_the_middle_resumes_to_the_same_weights(
    run_process, small, tmp_path, monkeypatch
) -> None:
    killed, whole = tmp_path / "killed.pt", tmp_path / "whole.pt"
    assert run_process(killed, "die_at=8").returncode == -signal.SIGKILL
    assert killed.with_suffix(".state").exists()
    assert not killed.exists()
    for out in (killed, whole):
        monkeypatch.setattr(sys, "argv", ["small_run.py", str(out)])
        assert small.main() == 0
    assert_equal(killed, whole)


@pytest.mark.slow
def test_two_processes_share_a_batch_and_a_dead_one_is_one_error(run_process, tmp_path) -> None:
    out = tmp_path / "two.pt"
    died = run_process(out, "die_at=8", "die_rank=1", processes=2)
    assert died.returncode != 0
    errors = [line for line in died.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "lost another process of the training" in errors[0]
    resumed = run_process(out, processes=2)
    assert resumed.returncode == 0, resumed.stderr
    assert out.exists()


STOPPED = """
import signal
from types import SimpleNamespace

from artifacts.errors import FramefitError
from compress.train.launch import watch_other_processes

before = signal.getsignal(signal.SIGTERM)
try:
    with watch_other_processes(SimpleNamespace(world_size=2, global_rank=0)):
        signal.raise_signal(signal.SIGTERM)
except FramefitError as error:
    print(error)
assert signal.getsignal(signal.SIGTERM) is before
"""


def test_a_process_that_torchrun_stops_says_that_another_died() -> None:
    """torchrun may be faster than the broken connection.

    A child raises the signal: only a main thread can catch it, and pytest's may be another one.
    """
    stopped = subprocess.run(
        [sys.executable, "-c", STOPPED], capture_output=True, text=True, check=False
    )
    assert stopped.returncode == 0, stopped.stderr
    assert "lost another process" in stopped.stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("probe=2", "steps=30", "probe_every=10")])
def test_ddp_and_fsdp_learn_the_same(run_process, tmp_path, words) -> None:
    """The second time they go back to their best weights on the way."""
    for strategy in ("ddp", "fsdp"):
        out = tmp_path / f"{strategy}.pt"
        result = run_process(out, f"strategy={strategy}", *words, processes=2)
        assert result.returncode == 0, result.stderr
        assert len(weights(out)["rate.fallen"]) == (1 if words else 0)
    assert_equal(tmp_path / "ddp.pt", tmp_path / "fsdp.pt")


@pytest.mark.slow
def test_ddp_and_fsdp_find_the_same_learning_rate(run_process, tmp_path) -> None:
    trials = []
    for strategy in ("ddp", "fsdp"):
        out = tmp_path / f"{strategy}.pt"
        result = run_process(out, f"strategy={strategy}", "probe=1", "steps=40", processes=2)
        assert result.returncode == 0, result.stderr
        trials.append(weights(out)["rate.trials"])
    assert len(trials[0]) >= 3
    assert torch.equal(*trials)
