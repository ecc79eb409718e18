"""What training reads is typed as the network's inputs, and mirrored only along its width."""

from pathlib import Path

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.samples import TensorShape
from framefit.training_samples import IMAGE, open_training_samples


def save(folder: Path, shape: tuple[int, ...], dtype: str) -> str:
    values = np.random.default_rng(0).integers(0, 255, (4, *shape)).astype(dtype)
    np.savez(folder / "s.npz", image=values)
    return str(folder / "s.npz")


def test_pixels_of_a_network_that_takes_bytes_stay_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data, shapes = save(tmp_path, (8, 12, 3), "uint8"), {IMAGE: (1, 8, 12, 3)}
    tensors = {IMAGE: TensorShape(shapes[IMAGE], "uint8")}
    opened = open_training_samples(data, shapes, InputSpec(), tensors=tensors)
    assert opened.training[0][IMAGE].dtype == np.uint8
    with pytest.raises(InputError, match="raw pixels"):
        open_training_samples(data, shapes, InputSpec())


@pytest.mark.parametrize(
    ("shape", "is_mirrored"),
    [((3, 8, 12), True), ((3, 8, 3), True), ((8, 8, 12), True), ((8, 12, 3), False), ((7,), False)],
)
def test_colors_that_come_last_are_not_mirrored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], is_mirrored: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    data = save(tmp_path, shape, "float32")
    opened = open_training_samples(data, {IMAGE: (1, *shape)}, InputSpec())
    assert opened.is_mirrored is is_mirrored
