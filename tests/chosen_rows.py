"""A part of a network: rows of a feature map that a TopK chooses, as detectors choose queries."""

from onnx import helper

CHANNELS = 8


def choose_rows(count):
    """Returns nodes from `map` [1, 8, H, W] and `scores` [1, 1, H, W] to `queries`, and constants.

    Nodes read the constants by name; all are integers.
    """
    constants = {
        "rows": [1, CHANNELS, -1],
        "line": [1, -1],
        "count": [count],
        "axis": [2],
        "each": [1, count, CHANNELS],
    }
    nodes = [
        helper.make_node("Reshape", ["scores", "line"], ["ranked"], "flat"),
        helper.make_node("TopK", ["ranked", "count"], ["best", "places"], "choose"),
        helper.make_node("Unsqueeze", ["places", "axis"], ["column"], "widen"),
        helper.make_node("Expand", ["column", "each"], ["wide"], "expand"),
        helper.make_node("Reshape", ["map", "rows"], ["channels"], "flat_map"),
        helper.make_node("Transpose", ["channels"], ["tokens"], "turn", perm=[0, 2, 1]),
        helper.make_node("GatherElements", ["tokens", "wide"], ["queries"], "gather", axis=1),
    ]
    return nodes, constants
