"""Networks that answer chosen boxes are refused in one message; those that answer maps are not."""

import pytest
import torch
from torch import nn
from torchvision.ops import nms

from artifacts.errors import InputError
from artifacts.raw_outputs import require_raw_outputs

IMAGE = (torch.rand(1, 3, 8, 8),)


class Detector(nn.Module):
    """A list with one dictionary of boxes for each picture, as torchvision's detectors give."""

    def __init__(self, threshold: float | None) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 5, 1)
        self.threshold = threshold

    def forward(self, x):
        maps = self.head(x)
        if self.threshold is None:
            return {"maps": maps, "extra": maps.new_zeros(0)}
        rows = maps[0].flatten(1).T.sigmoid()
        rows = rows[rows[:, 4] > self.threshold]
        boxes = torch.cat([rows[:, :2], rows[:, :2] + rows[:, 2:4]], 1)
        if self.threshold < 1:
            boxes = boxes[nms(boxes, rows[:, 4], 0.5)]
        return [{"boxes": boxes}]


@pytest.mark.parametrize(("threshold", "words"), [(0.1, "'nms' chose"), (1.0, "without elements")])
def test_chosen_boxes_are_refused(threshold: float, words: str) -> None:
    with pytest.raises(InputError, match=rf"{words}.*the maps before boxes are chosen"):
        require_raw_outputs(Detector(threshold).eval(), IMAGE)


def test_maps_are_taken() -> None:
    require_raw_outputs(Detector(None).eval(), IMAGE)
