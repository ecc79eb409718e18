"""Data of Python programs, each in the form in which a program has them."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from artifacts.errors import InputError
from artifacts.samples import TensorShape
from framefit.program_samples import ProgramSamples, open_items, read_first

INPUTS = {"image": TensorShape((1, 3, 4, 5))}
PICTURES = np.random.default_rng(0).random((12, 3, 4, 5)).astype(np.float32)


class Stream(IterableDataset):
    """Pictures one after the other, without a number."""

    def __iter__(self):
        return iter(torch.from_numpy(PICTURES))


FORMS = {
    "array": lambda: PICTURES,
    "tensor": lambda: torch.from_numpy(PICTURES),
    "arrays by name": lambda: {"image": PICTURES},
    "arrays of one other name": lambda: {"x": PICTURES},
    "list": lambda: [picture[None] for picture in PICTURES],
    "list of dictionaries": lambda: [{"image": item[None], "label": 3} for item in PICTURES],
    "list of batches": lambda: [PICTURES[:4], PICTURES[4:8], PICTURES[8:]],
    "dataset": lambda: TensorDataset(torch.from_numpy(PICTURES), torch.arange(12)),
    "loader": lambda: DataLoader(TensorDataset(torch.from_numpy(PICTURES)), batch_size=5),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
    "generator": lambda: (picture[None] for picture in PICTURES),
    "double": lambda: PICTURES.astype(np.float64),
    "arguments and labels": lambda: [({"image": item[None]}, 1) for item in PICTURES],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_samples(form: str) -> None:
    samples = ProgramSamples(open_items(FORMS[form]()), INPUTS)
    assert len(samples) == 12
    for sample, picture in zip(samples, PICTURES, strict=True):
        assert sample["image"].dtype == np.float32
        assert np.array_equal(sample["image"], picture[None])


def test_samples_are_taken_evenly_where_they_can_be() -> None:
    spread = ProgramSamples(open_items(PICTURES, 4), INPUTS, 4)
    found = [int(np.flatnonzero((s["image"] == PICTURES).all((1, 2, 3)))[0]) for s in spread]
    assert [place // 3 for place in found] == [0, 1, 2, 3]
    batches = ProgramSamples(open_items([PICTURES[:6], PICTURES[6:]], 6), INPUTS, 6)
    assert len(batches) == 6
    first = ProgramSamples(open_items(iter(PICTURES), 4), INPUTS, 4)
    assert np.array_equal(first[3]["image"][0], PICTURES[3])


def test_a_dataset_is_read_when_a_sample_is_asked_for() -> None:
    class Counted(TensorDataset):
        read = 0

        def __getitem__(self, index):
            self.read += 1
            return super().__getitem__(index)

    data = Counted(torch.from_numpy(PICTURES))
    samples = ProgramSamples(open_items(data), INPUTS)
    assert data.read == 1
    assert np.array_equal(samples[7]["image"][0], PICTURES[7])
    assert data.read == 2


def test_bfloat16_and_gradients_are_no_obstacle() -> None:
    tensors = torch.from_numpy(PICTURES).bfloat16().requires_grad_()
    samples = ProgramSamples(open_items(tensors), INPUTS)
    assert np.allclose(samples[0]["image"], PICTURES[:1], atol=4e-3)


def test_inputs_without_a_batch_axis_get_an_array_each() -> None:
    inputs = {**INPUTS, "pose": TensorShape((3, 4))}
    poses = np.arange(144, dtype=np.float32).reshape(12, 3, 4)
    samples = ProgramSamples(open_items({"image": PICTURES, "pose": poses}), inputs)
    assert np.array_equal(samples[5]["pose"], poses[5])
    loader = DataLoader(TensorDataset(torch.from_numpy(PICTURES), torch.from_numpy(poses)), 4)
    assert np.array_equal(ProgramSamples(open_items(loader), inputs)[5]["pose"], poses[5])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "the data have no samples; expected at least 1"),
        (iter(()), "the data have no samples"),
        (7, "the data are a int; expected items"),
        ({"image": PICTURES, "x": PICTURES[:3]}, r"\[3, 12\] samples; expected arrays of as many"),
        ([{"left": PICTURES, "right": 0}], "an item has left, right; expected image"),
        ([PICTURES[0, :2]], r"'image' has the shape \[2, 4, 5\]; expected \[1, 3, 4, 5\], or more"),
        ([PICTURES[:0]], r"'image' has the shape \[0, 3, 4, 5\]"),
        ([(PICTURES * 255).astype(np.uint8)], "'image' is uint8; expected float32"),
        ([["a"]], "'image' is a str; expected an array or a tensor"),
        ([[]], "an item has 0 values; expected image first"),
    ],
)
def test_what_does_not_fit_is_named(data, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ProgramSamples(open_items(data), INPUTS)


def test_a_later_batch_is_refused() -> None:
    samples = ProgramSamples(open_items([PICTURES[:1], PICTURES[:2]]), INPUTS)
    with pytest.raises(InputError, match="item 1 holds 2 samples and the first one"):
        samples[1]


def test_unlike_batches_of_one_item_are_refused() -> None:
    inputs = {**INPUTS, "mask": TensorShape((1, 4, 5))}
    item = {"image": PICTURES[:4], "mask": PICTURES[:2, 0]}
    with pytest.raises(InputError, match=r"item 0 has .* samples; expected as many of each input"):
        ProgramSamples(open_items([item]), inputs)


def test_a_module_of_several_arguments_needs_all() -> None:
    class Stereo(torch.nn.Module):
        def forward(self, left, right, scale=1.0):
            return left - right

    first = read_first(Stereo(), open_items([(PICTURES[:2], PICTURES[2:4], "label")]))
    assert {name: array.shape for name, array in first.items()} == {
        "left": (1, 3, 4, 5),
        "right": (1, 3, 4, 5),
    }
    with pytest.raises(InputError, match="an item is a ndarray; expected one value for left, righ"):
        read_first(Stereo(), open_items(PICTURES))


class Named(torch.nn.Module):
    """A network that calls its only input `image`."""

    def forward(self, image, mask=None):
        return image


def test_dictionaries_name_the_only_argument_of_a_module() -> None:
    batches = [{"id": ["a"], "label": torch.ones(4), "image": PICTURES[:4]} for _ in range(2)]
    inputs = {"input": TensorShape((1, 3, 4, 5))}
    items = open_items(batches).for_module(Named())
    assert read_first(Named(), open_items(batches))["input"].shape == (1, 3, 4, 5)
    assert np.array_equal(ProgramSamples(items, inputs)[3]["input"], PICTURES[3:4])
    both = open_items([{"image": PICTURES[:1], "input": PICTURES[1:2]}]).for_module(Named())
    assert np.array_equal(ProgramSamples(both, inputs)[0]["input"], PICTURES[1:2])
    others = open_items([{"picture": PICTURES[:1], "label": 3}]).for_module(Named())
    with pytest.raises(InputError, match="an item has picture, label; expected image"):
        ProgramSamples(others, inputs)


def test_several_inputs_may_be_a_tuple_in_front_of_labels() -> None:
    numbers = np.arange(12, dtype=np.float32)[:, None]
    data = TensorDataset(torch.from_numpy(PICTURES), torch.from_numpy(numbers))
    items = [((picture, number), 3) for picture, number in DataLoader(data, batch_size=4)]
    inputs = {"image": TensorShape((1, 3, 4, 5)), "number": TensorShape((1, 1))}
    samples = ProgramSamples(open_items(items), inputs)
    assert np.array_equal(samples[5]["image"], PICTURES[5:6])
    assert samples[5]["number"] == 5


def test_a_single_number_is_no_data() -> None:
    with pytest.raises(InputError, match="single number"):
        open_items(torch.tensor(1.0))
