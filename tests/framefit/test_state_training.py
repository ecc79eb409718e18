"""Networks that read their state of the frame before are pruned and trained on frames alone."""

import json
import sys

import numpy as np
import pytest
import torch

from artifacts.input_spec import InputSpec
from artifacts.recurrence import Recurrence
from framefit.frame_states import export_states
from framefit.training_samples import open_training_samples

NETWORK = '''
import torch
from torch import nn


class Video(nn.Module):
    """A picture and a state that forgets slowly."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.look, self.mix = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 6, 3, 1, 1)
        self.head = nn.Sequential(nn.Conv2d(6, 16, 1), nn.ReLU(), nn.Conv2d(16, 2, 1))

    def forward(self, image, h):
        h_next = torch.tanh(self.mix(self.look(image).relu()) + 0.9 * h)
        return {"mask": self.head(h_next), "h_next": h_next}


def make():
    return Video()
'''
SHAPES = {"image": (1, 3, 8, 12), "h": (1, 6, 8, 12)}
FRAMES = 12
OPTIONS = (
    *("--factory", "video_network:make", "--input-shape", "image=1,3,8,12"),
    *("--input-shape", "h=1,6,8,12", "--data", "frames.npz"),
)
STATE = ("--state", "h=h_next", "--sequence-frames", "6")


@pytest.fixture
def video(folder, monkeypatch):
    """The network, its weights "video.pt", and "frames.npz" without states."""
    (folder / "video_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "video_network", raising=False)
    frames = np.random.default_rng(1).random((FRAMES, 3, 8, 12), np.float32)
    np.savez(folder / "frames.npz", image=frames)
    import video_network

    network = video_network.make().eval()
    torch.save(network.state_dict(), folder / "video.pt")
    return network


def compute_states(network, frames, length):
    """Returns the state before each frame."""
    states, h = [], torch.zeros(SHAPES["h"])
    for number, frame in enumerate(frames):
        h = h if number % length else torch.zeros(SHAPES["h"])
        states.append(h.numpy())
        with torch.no_grad():
            h = network(torch.from_numpy(frame)[None], h)["h_next"]
    return np.concatenate(states)


def test_samples_have_the_states_that_the_network_computed_before_them(video, folder):
    frames = np.load(folder / "frames.npz")["image"]
    wanted = compute_states(video, frames, length=6)
    recurrence = Recurrence.parse(["h=h_next"], 6)
    states = export_states(video, SHAPES, recurrence)
    samples = open_training_samples("frames.npz", SHAPES, InputSpec(), states=states)
    found = [*samples.training, *samples.held_out]
    assert len(found) == FRAMES
    for sample in found:
        (row,) = np.flatnonzero((frames == sample["image"]).all(axis=(1, 2, 3)))
        np.testing.assert_allclose(sample["h"], wanted[row], atol=1e-5)


def test_prune_and_distill_take_frames(run, video, folder):
    prune = ("compress", "prune", "video.pt", *OPTIONS, "--ratio", "0.3", "--out", "small.pt")
    result = run(*prune, *STATE, "--json", "frames.json")
    assert result.code == 0, result.err
    frames = np.load(folder / "frames.npz")["image"]
    np.savez(folder / "frames.npz", image=frames, h=compute_states(video, frames, length=6))
    assert run(*prune, "--json", "states.json").code == 0
    by_frames, by_states = (
        json.loads((folder / name).read_text()) for name in ("frames.json", "states.json")
    )
    assert by_frames["widths"] == by_states["widths"]
    assert by_frames["quality_db"][-1] == pytest.approx(by_states["quality_db"][-1], abs=0.01)
    np.savez(folder / "frames.npz", image=frames)
    result = run(
        *("compress", "distill", "small.pt", "--teacher", "video.pt", *OPTIONS, *STATE),
        *("--steps", "4", "--batch-size", "2", "--threads", "1"),
    )
    assert result.code == 0, result.err


def test_qat_takes_frames(run, video, folder):
    frames = ("--data", "frames.npz", *STATE)
    export = ("export", "onnx", "video.pt", *OPTIONS[:6])
    assert run(*export, "--out", "video.onnx").code == 0
    assert run("compress", "quantize", "video.onnx", "--no-timing", *frames).code == 0
    result = run(
        *("compress", "qat", "video.int8.onnx", "--teacher", "video.onnx", *frames),
        *("--steps", "4", "--batch-size", "2", "--threads", "1"),
    )
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [((), "--state h=OUTPUT"), (("--state", "h=hidden"), "'hidden', the next state 'h'")],
    ids=["no state", "another output"],
)
def test_data_without_the_state_name_the_option(options, message, run, video):
    result = run("compress", "prune", "video.pt", *OPTIONS, "--ratio", "0.3", *options)
    assert result.code == 2
    assert message in result.err
