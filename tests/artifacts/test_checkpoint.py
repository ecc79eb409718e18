"""Checkpoints: round trips, and files that would run code and must not."""

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from artifacts.checkpoint import (  # noqa: E402
    Checkpoint,
    build_from_factory,
    build_module,
    load_checkpoint,
    load_state_dict,
    save_checkpoint,
)
from artifacts.errors import InputError, UnavailableError, UnsafeFileError  # noqa: E402
from artifacts.input_spec import InputSpec  # noqa: E402
from artifacts.state_dict import fit_weights  # noqa: E402

FACTORY = """
import torch
def make():
    return torch.nn.Conv2d(3, 4, 3)
def make_from(config):
    return torch.nn.Conv2d(3, config["channels"], 3)
def fail():
    raise KeyError("no such thing")
def text():
    return "no module"
"""


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(3, 4, 3)


@pytest.fixture
def my_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the current folder, which is not on Python's path."""
    (tmp_path / "my_networks.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    yield "my_networks"
    sys.modules.pop("my_networks", None)


def make(network: nn.Module, **changes: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "builder": "my_networks:make_from",
        "config": {"channels": 4, "names": ["a"], "nested": {"x": (1, 2.5)}},
        "input_spec": InputSpec(color="bgr", mean=(1.0, 2.0, 3.0)),
        "state_dict": network.state_dict(),
    }
    return Checkpoint(**{**values, **changes})


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_flipped_bit_of_a_weight_is_refused(tmp_path: Path, network, suffix: str) -> None:
    """Row 31: one bit of a mantissa leaves a weight that nobody would suspect."""
    path = save_checkpoint(tmp_path / f"m{suffix}", make(network))
    content = bytearray(path.read_bytes())
    values = network.weight.detach().numpy().tobytes()
    content[content.index(values) + 8] ^= 0x01
    path.write_bytes(content)
    with pytest.raises(InputError, match="copy it again"):
        load_checkpoint(path)


def test_a_safetensors_checkpoint_comes_back_whole(tmp_path: Path, network) -> None:
    path = save_checkpoint(tmp_path / "m.safetensors", make(network))
    loaded = load_checkpoint(path)
    assert all(torch.equal(loaded.state_dict[k], v) for k, v in network.state_dict().items())
    again = save_checkpoint(tmp_path / "again.safetensors", loaded)
    assert again.read_bytes() == path.read_bytes()


def test_round_trip_gives_the_same_network(tmp_path: Path, network, my_module: str) -> None:
    path = save_checkpoint(tmp_path / "m.pt", make(network))
    loaded = load_checkpoint(path)
    assert loaded.config == make(network).config
    assert loaded.input_spec == InputSpec(color="bgr", mean=(1.0, 2.0, 3.0))
    built = build_module(loaded, factory="my_networks:make_from")
    x = torch.randn(1, 3, 5, 5)
    assert torch.equal(built(x), network(x))
    assert not built.training
    again = save_checkpoint(tmp_path / "again.pt", loaded)
    assert again.read_bytes() == path.read_bytes()


def test_builder_of_the_file_is_not_run_unless_the_user_names_it(
    tmp_path: Path, network, my_module: str
) -> None:
    stored = make(network)
    for factory in (None, "other:make"):
        with pytest.raises(UnsafeFileError, match="'my_networks:make_from'"):
            build_module(stored, factory=factory)
    assert "my_networks" not in sys.modules


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_the_shapes_of_the_inputs_come_back(tmp_path: Path, network, suffix: str) -> None:
    shapes = {"left": (1, 3, 5, 5), "right": (1, 3, 5, 5)}
    path = save_checkpoint(tmp_path / f"m{suffix}", make(network, shapes=shapes))
    assert load_checkpoint(path).shapes == shapes


@pytest.mark.parametrize("shapes", [{"x": [1, -3]}, {"x": [1, 2.5]}, {"x": "1,3"}, {3: [1]}])
def test_shapes_that_are_none_are_refused(tmp_path: Path, network, shapes) -> None:
    content = torch.load(save_checkpoint(tmp_path / "m.pt", make(network)), weights_only=True)
    path = tmp_path / "other.pt"
    torch.save({**content, "shapes": shapes}, path)
    with pytest.raises(InputError, match="a shape for each input"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "builder",
    [
        "os:system",
        "perception:build",
        "perception.network:torch",
        "perception.network:DEFAULT_CONFIG",
        "perception.network:build.__globals__",
        "perception.network.sys:exit",
        "perception.train:train",
        "perceptionx.network:build",
        "perception..network:build",
        "perception.network:build\n",
    ],
)
def test_only_build_functions_of_perception_are_allowed(network, builder: str) -> None:
    with pytest.raises(UnsafeFileError):
        build_module(make(network, builder=builder))


def test_imported_name_in_a_perception_module_is_not_a_builder(
    network, monkeypatch: pytest.MonkeyPatch
) -> None:
    import perception.network

    monkeypatch.setattr(perception.network, "build_evil", print, raising=False)
    with pytest.raises(UnsafeFileError, match="not defined in that module"):
        build_module(make(network, builder="perception.network:build_evil"))


def test_checkpoint_of_our_network_is_built(tmp_path: Path) -> None:
    from perception.network import build

    config = {"height": 64, "width": 64, "neck_channels": 8, "heads": {"depth": {}}}
    own = build(config)
    stored = make(own, builder="perception.network:build", config=config)
    loaded = load_checkpoint(save_checkpoint(tmp_path / "m.pt", stored))
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(build_module(loaded)(x)["depth"], own.eval()(x)["depth"])


def test_other_formats_and_files_are_refused(tmp_path: Path, network) -> None:
    path = tmp_path / "m.pt"
    for content, message in (
        ({"format": "framefit/99"}, "framefit/99"),
        ({"format": "framefit/1", "builder": "x:y"}, "no 'config'"),
        ({"format": "other", "state_dict": network.state_dict()}, "'other'"),
        ({"epoch": 3}, "of another format"),
        ([1, 2], "of another format"),
        (network.state_dict(), "plain state dict.*--factory"),
        ({"state_dict": network.state_dict()}, "plain state dict"),
    ):
        torch.save(content, path)
        with pytest.raises(InputError, match=message):
            load_checkpoint(path)
    path.write_text("text")
    with pytest.raises(InputError, match="text file"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="No such file"):
        load_checkpoint(tmp_path / "none.pt")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, float("nan")]),
        torch.tensor([float("inf"), 1.0]).half(),
        torch.tensor([[1.0, 0.0]]).to_sparse(),
        torch.ones(1).expand(2**40),
    ],
    ids=["nan", "inf", "sparse", "expanded"],
)
def test_odd_weights_are_refused_by_name(tmp_path: Path, tensor) -> None:
    torch.save({"good": torch.ones(2), "bad.weight": tensor}, tmp_path / "m.pt")
    with pytest.raises(InputError, match=r"'bad\.weight'|could run code"):
        load_state_dict(tmp_path / "m.pt")


