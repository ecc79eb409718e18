"""Only what pays is replaced, and what is stored rebuilds the same network."""

import copy
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from artifacts.edits import apply_edits
from artifacts.errors import InputError
from compress.substitute.api import choose_substitutions
from compress.substitute.candidates import find_candidates


def network() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("efficientnet_b0", pretrained=False, num_classes=3).eval()


class Prices:
    """A clock that charges for each operator by its class."""

    def __init__(self, **prices: float) -> None:
        self.prices = prices

    def __call__(self, modules) -> list[float]:
        return [
            10 + sum(self.prices.get(type(p).__name__, 0) for p in m.modules()) for m in modules
        ]


def test_every_kind_is_found_once() -> None:
    found = {item.kind: item for item in find_candidates(network())}
    assert set(found) == {"silu", "squeeze-excite"}
    assert found["squeeze-excite"].by == "identity"
    assert not any(".se." in name for name in found["silu"].modules)


def test_a_module_that_layers_have_in_common_is_replaced_in_each() -> None:
    """As YOLO's layers have one SiLU; a layer that is used twice is changed once."""
    common = nn.SiLU()
    layers = [nn.Sequential(nn.Conv2d(4, 4, 1), common) for _ in range(3)]
    module = nn.Sequential(*layers, layers[0]).eval()
    (found,) = find_candidates(module)
    assert found.modules == ("0.1", "1.1", "2.1")
    assert not any(isinstance(p, nn.SiLU) for p in apply_edits(module, found.edits()).modules())


@pytest.mark.parametrize(
    ("prices", "kept"),
    [
        ({"SiLU": 1.0, "SqueezeExcite": 1.0}, {"silu", "squeeze-excite"}),
        ({"SiLU": 1.0, "Identity": 1.0}, {"silu"}),
        ({"ReLU": 1.0, "SqueezeExcite": 0.01}, set()),
    ],
)
def test_only_what_pays_is_replaced(prices, kept) -> None:
    module = network()
    before = copy.deepcopy(module.state_dict())
    result = choose_substitutions(module, Prices(**prices))
    assert {trial.kind for trial in result.trials if trial.is_kept} == kept
    assert bool(result.edits) == bool(kept)
    assert module.state_dict().keys() == before.keys()
    left = {item.kind for item in find_candidates(result.module)}
    assert left == {"silu", "squeeze-excite"} - kept


def test_replayed_edits_rebuild_the_network() -> None:
    result = choose_substitutions(network(), Prices(SiLU=1.0, SqueezeExcite=1.0))
    again = apply_edits(network(), result.edits)
    again.load_state_dict(result.module.state_dict())
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(again(x), result.module(x))
        assert not torch.equal(again(x), network()(x))


def test_replacing_what_computes_the_same_changes_nothing() -> None:
    """A PReLU with slope 0 is a ReLU."""
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.PReLU(4, init=0.0), nn.Conv2d(4, 2, 1)).eval()
    result = choose_substitutions(module, Prices(PReLU=5.0))
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(result.module(x), module(x))


def test_nothing_to_do_is_an_error() -> None:
    with pytest.raises(InputError, match="no operator with a cheaper stand-in"):
        choose_substitutions(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), Prices())
    with pytest.raises(InputError, match=r"no 'prelu'.*silu"):
        choose_substitutions(network(), Prices(), ["prelu"])


@pytest.mark.parametrize(
    "edit",
    [
        {"kind": "replace", "module": "0", "by": "os.system"},
        {"kind": "replace", "module": "nowhere.0", "by": "relu"},
        {"kind": "replace", "module": "", "by": "relu"},
    ],
)
def test_edits_that_say_anything_else_are_refused(edit) -> None:
    with pytest.raises(InputError, match="does not fit"):
        apply_edits(nn.Sequential(nn.SiLU()), [edit])


def test_a_substituted_checkpoint_loads_and_goes_on(tmp_path: Path) -> None:
    from artifacts.checkpoint import build_module, load_checkpoint
    from framefit.trainable_network import Trainable, save_edited, save_trained
    from perception.network import build
    from perception.train_checkpoint import INPUT_SPEC, save_network

    def opened(module: nn.Module) -> Trainable:
        return Trainable(
            module=module, shapes={}, own_shapes={}, spec=INPUT_SPEC, is_spec_assumed=False
        )

    config = {"backbone": "mobilenetv3_small_100", "height": 64, "width": 64, "neck_channels": 8}
    original = build(config).eval()
    save_network(tmp_path / "a.pt", original, INPUT_SPEC)
    result = choose_substitutions(original, Prices(Hardswish=1.0, SqueezeExcite=1.0))
    path = tmp_path / "b.pt"
    save_edited(tmp_path / "a.pt", opened(original), result.module, result.edits, path, None)
    loaded = build_module(load_checkpoint(path))
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        wanted, got = result.module.eval()(x), loaded(x)
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)
    save_trained(path, opened(loaded), tmp_path / "c.pt")
    assert load_checkpoint(tmp_path / "c.pt").edits == load_checkpoint(path).edits


@pytest.mark.parametrize("is_assumed", [True, False])
def test_a_spec_that_nothing_said_is_not_stated(tmp_path: Path, is_assumed: bool) -> None:
    from artifacts.checkpoint import load_checkpoint
    from artifacts.input_spec import InputSpec
    from framefit.trainable_network import Trainable, save_edited, save_trained

    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SiLU())
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    shapes = {"x": (1, 3, 8, 8)}
    assumed = Trainable(
        module=module, shapes=shapes, own_shapes=shapes, spec=InputSpec(), is_spec_assumed=True
    )
    edited = tmp_path / "edited.pt"
    save_edited(tmp_path / "weights.pt", assumed, module, [], edited, "some.package:build")
    assert load_checkpoint(edited).known_spec is None
    assert load_checkpoint(edited).shapes == shapes
    spec = InputSpec(mean=(0.4, 0.4, 0.4))
    later = Trainable(
        module=module, shapes=shapes, own_shapes=shapes, spec=spec, is_spec_assumed=is_assumed
    )
    save_trained(edited, later, tmp_path / "trained.pt")
    known = load_checkpoint(tmp_path / "trained.pt").known_spec
    assert known == (None if is_assumed else spec)
