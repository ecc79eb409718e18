"""The input spec is said once; whatever contradicts it is refused."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from framefit.spec_choice import choose_spec, count_channels, parse_numbers

STORED = InputSpec(color="bgr", mean=(0.5, 0.5, 0.5), pixel_scale=0.25)


def test_nothing_said_is_the_default_with_a_warning() -> None:
    spec, warning = choose_spec(None, {}, {"color": None, "mean": None})
    assert spec == InputSpec()
    assert "RGB, 1/255, stretch" in warning
    grey, _ = choose_spec(None, {}, {}, channels=1)
    assert grey.mean == (0.0,)


def test_stored_spec_wins_without_a_warning() -> None:
    assert choose_spec(STORED, {}, {}) == (STORED, "")
    assert choose_spec(STORED, {"color": "bgr"}, {"pixel_scale": 0.25}) == (STORED, "")


def test_options_complete_the_settings() -> None:
    spec, warning = choose_spec(None, {"color": "bgr"}, {"mean": (1.0, 2.0, 3.0)})
    assert spec == InputSpec(color="bgr", mean=(1.0, 2.0, 3.0))
    assert warning == ""


@pytest.mark.parametrize(
    ("stored", "configured", "given_values"),
    [
        (STORED, {}, {"color": "rgb"}),
        (STORED, {"color": "rgb"}, {}),
        (STORED, {}, {"mean": (0.5,)}),
        (STORED, {}, {"mean": (0.5, 0.5, 0.4)}),
        (STORED, {}, {"resize": "letterbox"}),
        (None, {"color": "bgr"}, {"color": "rgb"}),
        (None, {"mean": [1, 2, 3]}, {"mean": (1.0, 2.0, 4.0)}),
    ],
)
def test_contradictions_are_refused(stored, configured, given_values) -> None:
    with pytest.raises(InputError, match="leave --"):
        choose_spec(stored, configured, given_values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4))
def test_numbers_as_typed(values: list[float]) -> None:
    assert parse_numbers(",".join(repr(value) for value in values), "--mean") == tuple(values)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1;2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--mean"):
        parse_numbers(text, "--mean")


@pytest.mark.parametrize(
    ("shapes", "channels"),
    [
        ({"x": (1, 3, 8, 8)}, 3),
        ({"x": (1, 1, 8, 8)}, 1),
        ({"x": (1, 8, 8, 1)}, 1),
        ({"x": (1, 1, 8, 8), "steps": (1, 4)}, 1),
        ({"left": (1, 1, 8, 8), "right": (1, 1, 8, 8)}, 1),
        ({"color": (1, 3, 8, 8), "depth": (1, 1, 8, 8)}, 3),
        ({"points": (1, 64, 4)}, 3),
    ],
)
def test_grey_pictures_have_one_channel(shapes, channels) -> None:
    assert count_channels(shapes) == channels


def test_a_grey_network_beside_settings_of_colors(run, folder: Path, pictures: Path) -> None:
    """The settings' order of colors says nothing of how many there are."""
    torch = pytest.importorskip("torch")
    (folder / "grey_networks.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 2, 3))\n"
    )
    (folder / "framefit.toml").write_text('[input]\ncolor = "rgb"\n')
    sys.path.insert(0, str(folder))
    try:
        import grey_networks

        torch.save(grey_networks.make().state_dict(), "grey.pt")
        network = ("grey.pt", "--factory", "grey_networks:make", "--input-shape", "1,1,16,24")
        data = ("--data", pictures)
        for command in (
            ("export", "onnx", *network),
            ("compress", "quantize", "grey.onnx", *data, "--no-timing"),
            ("engines", "run", "grey.int8.onnx", *data),
            ("compress", "prune", *network, *data, "--ratio", 0.3),
            ("compress", "distill", *network, "--teacher", "grey.pt", *data, "--steps", 1),
            ("compress", "qat", "grey.int8.onnx", "--teacher", "grey.onnx", *data, "--steps", 1),
        ):
            result = run(*command)
            assert result.code == 0, (command, result.err)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("grey_networks", None)