def test_wrappers_are_taken_off(tmp_path: Path, network) -> None:
    weights = network.state_dict()
    for content in (weights, {"state_dict": weights, "epoch": 1}, {"model": weights}):
        torch.save(content, tmp_path / "m.pt")
        assert load_state_dict(tmp_path / "m.pt").keys() == weights.keys()


class Holder(nn.Module):
    """A network that a trainer holds by some name, beside what only training has."""

    def __init__(self, name: str, part: nn.Module) -> None:
        super().__init__()
        self.add_module(name, part)
        self.register_buffer("class_weights", torch.ones(3))


def make_deep() -> nn.Sequential:
    return nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), nn.Conv2d(4, 2, 1))


def add_infix(weights: dict[str, Any], infix: str) -> dict[str, Any]:
    return {name.replace("0.", f"0.{infix}.", 1): value for name, value in weights.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda network: nn.DataParallel(network).state_dict(),
        lambda network: torch.compile(network).state_dict(),
        lambda network: torch.optim.swa_utils.AveragedModel(network).state_dict(),
        lambda network: Holder("model", network).state_dict(),
        lambda network: Holder("net", nn.DataParallel(network)).state_dict(),
        lambda network: add_infix(network.state_dict(), "_orig_mod"),
        lambda network: add_infix(network.state_dict(), "_checkpoint_wrapped_module"),
        lambda network: Holder(
            "model", nn.ModuleList([nn.Linear(2, 2), torch.compile(network)])
        ).state_dict(),
        lambda network: {name: value.half() for name, value in network.state_dict().items()},
    ],
    ids=["ddp", "compiled", "ema", "lightning", "both", "part", "recompute", "deep", "half"],
)
def test_weights_are_found_behind_the_names_that_training_gave_them(tmp_path: Path, wrap) -> None:
    network = make_deep()
    torch.save({"state_dict": wrap(network), "epoch": 3}, tmp_path / "m.ckpt")
    loaded = fit_weights(make_deep(), load_state_dict(tmp_path / "m.ckpt"))
    for name, value in network.state_dict().items():
        assert torch.allclose(loaded.state_dict()[name], value, atol=1e-3)
    assert loaded[1].weight.dtype == torch.float32


