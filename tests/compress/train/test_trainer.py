"""One process: what is kept, what stops a run, and that options change the cost only."""

import errno
from pathlib import Path

import pytest
import torch
from torch import nn

import compress.train.run_state as run_state
from artifacts.errors import InputError
from compress.train.launch import _shard
from compress.train.loss_log import log_losses
from compress.train.run_state import digest_values
from compress.train.settings import TrainerSettings
from compress.train.trainer import train

SETTINGS = {"steps": 12, "batch_size": 4, "threads": 1, "device": "cpu", "learning_rate": 1e-2}


def lesson(small, nan_at: int = 0):
    return small.Imitation(small.make_network(1), small.make_network(2).eval(), nan_at)


def largest_difference(left, right) -> float:
    return max(float((left[name].float() - right[name].float()).abs().max()) for name in left)


def test_training_lowers_the_score_and_keeps_the_best(small) -> None:
    settings = TrainerSettings(**SETTINGS | {"steps": 60}, probe_every=20)
    result = train(lesson(small), small.make_samples(), settings, probe=small.make_probe())
    scores = dict(result.scores)
    assert list(scores) == [0, 20, 40, 60]
    assert scores[result.best_step] == min(scores.values())
    assert scores[60] < 0.7 * scores[0]
    kept = small.make_network(3)
    kept.load_state_dict(result.weights)
    assert small.make_probe()(kept.eval()) == pytest.approx(scores[result.best_step], rel=1e-6)


def test_a_score_that_renewing_found_is_not_measured_again(small) -> None:
    asked = []
    result = train(
        lesson(small),
        small.make_samples(),
        TrainerSettings(**SETTINGS, probe_every=6),
        probe=lambda network: float(len(asked.append(network) or asked)),
        renew=lambda network: 7.0,
    )
    assert dict(result.scores) == {0: 7.0, 6: 7.0, 12: 7.0}
    assert not asked


def test_a_run_that_only_harms_keeps_the_network_as_it_came_and_ends_early(small) -> None:
    start = small.make_network(1).state_dict()
    steps = iter(range(1000))
    settings = TrainerSettings(**SETTINGS | {"steps": 100}, probe_every=2, patience=3)
    result = train(
        lesson(small), small.make_samples(), settings, probe=lambda network: float(next(steps))
    )
    assert result.is_early
    assert result.steps == 6
    assert result.best_step == 0
    assert largest_difference(result.weights, start) == 0


def test_accumulated_parts_learn_as_one_batch(small) -> None:
    """Without BatchNorm and Dropout, whose result depends on the part's size."""
    results = []
    for accumulate in (1, 4):
        torch.manual_seed(0)
        student = torch.nn.Conv2d(3, 2, 3, padding=1)
        teacher = torch.nn.Conv2d(3, 2, 3, padding=1)
        settings = TrainerSettings(**SETTINGS, accumulate=accumulate)
        trained = train(small.Imitation(student, teacher), small.make_samples(), settings)
        results.append(trained.weights)
    assert largest_difference(*results) < 1e-5


def test_recomputed_activations_change_nothing(small) -> None:
    results = []
    for is_recomputed in (False, True):
        settings = TrainerSettings(**SETTINGS, recomputes_activations=is_recomputed)
        results.append(train(lesson(small), small.make_samples(), settings).weights)
    assert largest_difference(*results) == 0


def test_workers_change_nothing(small) -> None:
    results = [
        train(
            lesson(small),
            small.make_samples(),
            TrainerSettings(**SETTINGS | {"steps": 4}, workers=workers, flip_probability=0.5),
        ).weights
        for workers in (0, 1)
    ]
    assert largest_difference(*results) == 0


def test_bfloat16_is_another_path_to_about_the_same(small) -> None:
    exact, coarse = (
        train(lesson(small), small.make_samples(), TrainerSettings(**SETTINGS, precision=name))
        for name in ("float32", "bfloat16")
    )
    assert all(value.dtype != torch.bfloat16 for value in coarse.weights.values())
    assert 0 < largest_difference(exact.weights, coarse.weights) < 0.1


