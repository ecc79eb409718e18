"""What the repairs have in common that give channels similar ranges."""

from collections.abc import Collection
from typing import Protocol

from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import Placement
from compress.quantize.qparams import WeightGrids


class ScaleRepair(Protocol):
    """Rescales channels in place where that lowers the error of the layers that read them.

    The results of the float network stay as they are.
    """

    def __call__(
        self,
        graph: Graph,
        survey: ChannelSurvey,
        placement: Placement,
        quantized: Collection[str],
        weight_grids: WeightGrids,
        /,
    ) -> list[str]:
        """Repairs a network.

        Args:
            graph: the simplified float graph.
            survey: what its layers read on calibration inputs; is told of all that is rescaled.
            placement: tells the integers of activations.
            quantized: names of the nodes that will be quantized.
            weight_grids: the integers of weights.

        Returns:
            one line per place that was rescaled, or that was looked at and left.
        """
