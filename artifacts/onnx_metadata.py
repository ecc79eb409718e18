"""What framefit notes in an ONNX model's `metadata_props`."""

import json

import onnx

from artifacts.input_spec import InputSpec

INPUT_SPEC_KEY = "framefit.input_spec"
HEADS_KEY = "framefit.heads"
SETTINGS_KEY = "framefit.settings"
VERSIONS_KEY = "framefit.versions"
PARENT_KEY = "framefit.parent_sha256"


def read_metadata(model: onnx.ModelProto) -> dict[str, str]:
    """Returns the model's `metadata_props` as a dictionary."""
    return {entry.key: entry.value for entry in model.metadata_props}


def read_input_spec(model: onnx.ModelProto) -> InputSpec | None:
    """Returns how pixels become the model's input; None where it does not say.

    Raises:
        InputError: what it says is no input spec.
    """
    text = read_metadata(model).get(INPUT_SPEC_KEY)
    return InputSpec.from_json(text) if text else None


def read_target(model: onnx.ModelProto) -> str:
    """Returns the target that `compress quantize` stated in its file; empty for other files."""
    try:
        target = json.loads(read_metadata(model)[SETTINGS_KEY])["quantize"]["target"]
    except (ValueError, KeyError, TypeError):
        return ""
    return str(target)
