"""`compress prune` from the command line."""

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")

from artifacts.checkpoint import build_module, load_checkpoint, save_checkpoint  # noqa: E402
from artifacts.edits import apply_edits  # noqa: E402
from framefit.layer_timing import LayerTimes  # noqa: E402
from framefit.network_clock import NetworkClock  # noqa: E402
from tests.framefit.conftest import own_weights  # noqa: E402

NETWORK = """
import torch
from torch import nn

def make():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 2, 1),
    )

def wide():
    middle = [part for _ in range(3) for part in (nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), *middle, nn.Conv2d(64, 2, 1))

def normed():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.GroupNorm(1, 32), nn.ReLU(), nn.Conv2d(32, 2, 1)
    )

def fail():
    raise KeyError("no such thing")

def leave():
    raise SystemExit(3)

instance = make()

def text():
    return "no module"

def uncalled():
    return nn.Conv2d

def halved():
    return make().half()

def other():
    return nn.Conv2d(3, 4, 3)

def unrunnable():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(9, 4, 3))
"""
SHAPE = ("--input-shape", "1,3,32,48")
# Large enough that what else this machine does is small beside an inference.
TIMED_NETWORK = ("--factory", "pruned_networks:make", "--input-shape", "1,3,256,384")


@pytest.fixture
def weights(folder: Path):
    """`weights.pt` of the user's own network in the current folder."""
    with own_weights(folder, "pruned_networks", NETWORK) as path:
        yield path


def count_weights(model: onnx.ModelProto) -> float:
    """A latency in ms that no other process disturbs: what a network would take by its size."""
    return sum(math.prod(weight.dims) for weight in model.graph.initializer) / 1e3


