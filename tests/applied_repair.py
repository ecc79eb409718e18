"""A repair by itself, without what comes before and behind it in `compress quantize`."""

from collections.abc import Sequence

import numpy as np
import onnx

from compress.quantize.channel_survey import ChannelSurvey
from compress.quantize.graph import Graph
from compress.quantize.placement import OpenVINO
from compress.quantize.repairs.contract import ScaleRepair


def apply_repair(
    repair: ScaleRepair, model: onnx.ModelProto, samples: Sequence[dict[str, np.ndarray]]
) -> tuple[Graph, list[str]]:
    """Returns the graph behind the repair, and its lines."""
    graph, placement = Graph(model), OpenVINO()
    placed, _ = placement.place(graph)
    done = repair(graph, ChannelSurvey(samples), placement, [item.node for item in placed])
    return graph, done
