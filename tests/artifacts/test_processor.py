"""What is read of the processor."""

import pytest

from artifacts.processor import overflows_on_int8, read_flags


@pytest.mark.parametrize(
    ("text", "overflows"),
    [
        ("flags\t\t: fpu sse2 avx2\n", True),
        ("flags\t\t: fpu sse2 avx2 avx_vnni\n", False),
        ("flags\t\t: fpu sse2 avx512_vnni amx_int8\n", False),
        ("Features\t: fp asimd asimddp\n", False),
        (None, False),
    ],
)
def test_only_x86_without_vnni_overflows(tmp_path, text, overflows) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert overflows_on_int8(read_flags(path)) is overflows
