import subprocess
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from artifacts.errors import FramefitError, InputError
from artifacts.input_spec import InputSpec
from perception.batches import SceneStream, flip_scene
from perception.replicas import open_replicas
from perception.scene.dataset import SceneDataset
from perception.train import train
from perception.train_settings import TrainSettings

TINY = {"backbone": "test_resnet", "height": 128, "width": 160, "neck_channels": 16}
QUICK = TrainSettings(steps=4, batch_size=4, half_share=0.0, replicas=1, workers=0, seed=3)


def road_scenes(height, width):
    return SceneDataset(2, 7, height, width)


def run(settings=QUICK, **options):
    return train(TINY, road_scenes, InputSpec(), settings, **options)


def test_every_loss_falls_when_two_scenes_are_learned():
    history = []
    run(
        replace(QUICK, steps=30, batch_size=2, learning_rate=5e-3),
        report=lambda step: history.append(step.losses),
    )
    for name in history[0]:
        start = np.mean([losses[name] for losses in history[:5]])
        end = np.mean([losses[name] for losses in history[-5:]])
        assert end < start * (0.98 if name == "detection_centre" else 0.7), name


def test_the_same_seed_repeats_a_run_and_another_does_not():
    first, again, other = (run(replace(QUICK, seed=seed)).average for seed in (3, 3, 4))
    pairs = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    pairs = zip(first.parameters(), other.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)


def test_an_interrupted_run_continues_as_if_nothing_had_happened(tmp_path):
    def interrupt(step):
        if step.step == 3:
            raise KeyboardInterrupt

    settings = replace(QUICK, save_minutes=0.0)
    state = tmp_path / "road.state"
    with pytest.raises(KeyboardInterrupt):
        run(settings, state_path=state, report=interrupt)
    steps = []
    resumed = run(settings, state_path=state, report=lambda step: steps.append(step.step))
    assert steps == [3, 4]
    whole = run(settings)
    for name, value in whole.average.state_dict().items():
        assert torch.equal(value, resumed.average.state_dict()[name]), name


def test_the_state_of_another_network_is_refused(tmp_path):
    state = tmp_path / "road.state"
    run(replace(QUICK, steps=1), state_path=state)
    with pytest.raises(InputError, match="another network or seed"):
        run(replace(QUICK, seed=99), state_path=state)


def test_a_state_that_is_no_state_is_refused(tmp_path):
    state = tmp_path / "road.state"
    state.write_text("not a state")
    with pytest.raises(InputError, match=r"road\.state"):
        run(state_path=state)
    assert state.read_text() == "not a state"


def test_divergence_stops_and_keeps_the_last_good_state(tmp_path):
    state = tmp_path / "road.state"
    run(replace(QUICK, steps=1), state_path=state)
    before = state.read_bytes()
    with pytest.raises(InputError, match="diverged"):
        run(replace(QUICK, steps=20, learning_rate=1e20), state_path=state)
    assert state.read_bytes() == before


def test_minutes_bound_the_run_and_choose_the_resolution():
    seconds = count(step=5.0)
    steps = []
    run(
        replace(QUICK, steps=None, minutes=1.0, half_share=0.5),
        report=steps.append,
        clock=lambda: next(seconds),
    )
    assert len(steps) <= 14
    assert steps[-1].elapsed_s >= 60
    scales = [step.scale for step in steps]
    assert scales == sorted(scales)
    assert set(scales) == {0.5, 1.0}


def test_the_average_moves_more_slowly_than_the_weights():
    state = run(replace(QUICK, steps=3))
    start = run(replace(QUICK, steps=1, learning_rate=1e-12)).average
    pairs = zip(
        start.parameters(), state.average.parameters(), state.network.parameters(), strict=True
    )
    moved = [(float((b - a).norm()), float((c - a).detach().norm())) for a, b, c in pairs]
    assert sum(average for average, _ in moved) < sum(weights for _, weights in moved)


def test_only_the_heads_asked_for_are_trained():
    names = set()
    train(
        {**TINY, "heads": {"depth": {}}},
        road_scenes,
        InputSpec(),
        replace(QUICK, steps=1),
        report=lambda step: names.update(step.losses),
    )
    assert names == {"depth"}