@pytest.mark.parametrize("prefix", ["", "module.", "model."])
def test_counters_of_batch_norms_may_lack_and_counts_of_a_profiler_be_there(
    prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    weights = make_deep().state_dict()
    converted = {
        prefix + name: value for name, value in weights.items() if "num_batches" not in name
    }
    loaded = fit_weights(make_deep(), converted)
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in weights.items())
    assert not caplog.messages
    profiled = {"0.0.total_ops": torch.zeros(1), "total_params": torch.ones(1)}
    fit_weights(make_deep(), weights | profiled)
    assert caplog.messages == ["counts of a profiler, not used: 0.0.total_ops, total_params"]
    with pytest.raises(InputError, match=r"1 missing: 0\.0\.weight"):
        fit_weights(make_deep(), {k: v for k, v in weights.items() if k != "0.0.weight"})


class Tied(nn.Module):
    """Two levels with one head under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fine, self.coarse = (
            nn.Conv2d(3, 4, 3),
            nn.Conv2d(4, 2, 1),
            nn.Conv2d(4, 2, 1),
        )
        self.coarse.weight, self.coarse.bias = self.fine.weight, self.fine.bias


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("kept", ["fine", "coarse"])
def test_tied_weights_may_be_in_a_file_under_one_name(prefix: str, kept: str) -> None:
    network = Tied()
    left = {"fine", "coarse"} - {kept}
    held = {
        prefix + name: value
        for name, value in network.state_dict().items()
        if name.partition(".")[0] not in left
    }
    loaded = fit_weights(Tied(), held)
    assert torch.equal(loaded.fine.weight, network.fine.weight)
    assert loaded.coarse.bias is loaded.fine.bias
    assert torch.equal(loaded.coarse.bias, network.fine.bias)
    with pytest.raises(InputError, match=r"4 missing: fine\.weight, fine\.bias"):
        fit_weights(Tied(), {k: v for k, v in held.items() if kept not in k})


def test_counters_that_are_there_are_loaded_behind_a_prefix() -> None:
    network = make_deep()
    network[0][1].num_batches_tracked.fill_(7)
    held = {f"module.{name}": value for name, value in network.state_dict().items()}
    assert fit_weights(make_deep(), held)[0][1].num_batches_tracked == 7


def test_what_is_beside_the_network_is_named(network, caplog) -> None:
    fit_weights(nn.Conv2d(3, 4, 3), Holder("model", network).state_dict())
    assert "below 'model.'" in caplog.text
    assert "class_weights" in caplog.text


class Versioned(nn.Conv2d):
    """A layer that asks in which layout its weights were stored, as torchvision's MNASNet does."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version") != 2:
            raise ValueError("version should be set to 2")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_layers_that_ask_for_the_version_of_their_weights_get_it(tmp_path):
    network = nn.Sequential(Versioned(3, 4, 3))
    torch.save(network.state_dict(), tmp_path / "m.pt")
    loaded = fit_weights(nn.Sequential(Versioned(3, 4, 3)), load_state_dict(tmp_path / "m.pt"))
    assert torch.equal(loaded[0].weight, network[0].weight)


def test_a_network_that_calls_its_own_part_module_keeps_its_names(tmp_path: Path, network) -> None:
    holder = nn.Module()
    holder.module = network
    torch.save(holder.state_dict(), tmp_path / "m.pt")
    fit_weights(holder, load_state_dict(tmp_path / "m.pt"))


def test_a_network_that_is_there_twice_is_not_guessed(network) -> None:
    twice = {
        f"{prefix}{name}": value
        for prefix in ("student.", "teacher.")
        for name, value in network.state_dict().items()
    }
    with pytest.raises(InputError, match=r"2 times: below student\., teacher\."):
        fit_weights(nn.Conv2d(3, 4, 3), twice)


