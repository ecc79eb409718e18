"""The standard operator set has two names, "" and "ai.onnx"; runtimes take both for the same."""

import onnx

from artifacts.graph_checks import iter_nodes

_ALIAS = "ai.onnx"


def name_standard_domain(model: onnx.ModelProto) -> None:
    """Calls the standard operator set "" wherever a model calls it "ai.onnx"; it is edited.

    ONNX's converter, its schemas and its checker of nodes know it by that name only.
    """
    _rename_imports(model)
    for function in model.functions:
        _rename_imports(function)
    for part in (model.graph, *model.functions):
        for node in iter_nodes(part.node):
            if node.domain == _ALIAS:
                node.domain = ""


def _rename_imports(part: onnx.ModelProto | onnx.FunctionProto) -> None:
    """A set that is imported by both names, in versions that differ, is left to the checks."""
    versions = {item.version for item in part.opset_import if not item.domain}
    for item in list(part.opset_import):
        if item.domain == _ALIAS and item.version in versions:
            part.opset_import.remove(item)
        elif item.domain == _ALIAS and not versions:
            item.domain = ""
