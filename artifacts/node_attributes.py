"""The attributes of a node, written."""

from typing import Any

import onnx


def set_attributes(node: onnx.NodeProto, **values: Any) -> None:
    """Gives a node attributes in place of those that it has by these names."""
    kept = [item for item in node.attribute if item.name not in values]
    new = [onnx.helper.make_attribute(name, value) for name, value in values.items()]
    del node.attribute[:]
    node.attribute.extend([*kept, *new])
