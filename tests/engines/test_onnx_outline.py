import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from engines.onnx_outline import check_onnx_outline


def test_every_proper_prefix_is_refused_or_lacks_nothing(model_path, tmp_path):
    content = model_path.read_bytes()
    check_onnx_outline(model_path)
    part = tmp_path / "part.onnx"
    whole = onnx.load(model_path)
    for length in range(1, len(content)):
        part.write_bytes(content[:length])
        try:
            check_onnx_outline(part)
        except InputError:
            continue
        assert onnx.load(part).graph == whole.graph


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_give_an_answer(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("outline") / "any.onnx"
    path.write_bytes(content)
    try:
        check_onnx_outline(path)
    except InputError:
        return
    pytest.fail("random bytes passed as a whole ONNX model") if len(content) < 8 else None


@pytest.mark.real
@pytest.mark.parametrize("name", ["fastestdet/FastestDet.onnx", "ultraface/version-RFB-320.onnx"])
def test_real_models_pass(name, request):
    path = request.config.rootpath.parent / "shared" / "real" / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    check_onnx_outline(path)