class Late(nn.Module):
    """A weight that no gradient reaches, and one that it reaches from the sixth step on."""

    def __init__(self, layers: nn.Module, steps_before: int = 0) -> None:
        super().__init__()
        self.layers, self.unused = layers, nn.Linear(2, 2)
        self.late = nn.Parameter(torch.ones(1))
        self.steps = steps_before

    def forward(self, x):
        self.steps += 1
        y = self.layers(x)
        return y * self.late if self.steps > 5 else y


def test_a_run_goes_on_where_gradients_reach_only_some_weights(small, tmp_path: Path) -> None:
    """Heads that are not compared and weights that only a loss uses have no optimizer state."""
    settings = TrainerSettings(**SETTINGS, save_every=2)

    def run(steps_before: int = 0, nan_at: int = 0):
        torch.manual_seed(0)
        student = Late(small.make_network(1), steps_before)
        learns = small.Imitation(student, small.make_network(2).eval(), nan_at)
        return train(learns, small.make_samples(), settings, state_path=tmp_path / "run.state")

    whole = run()
    with pytest.raises(InputError, match="diverged at step 5"):
        run(nan_at=5)
    resumed = run(steps_before=4)
    assert resumed.resumed_step == 4
    assert largest_difference(resumed.weights, whole.weights) == 0


def test_a_loss_that_turns_nan_stops_and_keeps_the_last_state(small, tmp_path: Path) -> None:
    state = tmp_path / "run.state"
    settings = TrainerSettings(**SETTINGS, save_every=2)
    with pytest.raises(InputError, match=r"diverged at step 6.*lower the learning rate"):
        train(lesson(small, nan_at=6), small.make_samples(), settings, state_path=state)
    assert torch.load(state, weights_only=True)["standing"]["step"] == 4
    resumed = train(lesson(small), small.make_samples(), settings, state_path=state)
    whole = train(lesson(small), small.make_samples(), settings)
    assert largest_difference(resumed.weights, whole.weights) == 0
    assert (whole.resumed_step, resumed.resumed_step) == (0, 4)
    assert not state.exists()


@pytest.mark.parametrize(("at", "is_told"), [(1, False), (3, True)])
def test_an_interrupt_names_the_state_that_is_kept(small, tmp_path, caplog, at, is_told) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if done == at:
            raise KeyboardInterrupt

    state = tmp_path / "run.state"
    settings = TrainerSettings(**SETTINGS, save_every=2)
    with pytest.raises(KeyboardInterrupt):
        train(lesson(small), small.make_samples(), settings, state_path=state, progress=interrupt)
    told = f"{state} keeps what was trained: the same command goes on from there"
    assert (caplog.messages == [told]) is is_told
    assert state.exists() is is_told


