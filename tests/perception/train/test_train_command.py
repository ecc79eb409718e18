import json

import pytest

from artifacts.checkpoint import build_module, load_checkpoint
from framefit.cli import main
from perception.training_data import HELD_OUT_SEED

SMALL = ["--height", "128", "--width", "160", "--backbone", "test_resnet", "--half-share", "0"]


def test_a_short_training_gives_a_checkpoint_and_its_figures(tmp_path, run_train):
    out, figures = tmp_path / "road.pt", tmp_path / "figures.json"
    arguments = ["--out", out, "--steps", "2", "--replicas", "1", "--batch-size", "2"]
    printed = run_train(*arguments, *SMALL, "--evaluate", "3", "--json", figures)
    network = build_module(load_checkpoint(out))
    assert network.config["height"] == 128
    heads = json.loads(figures.read_text())["heads"]
    assert set(heads) == {"detection", "segmentation", "depth"}
    assert "abs_rel" in printed


def test_measuring_alone_leaves_the_checkpoint_as_it_is(tmp_path, run_train):
    out = tmp_path / "road.pt"
    arguments = ["--out", out, "--steps", "1", "--replicas", "1", "--batch-size", "2"]
    run_train(*arguments, *SMALL, "--head", "depth", "--evaluate", "0")
    before = out.read_bytes()
    assert main(["train", "--out", str(out), "--evaluate-only", "--evaluate", "2"]) == 0
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seed", str(HELD_OUT_SEED)],
        ["--backbone", "no_such_backbone"],
        ["--head", "lidar"],
        ["--minutes", "0"],
        ["--height", "100"],
        ["--evaluate-only"],
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(tmp_path, capsys, arguments):
    out = tmp_path / "road.pt"
    assert main(["train", "--out", str(out), "--steps", "1", *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not out.exists()
