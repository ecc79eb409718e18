import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from perception.frame.decode import pairwise_iou
from perception.heads.depth import DepthHead, LogInverseDepth
from perception.heads.detection import DetectionHead, centre_ness, focal_loss, giou_loss
from perception.heads.segmentation import MaskFractions, SegmentationHead, dice_loss
from perception.scene.sample import Scene

distances = st.lists(st.floats(0.1, 20), min_size=4, max_size=4)


def scene_with(mask=None, depth=None):
    mask = np.zeros((16, 16), np.uint8) if mask is None else mask
    return Scene(
        image=np.zeros((*mask.shape, 3), np.uint8),
        boxes=np.zeros((0, 4), np.float32),
        labels=np.zeros(0, np.int64),
        mask=mask,
        depth=np.ones(mask.shape, np.float32) if depth is None else depth,
    )


@settings(deadline=None)
@given(first=distances, second=distances)
def test_giou_is_never_above_iou_and_is_symmetric(first, second):
    a, b = torch.tensor([first]), torch.tensor([second])
    loss = float(giou_loss(a, b))
    left, top, right, bottom = first
    box_a = np.array([[-left, -top, right, bottom]], np.float32)
    left, top, right, bottom = second
    box_b = np.array([[-left, -top, right, bottom]], np.float32)
    assert loss >= 1 - float(pairwise_iou(box_a, box_b)[0, 0]) - 1e-4
    assert loss == pytest.approx(float(giou_loss(b, a)), abs=1e-5)
    assert 0 <= loss + 1e-5 <= 2 + 1e-4


@given(values=distances)
def test_giou_of_equal_boxes_is_zero(values):
    box = torch.tensor([values])
    assert float(giou_loss(box, box)) == pytest.approx(0, abs=1e-5)


def test_centre_ness_is_one_at_the_centre_and_falls_to_the_edge():
    values = centre_ness(torch.tensor([[2.0, 3, 2, 3], [1.0, 3, 3, 3], [0.1, 3, 3.9, 3]]))
    assert float(values[0]) == 1
    assert float(values[0]) > float(values[1]) > float(values[2])


def test_focal_loss_is_a_scaled_down_cross_entropy():
    logits, targets = torch.linspace(-4, 4, 9), torch.tensor([0.0, 1, 0, 1, 0, 1, 0, 1, 0])
    entropy = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    focal = focal_loss(logits, targets)
    assert (focal <= entropy).all()
    p = 1 / (1 + math.exp(-3.0))
    assert float(focal[7]) == pytest.approx(0.25 * (1 - p) ** 2 * -math.log(p), rel=1e-4)


def test_detection_loss_without_objects_is_finite_and_teaches_background():
    head = DetectionHead(8, [4, 8, 16])
    levels = {8: torch.randn(1, 8, 4, 4), 16: torch.randn(1, 8, 2, 2)}
    targets = {
        "class_8": torch.full((1, 4, 4), -1),
        "class_16": torch.full((1, 2, 2), -1),
        "box_8": torch.ones(1, 4, 4, 4),
        "box_16": torch.ones(1, 4, 2, 2),
    }
    terms = head.loss(head(levels), targets)
    assert float(terms["detection_box"].detach()) == 0
    assert float(terms["detection_class"].detach()) > 0
    sum(terms.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)


def test_mask_fractions_share_a_cell_and_leave_the_unknown_out():
    mask = np.zeros((8, 8), np.uint8)
    mask[0:4, 0:2] = 3
    mask[4:8, 4:8] = 255
    fractions = MaskFractions().encode(scene_with(mask), 1.0)["fractions"]
    assert fractions[3, 0, 0] == 0.5
    assert fractions[0, 0, 0] == 0.5
    assert fractions[:, 1, 1].sum() == 0
    assert fractions[:, 0, 1].tolist() == [1, 0, 0, 0, 0, 0]


def test_segmentation_loss_is_lowest_for_the_right_class():
    head = SegmentationHead(8, [4, 8])
    fractions = torch.zeros(1, 6, 4, 4)
    fractions[:, 2] = 1
    losses = []
    for index in (2, 1):
        logits = torch.full((1, 6, 4, 4), -5.0)
        logits[:, index] = 5
        terms = head.loss({"segmentation": logits}, {"fractions": fractions})
        losses.append(float(sum(terms.values())))
    assert losses[0] < 0.01 < losses[1]


def test_dice_of_nothing_known_is_zero():
    assert float(dice_loss(torch.rand(1, 6, 4, 4), torch.zeros(1, 6, 4, 4))) == 0


def test_depth_targets_ignore_sky_and_the_unknown():
    depth = np.full((16, 16), 10.0, np.float32)
    depth[:4] = np.inf
    depth[4:8] = np.nan
    target = LogInverseDepth().encode(scene_with(depth=depth), 1.0)["log_inverse_depth"]
    assert np.isnan(target[:2]).all()
    assert np.allclose(target[2:], -math.log(10))


def test_depth_at_half_the_resolution_is_canonical():
    encoder = LogInverseDepth()
    depth = np.full((16, 16), 10.0, np.float32)
    half = encoder.encode(scene_with(depth=depth), 0.5)["log_inverse_depth"]
    assert np.allclose(half, -math.log(20))


def test_depth_loss_counts_known_pixels_only():
    head = DepthHead(8, [4], weight=1.0)
    target = torch.full((1, 4, 4), torch.nan)
    target[0, 0, 0] = 1.0
    loss = head.loss({"depth": torch.zeros(1, 1, 4, 4)}, {"log_inverse_depth": target})["depth"]
    assert float(loss) == pytest.approx(1.0)
    empty = torch.full((1, 4, 4), torch.nan)
    nothing = head.loss({"depth": torch.zeros(1, 1, 4, 4)}, {"log_inverse_depth": empty})
    assert float(nothing["depth"]) == 0