def shift(weights: dict[str, Any], by: float, prefix: str = "") -> dict[str, Any]:
    return {f"{prefix}{name}": value + by for name, value in weights.items()}


@pytest.mark.parametrize(
    ("wrap", "taken"),
    [
        (lambda w: {"state_dict": w, "state_dict_ema": shift(w, 1)}, "state_dict_ema"),
        (lambda w: {"model": w, "ema": {"module": shift(w, 1), "updates": 7}}, "ema"),
        (lambda w: {"model": w, "model_ema": shift(w, 1, "module.")}, "model_ema"),
        (lambda w: {"state_dict": shift(w, 0, "model.") | shift(w, 1, "model_ema.")}, "model_ema"),
        (
            lambda w: {"ema_state_dict": w, "state_dict": shift(w, 1), "message_hub": {}},
            "'state_dict'",
        ),
        (lambda w: {"generator": shift(w, 1), "epoch": 3}, "generator"),
        (lambda w: {"params": w, "params_ema": shift(w, 1, "_orig_mod.")}, "params_ema"),
        (lambda w: {"model": shift(w, 1), "ema": {"shadow": {"weight": w["weight"]}}}, "model"),
    ],
    ids=["timm", "detr", "torchvision", "lightning", "mm", "only", "sr", "in part"],
)
def test_of_averaged_weights_and_others_the_averaged_are_taken_and_named(
    tmp_path: Path, network, wrap, taken, caplog
) -> None:
    torch.save(wrap(network.state_dict()), tmp_path / "m.pt")
    loaded = fit_weights(nn.Conv2d(3, 4, 3), load_state_dict(tmp_path / "m.pt"))
    assert torch.allclose(loaded.weight, network.weight + 1)
    assert taken in caplog.text


def test_of_several_unknown_state_dicts_none_is_guessed(tmp_path: Path, network) -> None:
    weights = network.state_dict()
    torch.save({"generator": weights, "critic": weights}, tmp_path / "m.pt")
    with pytest.raises(InputError, match=r"several \(generator, critic\): save the one"):
        load_state_dict(tmp_path / "m.pt")


def test_layers_of_other_shapes_are_not_taken_for_the_network() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).state_dict()
    with pytest.raises(InputError, match="do not fit the network"):
        fit_weights(nn.Conv2d(3, 4, 3), layers)
    loaded = fit_weights(nn.Conv2d(8, 4, 3), layers)
    assert torch.equal(loaded.weight, layers["2.weight"])


def test_layers_that_have_not_run_yet_are_refused() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    with pytest.raises(InputError, match=r"'2\.weight' has no shape.*run it once on a sample"):
        fit_weights(network, {"2.weight": torch.ones(2, 4)})


def test_factory_of_the_current_folder(tmp_path: Path, network, my_module: str) -> None:
    built = build_from_factory("my_networks:make", network.state_dict())
    assert torch.equal(built.weight, network.weight)
    assert str(tmp_path) not in sys.path
    for factory, message in (
        ("my_networks:none", "no function 'none'"),
        ("my_networks:fail", "KeyError"),
        ("my_networks:text", "returned str"),
        ("no_such_module:make", "cannot import"),
        ("my_networks", "package.module:function"),
        ("my_networks:make()", "package.module:function"),
    ):
        with pytest.raises(InputError, match=message):
            build_from_factory(factory, network.state_dict())


def test_weights_that_do_not_fit_are_refused_with_the_first_five(my_module: str) -> None:
    names = {f"extra{index}": torch.ones(1) for index in range(9)}
    with pytest.raises(InputError) as caught:
        build_from_factory("my_networks:make", {"weight": torch.ones(2, 2), **names})
    message = str(caught.value)
    assert "1 missing: bias" in message
    assert "9 not in the network: extra0, extra1, extra2, extra3, extra4 …" in message
    assert "weight [2, 2] instead of [4, 3, 3, 3]" in message


def test_old_torch_that_is_not_safe_is_refused(
    tmp_path: Path, network, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_checkpoint(tmp_path / "m.pt", make(network))
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
    with pytest.raises(UnavailableError, match=r"torch 2\.5\.1.*2\.6 or newer"):
        load_checkpoint(path)
