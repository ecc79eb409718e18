"""`compress distill`, `qat` and `substitute` as a user runs them, and their bad input."""

import json
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from artifacts.checkpoint import load_checkpoint, load_checkpoint_or_weights, save_weights
from artifacts.errors import InputError
from framefit.trainable_network import note_frozen
from tests.framefit.conftest import own_weights

QUICK = ("--steps", "4", "--batch-size", "2", "--probe-every", "2", "--threads", "1")
CONFIG = {"backbone": "test_efficientnet", "height": 64, "width": 96, "neck_channels": 8}
GATED = "mobilenetv3_small_100"
"""With squeeze-and-excite in most blocks."""


def write_network(
    path: Path, heads: tuple[str, ...], seed: int, backbone: str = CONFIG["backbone"]
) -> Path:
    from perception.network import build
    from perception.train_checkpoint import INPUT_SPEC, save_network

    torch.manual_seed(seed)
    save_network(
        path,
        build({**CONFIG, "backbone": backbone, "heads": {name: {} for name in heads}}),
        INPUT_SPEC,
    )
    return path


@pytest.fixture
def pictures(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    for index in range(6):
        picture = rng.integers(0, 255, (64, 96, 3), np.uint8)
        cv2.imwrite(str(folder / "pictures" / f"{index}.png"), picture)
    return folder / "pictures"


def test_distill_then_what_is_left_out_is_named(run, folder: Path, pictures: Path) -> None:
    student = write_network(folder / "s.pt", ("segmentation", "depth"), 1)
    teacher = write_network(folder / "t.pt", ("segmentation",), 2)
    result = run(
        "compress", "distill", student, "--teacher", teacher, "--data", pictures, *QUICK,
        "--json", "d.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "not compared: output 'depth': the teacher has no such output" in result.err
    stated = json.loads(Path("d.json").read_text())
    assert stated["score"]["after"] <= stated["score"]["before"]
    reason = "the usual one: trials need 40 steps or more"
    assert stated["learning_rate"] == {"rate": 1e-3, "reason": reason, "trials": [], "fallen": []}
    assert f"learning rate 0.001 ({reason})" in result.out
    assert load_checkpoint("s.distilled.pt").config["heads"] == {"segmentation": {}, "depth": {}}
    assert not Path("s.distilled.state").exists()


def test_a_pruned_network_in_safetensors_is_distilled_to_safetensors(
    run, folder: Path, pictures: Path
) -> None:
    network = write_network(folder / "n.pt", ("segmentation",), 1)
    data = ("--data", pictures)
    result = run("compress", "prune", network, "--ratio", "0.3", *data, "--out", "p.safetensors")
    assert result.code == 0, result.err
    result = run(
        "compress", "distill", "p.safetensors", "--teacher", network, *data, *QUICK,
        "--out", "d.safetensors",
    )  # fmt: skip
    assert result.code == 0, result.err
    edits = [json.loads(Path(f"{name}.edits.json").read_text()) for name in ("p", "d")]
    assert edits[0] == edits[1] != []
    assert load_checkpoint("d.safetensors").edits == edits[0]
    assert run("compress", "quantize", "d.safetensors", *data, "--out", "d.onnx").code == 0


def test_plain_weights_in_safetensors_stay_plain(tmp_path: Path) -> None:
    weights = {"layer.weight": torch.randn(2, 3)}
    for name in ("w.safetensors", "w.pt"):
        save_weights(tmp_path / name, weights)
        found = load_checkpoint_or_weights(tmp_path / name)
        assert found.keys() == weights.keys()
        assert torch.equal(found["layer.weight"], weights["layer.weight"])


def test_bad_input_of_distill_is_one_line(run, folder: Path, pictures: Path) -> None:
    student = write_network(folder / "s.pt", ("segmentation",), 1)
    other = write_network(folder / "o.pt", ("depth",), 2)
    (folder / "empty").mkdir()
    cases = [
        ((student, "--teacher", other, "--data", pictures), "no output in common"),
        ((student, "--teacher", student, "--data", "empty"), "empty"),
        ((student, "--teacher", student, "--data", pictures, "--labels"), "--labels"),
        ((student, "--teacher", student, "--data", pictures, "--feature", "nose"), "'nose'"),
        (
            (student, "--teacher", student, "--data", pictures, "--labels", "--feature", "nose"),
            "no module 'nose'",
        ),
        ((student, "--teacher", "none.pt", "--data", pictures), "none.pt"),
        ((student, "--teacher", student, "--data", pictures, "--precision", "half"), "half"),
        ((student, "--teacher", student, "--data", pictures, "--out", "x.onnx"), ".pt"),
    ]
    for arguments, words in cases:
        result = run("compress", "distill", *arguments)
        assert result.code == 2, arguments
        assert words in result.err
        assert len(result.err.strip().splitlines()) == 1
    assert sorted(path.name for path in folder.glob("*distilled*")) == []


@pytest.mark.parametrize("command", ["distill", "qat", "substitute", "prune", "quantize"])
def test_no_network_that_is_read_is_written_over(
    run, folder: Path, pictures: Path, command: str
) -> None:
    student = write_network(folder / "s.pt", ("segmentation",), 1)
    teacher = write_network(folder / "t.pt", ("segmentation",), 2)
    for path in ("s.onnx", "t.onnx"):
        (folder / path).write_bytes(b"a network")
    Path("link.pt").symlink_to(teacher)
    Path("link.onnx").symlink_to(folder / "t.onnx")
    more = ("--data", pictures)
    cases = {
        "distill": (student, "link.pt", ("--teacher", teacher, *more)),
        "qat": (folder / "s.onnx", "link.onnx", ("--teacher", folder / "t.onnx", *more)),
        "substitute": (teacher, "link.pt", more),
        "prune": (teacher, "link.pt", ("--ratio", "0.5", *more)),
        "quantize": (folder / "t.onnx", "link.onnx", more),
    }
    model, link, arguments = cases[command]
    for out in (model, link):
        result = run("compress", command, model, *arguments, "--out", out)
        assert result.code == 2
        assert f"--out {out} is the " in result.err
        assert "itself; expected another file" in result.err
        assert len(result.err.strip().splitlines()) == 1


def test_quantize_then_qat_writes_the_same_graph_with_new_integers(
    run, folder: Path, pictures: Path
) -> None:
    network = write_network(folder / "n.pt", ("segmentation",), 1)
    data = ("--data", pictures)
    assert run("compress", "quantize", network, *data, "--out", "q.onnx").code == 0
    result = run(
        "compress", "qat", "q.onnx", "--teacher", network, *data, *QUICK, "--out", "t.onnx"
    )
    assert result.code == 0, result.err
    result = run("compress", "compare", "q.onnx", "t.onnx", *data)
    assert result.code == 0, result.err
    result = run("compress", "qat", network, "--teacher", network, *data)
    assert result.code == 2
    assert "no quantized network" in result.err


def test_qat_learns_from_labels_where_the_teacher_knows_them(
    run, folder: Path, pictures: Path
) -> None:
    network = write_network(folder / "n.pt", ("segmentation", "depth"), 1)
    assert run("compress", "quantize", network, "--data", pictures, "--out", "q.onnx").code == 0
    masks = folder / "masks"
    masks.mkdir()
    for index in range(12):
        mask = np.full((64, 96), 7, np.uint8)
        cv2.imwrite(str(masks / f"{index}_gtFine_labelIds.png"), mask)
        cv2.imwrite(str(pictures / f"{index}_leftImg8bit.png"), np.dstack([mask * index] * 3))
    labels = ("--data", pictures, "--masks", masks, *QUICK)
    result = run("compress", "qat", "q.onnx", "--teacher", network, *labels, "--json", "q.json")
    assert result.code == 0, result.err
    assert set(json.loads(Path("q.json").read_text())["losses"]) == {
        *("segmentation", "depth", "labels")
    }
    assert run("export", "onnx", network, "--out", "n.onnx").code == 0
    result = run("compress", "qat", "q.onnx", "--teacher", "n.onnx", *labels)
    assert result.code == 2
    assert "expected the checkpoint (.pt) of a network of perception" in result.err


def test_substitute_measures_and_stores_edits(run, folder: Path, pictures: Path) -> None:
    network = write_network(folder / "n.pt", ("segmentation",), 1)
    result = run(
        "compress", "substitute", network, "--data", pictures, *QUICK, "--float",
        "--kind", "squeeze-excite", "--json", "s.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    (trial,) = json.loads(Path("s.json").read_text())["trials"]
    assert trial["count"] == 2
    edits = load_checkpoint("n.substituted.pt").edits
    assert bool(edits) == trial["is_kept"] == (trial["after_ms"] <= 0.97 * trial["before_ms"])


FROZEN = """
from torch import nn

def make():
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))
    network[0].requires_grad_(False)
    return network
"""


def test_weights_that_the_factory_froze_are_named(run, folder: Path, pictures: Path) -> None:
    (folder / "frozen_factory.py").write_text(FROZEN)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))
    for name in ("s.pt", "t.pt"):
        torch.save(network.state_dict(), name)
    factory = ("--factory", "frozen_factory:make", "--input-shape", "1,3,16,24")
    result = run(
        "compress", "distill", "s.pt", "--teacher", "t.pt", *factory, "--data", pictures, *QUICK
    )
    assert result.code == 0, result.err
    assert "61 % of the weights are frozen" in result.err
    assert "do not learn: 0.weight, 0.bias" in result.err


def test_a_share_of_frozen_weights_is_never_0_percent(caplog: pytest.LogCaptureFixture) -> None:
    network = nn.Sequential(nn.Linear(1, 1, bias=False).requires_grad_(False), nn.Linear(100, 10))
    note_frozen(network)
    assert "less than 1 % of the weights are frozen" in caplog.text


def test_a_run_that_goes_on_says_so(
    run, folder: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compress.train.run import TrainingRun

    student = write_network(folder / "s.pt", ("segmentation",), 1)
    arguments = ("compress", "distill", student, "--teacher", student, "--data", pictures, *QUICK)
    take_step, taken = TrainingRun.take_step, []

    def fail_after_three(self, batches):
        if len(taken) == 3:
            raise InputError("the power failed")
        taken.append(take_step(self, batches))
        return taken[-1]

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "take_step", fail_after_three)
        assert run(*arguments).code == 2
    result = run(*arguments, "--json", "d.json")
    assert result.code == 0, result.err
    assert "4 steps (2 of them in a run before), best at step" in result.out
    assert json.loads(Path("d.json").read_text())["resumed_step"] == 2


@pytest.mark.parametrize("command", ["distill", "qat", "substitute"])
def test_a_training_without_its_extra_names_that_one(command, monkeypatch, run):
    """Not `torch`: who installed that was sent on to `train`."""
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    teacher = () if command == "substitute" else ("--teacher", "teacher.pt")
    lacking = run("compress", command, "model.pt", *teacher, "--data", "pictures")
    assert lacking.code == 4
    assert f"framefit compress {command}: the Python package" in lacking.err
    assert "framefit[train]" in lacking.err


def test_substitute_says_what_each_output_kept(
    run, folder: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in that always pays is measured before and after its repair, output by output."""
    monkeypatch.setattr("framefit.module_clock.ModuleClock.__call__", lambda *_: [2.0, 1.0])
    network = write_network(folder / "n.pt", ("segmentation", "depth"), 1, GATED)
    result = run(
        "compress", "substitute", network, "--data", pictures, *QUICK, "--float",
        "--kind", "squeeze-excite", "--json", "s.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    found = json.loads(Path("s.json").read_text())["outputs_db"]
    assert len(found) == 2
    for name, values in found.items():
        assert values.keys() == {"substituted", "repaired"}
        assert values["substituted"] < 60
        line = next(line for line in result.out.splitlines() if name in line)
        assert f"{values['substituted']:.1f}" in line
        assert f"{values['repaired']:.1f}" in line


FACTORY = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 2, 1))
"""
OWN, SHAPE = ("--factory", "own_networks:make"), ("--input-shape", "1,3,32,48")


@pytest.fixture
def plain_weights(folder: Path):
    """Weights of a network of the user's own, which say nothing of its input."""
    with own_weights(folder, "own_networks", FACTORY) as path:
        yield path


def test_a_teacher_of_plain_weights_takes_the_inputs_of_its_student(
    run, pictures: Path, plain_weights: Path
) -> None:
    assert run("compress", "prune", plain_weights, "--ratio", 0.5, *OWN, *SHAPE).code == 0
    distilled = run(
        "compress", "distill", "weights.pruned.pt", "--teacher", plain_weights,
        "--data", pictures, *OWN, *QUICK,
    )  # fmt: skip
    assert distilled.code == 0, distilled.err


def test_weights_take_the_inputs_of_the_network_made_from_them(
    run, pictures: Path, plain_weights: Path
) -> None:
    data = ("--data", pictures)
    assert run("compress", "quantize", plain_weights, *data, *OWN, *SHAPE).code == 0
    compared = run("compress", "compare", plain_weights, "weights.int8.onnx", *data, *OWN)
    assert compared.code == 0, compared.err
    trained = run(
        "compress", "qat", "weights.int8.onnx", "--teacher", plain_weights, *data, *OWN, *QUICK
    )
    assert trained.code == 0, trained.err
    backwards = run("compress", "compare", "weights.int8.onnx", plain_weights, *data, *OWN)
    assert backwards.code == 0, backwards.err


def test_a_teacher_that_is_quantized_itself_is_refused(
    run, pictures: Path, plain_weights: Path
) -> None:
    data = ("--data", pictures)
    assert run("compress", "quantize", plain_weights, *data, *OWN, *SHAPE).code == 0
    file = "weights.int8.onnx"
    result = run("compress", "qat", file, "--teacher", file, *data, *QUICK)
    assert result.code == 2
    (error,) = (line for line in result.err.splitlines() if line.startswith("error: "))
    assert "the teacher weights.int8.onnx is quantized itself; expected the float network" in error