def test_a_full_disk_is_one_error_and_the_old_state_stays(
    small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "run.state"
    writes: list[int] = []
    plain = Path.write_bytes

    def write_bytes(path: Path, content: bytes) -> int:
        writes.append(len(content))
        if len(writes) == 2:
            plain(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    settings = TrainerSettings(**SETTINGS, save_every=2)
    with pytest.raises(InputError, match="No space left on device"):
        train(lesson(small), small.make_samples(), settings, state_path=state)
    assert [path.name for path in tmp_path.iterdir()] == ["run.state"]
    assert torch.load(state, weights_only=True)["standing"]["step"] == 2


def test_a_state_of_another_run_is_refused(small, tmp_path: Path) -> None:
    state = tmp_path / "run.state"
    with pytest.raises(InputError, match="diverged"):
        train(
            lesson(small, nan_at=3),
            small.make_samples(),
            TrainerSettings(**SETTINGS, save_every=1),
            state_path=state,
        )
    other = TrainerSettings(**SETTINGS | {"learning_rate": 0.5})
    with pytest.raises(InputError, match="another network, data or settings"):
        train(lesson(small), small.make_samples(), other, state_path=state)
    whole = state.read_bytes()
    for position in (-1, whole.index(b"framefit-training") + 3, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        state.write_bytes(damaged)
        with pytest.raises(InputError, match=r"state of a training run.*delete it to start anew"):
            run_state.load_state(state, "")
    for nonsense in (b"nonsense", b"hello", b"", whole[:-9]):
        state.write_bytes(nonsense)
        with pytest.raises(InputError, match=r"state of a training run.*delete it to start anew"):
            run_state.load_state(state, "")


def test_a_number_of_stride_0_is_digested_as_any_other() -> None:
    """Constants of an ONNX file may be such (FastestDet): QAT ended in an internal error."""
    odd = torch.full((), 7.0).expand(1)
    assert odd.stride() == (0,)
    assert digest_values([("x", odd)]) == digest_values([("x", torch.full((1,), 7.0))])
    assert digest_values([("x", odd)]) != digest_values([("x", torch.full((1,), 8.0))])


def test_tensorboard_gets_every_step(small, tmp_path: Path) -> None:
    with log_losses(tmp_path) as report:
        settings = TrainerSettings(**SETTINGS | {"steps": 3})
        train(lesson(small), small.make_samples(), settings, report=report)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [item.step for item in events.Scalars("loss/error")] == [1, 2, 3]
    assert "gradient_norm" in events.Tags()["scalars"]


def test_a_log_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        words = r"cannot write the log .*file.*choose another --log"
        with pytest.raises(InputError, match=words), log_losses(folder):
            pytest.fail("it was opened")


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("learning_rate", float("nan")), ("precision", "half"), ("strategy", "zero")],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        TrainerSettings(**{name: value})


def test_weights_that_fsdp_cannot_shard_are_named() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1))
    network.register_parameter("temperature", nn.Parameter(torch.tensor(1.0)))
    with pytest.raises(InputError, match=r"temperature.*--strategy ddp"):
        _shard(network, None)


class Unfit(nn.Module):
    """Overwrites what the gradient needs, has no gradient, or normalizes one value per channel."""

    def __init__(self, student: nn.Module, how: str) -> None:
        super().__init__()
        self.student, self.how = student, how
        self.pooled = nn.BatchNorm2d(3)

    def forward(self, x):
        if self.how == "pooled":
            return self.student(x * self.pooled(x.mean((2, 3), keepdim=True)))
        if self.how == "underived":
            return torch.igamma(self.student(x).abs(), torch.ones(()))
        y = torch.sigmoid(self.student(x))
        if self.how == "apart":
            return torch.cat((y[:, :1], (y[:, 1:] * 2) ** 2), 1)
        y[:, 1:] = (y[:, 1:] * 2) ** 2
        return y


@pytest.mark.parametrize(
    ("how", "batch_size", "words"),
    [("underived", 4, "gradients cannot be computed"), ("pooled", 1, "raise --batch-size")],
)
def test_a_network_that_cannot_be_trained_so_says_why(
    small, how: str, batch_size: int, words: str
) -> None:
    unfit = small.Imitation(Unfit(small.make_network(1), how), small.make_network(2).eval())
    settings = TrainerSettings(**SETTINGS | {"batch_size": batch_size})
    with pytest.raises(InputError, match=words):
        train(unfit, small.make_samples(), settings)


def test_values_that_are_overwritten_are_learned_as_others(small, tmp_path: Path) -> None:
    settings = TrainerSettings(**SETTINGS)

    def learn(how: str) -> dict[str, torch.Tensor]:
        lesson = small.Imitation(Unfit(small.make_network(1), how), small.make_network(2).eval())
        return train(lesson, small.make_samples(), settings).weights

    overwritten, apart = learn("overwritten"), learn("apart")
    for name, weights in overwritten.items():
        torch.testing.assert_close(weights, apart[name])


def test_values_that_are_overwritten_cannot_be_recomputed(small) -> None:
    lesson = small.Imitation(
        Unfit(small.make_network(1), "overwritten"), small.make_network(2).eval()
    )
    settings = TrainerSettings(**SETTINGS, recomputes_activations=True)
    with pytest.raises(InputError, match="leave --recompute out"):
        train(lesson, small.make_samples(), settings)
