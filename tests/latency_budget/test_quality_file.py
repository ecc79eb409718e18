import json

import pytest

from artifacts.errors import InputError
from latency_budget.budget import HeadContract
from latency_budget.quality_file import describe_unread, read_quality, require_plausible


def qualities(tmp_path, **values):
    path = tmp_path / "quality.json"
    content = {
        head: {"metric": metric, "reference": before, "candidate": after}
        for head, (metric, before, after) in values.items()
    }
    path.write_text(json.dumps(content))
    return path, read_quality(path)


def contract(metric, drop):
    return HeadContract(metric=metric, max_drop=drop)


@pytest.mark.parametrize(
    ("values", "contracts", "message"),
    [
        ({"road": ("mIoU", 0.8, 0.1)}, {"road": contract("mIoU", 1.0)}, "percent? then write 0.01"),
        ({"road": ("mIoU", 80.0, 1.0)}, {"road": contract("mIoU", 90)}, "a drop below 80"),
        ({"road": ("mIoU", 0.8, 79.0)}, {"road": contract("mIoU", 0.01)}, "both in percent"),
        ({"gap": ("abs_rel", 13.0, 0.2)}, {"gap": contract("abs_rel", 0.01)}, "both as shares"),
        ({"raod": ("mIoU", 0.8, 0.8)}, {"road": contract("mIoU", 0.01)}, "did you mean 'road'?"),
    ],
)
def test_a_contract_that_would_hold_whatever_the_network_is_worth_is_refused(
    tmp_path, values, contracts, message
):
    with pytest.raises(InputError) as caught:
        require_plausible(*qualities(tmp_path, **values), contracts)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "contracts"),
    [
        ({"road": ("mIoU", 80.0, 79.5)}, {"road": contract("mIoU", 1.0)}),
        ({"road": ("mIoU", 80.0, 0.7)}, {"road": contract("mIoU", 1.0)}),
        ({"flow": ("EPE", 0.9, 2.1)}, {"flow": contract("EPE", 1.5)}),
        ({"pose": ("rotation_error", 3.0, 4.0)}, {"pose": contract("rotation_error", 5.0)}),
        ({"depth": ("psnr", -1.0, -3.0)}, {"depth": contract("psnr", 5.0)}),
        ({"flow": ("EPE", 12.0, 0.9)}, {"flow": contract("EPE", 1.0)}),
        ({"road": ("mIoU", 0.8, 0.8), "lanes": ("F1", 0.8, 0.8)}, {"road": contract("mIoU", 0.1)}),
        ({"road": ("mIoU", 0.8, 0.8)}, {}),
        ({}, {"road": contract("mIoU", 0.1)}),
    ],
)
def test_what_a_contract_can_judge_is_taken(tmp_path, values, contracts):
    require_plausible(*qualities(tmp_path, **values), contracts)


def test_heads_without_a_contract_and_errors_that_may_rise_far_are_told(tmp_path):
    _, found = qualities(tmp_path, gap=("abs_rel", 0.13, 0.14), lanes=("F1", 0.8, 0.1))
    notes = describe_unread(found, {"gap": contract("abs_rel", 1.0)})
    assert "not judged: head lanes" in notes[0]
    assert "lets abs_rel rise from 0.13 to 1.13" in notes[1]
    assert describe_unread(found, {name: contract("mIoU", 0.1) for name in found}) == []
