"""What OpenVINO says of a network is read out of its message."""

from artifacts.openvino_refusal import read_refusal

FAILED = """Exception from src/inference/src/cpp/core.cpp:105:
Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted. Failed operations detailed log:
-- Resize-19 with a message:
While validating ONNX node '<Node(Resize): rz>': Check 'et == element::f32' failed at src/x.cpp:65:
While validating node 'opset11::Interpolate Interpolate_51 (x[0]:f32[1,4,4]) -> (dynamic[...])':
Scales element type must be f32, f16 or bf16

Summary:
-- Conversion is failed for: Resize-19

"""


def test_missing_operators_are_listed() -> None:
    text = "Check 'false' failed\nSummary:\n-- No conversion rule found for operations: A-19, d.B\n"
    refusal = read_refusal(text)
    assert refusal.missing == ("A-19", "d.B")
    assert str(refusal) == "No conversion rule found for operations: A-19, d.B"


def test_a_conversion_that_failed_has_its_place_and_reason() -> None:
    (failed,) = read_refusal(FAILED).failed
    assert failed == ("Resize-19", "rz", "Scales element type must be f32, f16 or bf16")
    assert str(read_refusal(FAILED)) == "Resize-19 'rz': " + failed[2]


def test_other_messages_give_the_line_that_tells_something() -> None:
    assert str(read_refusal("Exception from a.cpp:1:\nthe file is cut off\n")) == (
        "the file is cut off"
    )
