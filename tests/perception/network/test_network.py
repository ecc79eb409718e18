import pytest
import torch

from artifacts.errors import InputError
from perception.network import build

TINY = {"backbone": "test_resnet", "height": 64, "width": 96, "neck_channels": 8}


def run(network, height=64, width=96):
    with torch.inference_mode():
        return network.eval()(torch.zeros(2, 3, height, width))


def test_outputs_have_the_contracted_names_and_shapes():
    network = build(TINY)
    outputs = run(network)
    assert tuple(outputs) == network.output_names
    shapes = {name: tuple(output.shape) for name, output in outputs.items()}
    assert shapes == {
        "detection_class_8": (2, 3, 8, 12),
        "detection_box_8": (2, 4, 8, 12),
        "detection_centre_8": (2, 1, 8, 12),
        "detection_class_16": (2, 3, 4, 6),
        "detection_box_16": (2, 4, 4, 6),
        "detection_centre_16": (2, 1, 4, 6),
        "segmentation": (2, 6, 16, 24),
        "depth": (2, 1, 16, 24),
    }


def test_metadata_names_every_output_once():
    network = build(TINY)
    named = [name for head in network.heads_metadata.values() for name in head["outputs"]]
    assert tuple(named) == network.output_names
    assert network.heads_metadata["detection"]["strides"] == [8, 16]
    assert network.heads_metadata["depth"]["stride"] == 4


@pytest.mark.parametrize("kept", ["detection", "segmentation", "depth"])
def test_heads_can_be_switched_off(kept):
    network = build({**TINY, "heads": {kept: {}}})
    assert set(network.heads_metadata) == {kept}
    assert all(name.startswith(kept) for name in run(network))


@pytest.mark.parametrize("backbone", ["mobilenetv3_small_050", "convnext_atto", "mambaout_femto"])
def test_any_timm_backbone_works_by_name(backbone):
    network = build({**TINY, "backbone": backbone, "out_indices": None})
    outputs = run(network)
    assert outputs["segmentation"].shape == (2, 6, 16, 24)
    assert outputs["detection_box_16"].shape == (2, 4, 4, 6)


def test_a_height_that_needs_no_exact_doubling_works():
    network = build({**TINY, "height": 48, "width": 80})
    assert run(network, 48, 80)["depth"].shape == (2, 1, 12, 20)


def test_the_shipped_configuration_stays_under_twelve_megabytes():
    network = build({"backbone": "resnet18", "height": 352, "width": 640})
    numbers = sum(value.numel() for value in network.state_dict().values())
    assert sum(p.numel() for p in network.parameters()) <= 2_950_000
    assert 4 * numbers < 11_900_000


def test_the_same_seed_gives_the_same_weights():
    networks = []
    for _ in range(2):
        torch.manual_seed(5)
        networks.append(build(TINY).state_dict())
    assert all(torch.equal(value, networks[1][name]) for name, value in networks[0].items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backbone": "resnet_of_nobody"}, "resnet_of_nobody"),
        ({"bakbone": "resnet18"}, "bakbone"),
        ({"heads": {"lidar": {}}}, "lidar"),
        ({"heads": {}}, "heads"),
        ({"heads": {"depth": {"wieght": 2.0}}}, "wieght"),
        ({"height": 0}, "height"),
        ({"height": 100}, "multiples"),
        ({"out_indices": [9]}, "test_resnet"),
        ({"out_indices": [3, 1]}, "test_resnet|strides"),
    ],
)
def test_a_wrong_configuration_is_told(change, message):
    with pytest.raises(InputError, match=message):
        build({**TINY, **change})