@pytest.fixture
def steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times networks and layers by `count_weights`."""
    monkeypatch.setattr(NetworkClock, "__call__", lambda _, models: [*map(count_weights, models)])
    monkeypatch.setattr(LayerTimes, "_time", lambda _, model: count_weights(model))


def factory(name: str = "make") -> tuple[str, ...]:
    return ("--factory", f"pruned_networks:{name}", *SHAPE)


def test_own_network_is_pruned_loaded_and_exported(run, weights: Path, pictures: Path) -> None:
    options = ("--ratio", 0.5, "--data", pictures, "--json", "report.json")
    result = run("compress", "prune", weights, *options, *factory())
    assert result.code == 0, result.err
    report = json.loads(Path("report.json").read_text())
    assert report["macs"][1] < 0.6 * report["macs"][0]
    assert report["largest_difference"] < 1e-9
    assert "output" in report["quality_db"][0] or report["quality_db"][0]
    pruned = build_module(load_checkpoint("weights.pruned.pt"), factory="pruned_networks:make")
    exported = run("export", "onnx", "weights.pruned.pt", *factory())
    assert exported.code == 0, exported.err
    shapes = {
        item.name: list(item.dims) for item in onnx.load("weights.pruned.onnx").graph.initializer
    }
    assert any(dims[0] < 32 for dims in shapes.values() if len(dims) == 4)
    again = run("compress", "prune", "weights.pruned.pt", "--ratio", 0.2, *factory())
    assert again.code == 0, again.err
    twice = build_module(
        load_checkpoint("weights.pruned.pruned.pt"), factory="pruned_networks:make"
    )
    count = sum(p.numel() for p in pruned.parameters())
    assert sum(p.numel() for p in twice.parameters()) < count


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_pruned_file_says_the_shape_of_its_inputs(
    run, weights: Path, folder: Path, suffix
) -> None:
    out = folder / f"small{suffix}"
    result = run("compress", "prune", weights, "--ratio", 0.3, "--out", out, *factory())
    assert result.code == 0, result.err
    alone = ("--factory", "pruned_networks:make")
    exported = run("export", "onnx", out, *alone)
    assert exported.code == 0, exported.err
    dims = onnx.load("small.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 3, 32, 48]
    np.savez("other.npz", x=np.random.default_rng(0).random((4, 3, 48, 64), np.float32))
    again = run("compress", "prune", out, "--ratio", 0.2, "--data", "other.npz", *alone)
    assert again.code == 0, again.err
    assert load_checkpoint("small.pruned.pt").shapes == {"input": (1, 3, 48, 64)}


def test_averaged_weights_are_warned_of_once(run, weights: Path) -> None:
    content = dict.fromkeys(("model", "ema"), torch.load(weights, weights_only=True))
    torch.save(content, "trained.pt")
    result = run("compress", "prune", "trained.pt", "--ratio", 0.3, *factory())
    assert result.code == 0, result.err
    assert result.err.count("the weights are those of 'ema'") == 1


def test_statistics_over_remaining_channels_are_told(run, weights: Path) -> None:
    import pruned_networks

    torch.save(pruned_networks.normed().state_dict(), "normed.pt")
    options = ("--ratio", 0.5, "--json", "report.json")
    result = run("compress", "prune", "normed.pt", *options, *factory("normed"))
    assert result.code == 0, result.err
    assert "with statistics over the remaining channels only: GroupNorm in '1'" in result.out
    report = json.loads(Path("report.json").read_text())
    assert report["narrowed_statistics"] == ["GroupNorm in '1'"]


def test_safetensors_carry_their_edits(run, weights: Path) -> None:
    import pruned_networks
    from safetensors.torch import load_file

    out = ("--out", "pruned.safetensors")
    result = run("compress", "prune", weights, "--macs", 0.5, *out, *factory())
    assert result.code == 0, result.err
    edits = json.loads(Path("pruned.edits.json").read_text())
    network = apply_edits(pruned_networks.make(), edits)
    network.load_state_dict(load_file("pruned.safetensors"))
    assert np.isfinite(network.eval()(torch.zeros(1, 3, 32, 48)).detach().numpy()).all()


def test_a_pruned_safetensors_file_is_opened_by_every_command(run, weights: Path) -> None:
    out = ("--out", "pruned.safetensors")
    assert run("compress", "prune", weights, "--macs", 0.5, *out, *factory()).code == 0
    again = ("--out", "twice.safetensors")
    result = run("compress", "prune", "pruned.safetensors", "--macs", 0.8, *again, *factory())
    assert result.code == 0, result.err
    result = run("export", "onnx", "twice.safetensors", *factory())
    assert result.code == 0, result.err
    assert Path("twice.onnx").stat().st_size < weights.stat().st_size
    result = run("export", "onnx", "twice.safetensors", *factory("normed"))
    assert result.code == 2
    assert "pruned_networks:make" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ratio", 0.99, *factory()), "at most for this network"),
        (("--ratio", 1.5, *factory()), "below 1"),
        ((*factory(),), "0 goals were given"),
        (("--ratio", 0.5, "--macs", 0.5, *factory()), "2 goals were given"),
        (("--ratio", 0.5, *factory("fail")), "no such thing"),
        (("--ratio", 0.5, *factory("text")), "returned str"),
        (("--ratio", 0.5, *factory("uncalled")), "returned Conv2d, a class"),
        (("--ratio", 0.5, *factory("halved")), "computes in float32"),
        (("--ratio", 0.5, *factory("leave")), "leave' failed: SystemExit: 3"),
        (("--ratio", 0.5, *factory("instance")), "is a module (Sequential); expected a function"),
        (("--ratio", 0.5, *factory("other")), "do not fit the network"),
        (("--ratio", 0.5, *factory("missing")), "has no function"),
        (("--ratio", 0.5, "--factory", "nowhere:make", *SHAPE), "cannot import"),
        (("--ratio", 1.5, "--factory", "nowhere:make", *SHAPE), "below 1"),
        (("--macs", 0, "--factory", "nowhere:make", *SHAPE), "above 0"),
        (("--speed-up", 0.5, "--factory", "nowhere:make", *SHAPE), "above 1"),
        (("--target-ms", -1, "--factory", "nowhere:make", *SHAPE), "above 0"),
        (("--ratio", 0.5), "--factory"),
        (("--ratio", 0.5, "--importance", "luck", *factory()), "--importance is 'luck'"),
        (("--ratio", 0.5, "--importance", "fisher", *factory()), "--data"),
        (("--ratio", 0.5, "--protect", "9", *factory()), "no module '9'"),
        (("--ratio", 0.5, "--sparsity", "1:4", *factory()), "2:4"),
        (("--ratio", 0.5, "--out", "a.onnx", *factory()), "--out is a.onnx"),
        (("--target-ms", 1e-4, *factory()), "narrowest network"),
        (("--target-ms", 1e6, *factory()), "not below"),
        (("--target-ms", 5, "--precision", "int7", *factory()), "float or int8"),
        (("--ratio", 0.5, "--precision", "int8", *factory()), "without a latency"),
        (
            ("--speed-up", 2, "--runtime", "tensorrt", *factory()),
            "--runtime is 'tensorrt'; expected",
        ),
        (
            ("--target-ms", 5, "--precision", "int8", "--runtime", "null", *factory()),
            "openvino or onnxruntime",
        ),
    ],
)
def test_bad_input_is_one_line(
    run, weights: Path, steady_clock: None, arguments, message: str
) -> None:
    result = run("compress", "prune", weights, *arguments)
    assert result.code == 2
    (error,) = (line for line in result.err.splitlines() if not line.startswith("warning: "))
    assert message in error
    assert not list(Path().glob("*.pruned.pt"))


def test_a_graph_is_refused_with_what_to_do(run, tmp_path: Path) -> None:
    graph = tmp_path / "network.pt2"
    graph.write_bytes(b"a graph")
    result = run("compress", "prune", str(graph), "--ratio", "0.3")
    assert result.code == 2
    assert "save the module's state_dict(), and give --factory" in result.err


def test_an_unknown_module_is_refused_before_the_network_runs(run, weights: Path) -> None:
    import pruned_networks

    torch.save(pruned_networks.unrunnable().state_dict(), "unrunnable.pt")
    goal = ("--target-ms", 5, "--protect", "11")
    result = run("compress", "prune", "unrunnable.pt", *goal, *factory("unrunnable"))
    assert result.code == 2
    assert "no module '11'; expected a name of its named_modules(), such as 1" in result.err


def test_damaged_edits_are_refused(run, weights: Path) -> None:
    assert run("compress", "prune", weights, "--ratio", 0.5, *factory()).code == 0
    stored = load_checkpoint("weights.pruned.pt")
    stored.edits[0]["indices"] = [99]
    save_checkpoint("damaged.pt", stored)
    result = run("export", "onnx", "damaged.pt", *factory())
    assert result.code == 2
    assert "does not fit the network" in result.err


def test_a_speed_up_below_one_is_refused_before_anything_is_timed(run, weights: Path) -> None:
    result = run("compress", "prune", weights, "--speed-up", 0.5, *factory())
    assert result.code == 2
    assert "--speed-up is 0.5; expected a number above 1" in result.err
    assert not list(Path(".framefit").glob("layers-*.json"))


def test_a_target_that_is_kept_already_is_refused_before_layers_are_timed(
    run, weights: Path, steady_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LayerTimes, "build", lambda *_: pytest.fail("layers were timed"))
    result = run("compress", "prune", weights, "--target-ms", 1e6, *factory())
    assert result.code == 2
    assert "not below the network's latency; expected less than" in result.err


@pytest.mark.slow
@pytest.mark.timing
def test_a_speed_up_is_measured(run, weights: Path) -> None:
    options = ("--speed-up", 1.3, "--json", "report.json")
    result = run("compress", "prune", weights, *options, *TIMED_NETWORK)
    assert result.code == 0, result.err
    before, after = json.loads(Path("report.json").read_text())["latency_ms"]
    assert after < before


def test_a_target_in_ms_holds_for_the_exported_network(
    run, weights: Path, steady_clock: None
) -> None:
    options = ("--target-ms", 8, "--json", "report.json", "--fewest", 4, "--round-to", 4)
    result = run("compress", "prune", weights, *options, *factory())
    assert result.code == 0, result.err
    before, after = json.loads(Path("report.json").read_text())["latency_ms"]
    assert 0.95 * 8 <= after <= 1.05 * 8 < before
    assert run("export", "onnx", "weights.pruned.pt", *factory()).code == 0
    exported = onnx.load("weights.pruned.onnx")
    assert count_weights(exported) == pytest.approx(after, rel=1e-6)
    tables = list(Path(".framefit").glob("layers-*.json"))
    assert len(tables) == 1
    assert json.loads(tables[0].read_text())


@pytest.mark.slow
@pytest.mark.timing
def test_a_latency_in_integers_is_that_of_the_quantized_network(run, weights: Path) -> None:
    import pruned_networks

    torch.save(pruned_networks.wide().state_dict(), "wide.pt")
    built = ("--factory", "pruned_networks:wide", *TIMED_NETWORK[2:])
    options = ("--speed-up", 1.3, "--precision", "int8", "--json", "report.json")
    result = run("compress", "prune", "wide.pt", *options, *built)
    assert result.code == 0, result.err
    assert "of the network in INT8" in result.out
    before, after = json.loads(Path("report.json").read_text())["latency_ms"]
    assert run("export", "onnx", "wide.pt", *built).code == 0
    (float_ms,) = NetworkClock("openvino")([onnx.load("wide.onnx")])
    assert after < before < float_ms