@pytest.mark.parametrize(
    "change",
    [{"minutes": 0.0}, {"steps": 0}, {"batch_size": 0}, {"half_share": 1.5}, {"threads": 0}],
)
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(InputError):
        TrainSettings(**change)


def test_a_stream_started_later_continues_the_same_order():
    scenes = SceneDataset(5, 7, 64, 96)

    def images(start, number):
        stream = iter(SceneStream(scenes, [], InputSpec(), scale=1.0, seed=1, start=start))
        return [next(stream)["image"] for _ in range(number)]

    whole = images(0, 9)
    assert all(np.array_equal(a, b) for a, b in zip(whole[4:], images(4, 5), strict=True))
    firsts = {image.tobytes() for image in whole[:5]}
    assert len(firsts) == 5


def test_a_scene_flipped_twice_is_the_scene():
    scene = SceneDataset(1, 7, 96, 160)[0]
    once, twice = flip_scene(scene), flip_scene(flip_scene(scene))
    assert np.allclose(twice.boxes, scene.boxes)
    assert (once.boxes[:, 2] > once.boxes[:, 0]).all()
    assert np.array_equal(twice.image, scene.image)
    assert np.array_equal(once.mask[:, 0], scene.mask[:, -1])
    assert np.array_equal(once.depth[:, 0], scene.depth[:, -1])


def test_two_replicas_learn_together_and_leave_nothing_running(tmp_path, run_train):
    out = tmp_path / "net.pt"
    options = ["--steps", "3", "--replicas", "2", "--evaluate", "0", "--scenes", "50"]
    run_train("--out", out, *options, "--height", "128", "--width", "160")
    assert out.is_file()


def test_a_replica_that_dies_ends_the_training_with_one_error():
    def die(replica):
        raise RuntimeError("out of luck")

    with (
        pytest.raises(FramefitError, match="replica of the training died"),
        open_replicas(2, 1, die) as replica,
    ):
        replica.agree(0.5)


def test_averaged_gradients_are_the_mean_over_the_replicas():
    def hold(replica, value):
        weight = torch.nn.Parameter(torch.zeros(2, 3))
        weight.grad = torch.full((2, 3), value)
        replica.average_gradients([weight])
        return weight.grad

    with open_replicas(2, 6, lambda replica: hold(replica, 3.0)) as replica:
        assert torch.equal(hold(replica, 1.0), torch.full((2, 3), 2.0))


def test_weights_without_a_gradient_are_left_out_of_the_mean():
    """A backbone's last layers, say, that no head reads."""

    def hold(replica, value):
        weights = [torch.nn.Parameter(torch.zeros(size)) for size in (2, 5, 3)]
        weights[0].grad, weights[2].grad = torch.full((2,), value), torch.full((3,), -value)
        replica.average_gradients(weights)
        return [weight.grad for weight in weights]

    with open_replicas(2, 10, lambda replica: hold(replica, 3.0)) as replica:
        first, unused, last = hold(replica, 1.0)
    assert unused is None
    assert first.tolist() == [2.0] * 2
    assert last.tolist() == [-2.0] * 3


def test_replicas_leave_when_the_first_is_killed(tmp_path):
    script = (
        "import os, sys, time\n"
        "from perception.replicas import open_replicas\n"
        "def body(replica):\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "with open_replicas(2, 1, body):\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        other = int(run.stdout.readline())
        run.kill()
        for _ in range(100):
            if not is_alive(other):
                break
            time.sleep(0.1)
        assert not is_alive(other)


def is_alive(process):
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_learning_rate_rises_then_falls():
    rates = [QUICK.learning_rate_at(share) for share in np.linspace(0, 1, 201)]
    top = int(np.argmax(rates))
    assert rates[top] == pytest.approx(QUICK.learning_rate)
    assert (np.diff(rates[: top + 1]) >= 0).all()
    assert (np.diff(rates[top:]) <= 0).all()
    assert rates[-1] == pytest.approx(0.01 * QUICK.learning_rate)
