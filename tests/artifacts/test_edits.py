"""Structural edits: what they may say, and that nothing else is accepted."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from artifacts.edits import apply_edits  # noqa: E402
from artifacts.errors import InputError  # noqa: E402


def keep(**changes):
    return {"kind": "keep", "tensor": "0.weight", "axis": 0, "indices": [0, 2], **changes}


def attribute(**changes):
    return {
        "kind": "attribute",
        "module": "0",
        "name": "out_channels",
        "value": 2,
        **changes,
    }


SETTINGS = {"heads": 4, "sizes": (4, 2), "kind": "plain"}


def build() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LayerNorm(4))
    network[0].settings = SETTINGS
    return network


def test_edits_cut_weights_and_set_numbers() -> None:
    edits = [
        keep(),
        keep(tensor="0.bias"),
        attribute(),
        attribute(module="1", name="normalized_shape", value=[2]),
    ]
    network, original = apply_edits(build(), edits), build()
    assert torch.equal(network[0].weight, original[0].weight[[0, 2]])
    assert network[0].out_channels == 2
    assert network[1].normalized_shape == (2,)
    assert network[0](torch.zeros(1, 3, 4, 4)).shape[1] == 2


def test_a_number_in_settings_is_set_and_the_dictionary_of_others_stays() -> None:
    edits = [
        attribute(name="settings.heads", value=2),
        attribute(name="settings.sizes", value=[3, 2]),
    ]
    network = apply_edits(build(), edits)
    assert network[0].settings == {"heads": 2, "sizes": (3, 2), "kind": "plain"}
    assert SETTINGS == {"heads": 4, "sizes": (4, 2), "kind": "plain"}


@pytest.mark.parametrize(
    "edit",
    [
        {"kind": "run", "code": "print()"},
        "keep",
        {},
        keep(tensor="9.weight"),
        keep(tensor="0.__class__"),
        keep(axis=7),
        keep(axis=-1),
        keep(indices=[]),
        keep(indices=[2, 2]),
        keep(indices=[0, 4]),
        keep(indices=[-1]),
        keep(indices="all"),
        attribute(name="forward", value=1),
        attribute(name="settings.missing", value=1),
        attribute(name="settings.kind", value=1),
        attribute(name="out_channels.heads", value=1),
        attribute(name="_parameters.weight", value=1),
        attribute(name="new_number"),
        attribute(name="__class__", value=1),
        attribute(value="print"),
        attribute(value=0),
        attribute(value=True),
        attribute(name="padding_mode", value=1),
        attribute(module="1", name="normalized_shape", value=[2, 2]),
        attribute(module="nowhere"),
    ],
)
def test_a_malformed_edit_is_one_line(edit) -> None:
    with pytest.raises(InputError, match="edit"):
        apply_edits(build(), [edit])
