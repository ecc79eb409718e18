"""What is read of the processor."""

import pytest

from artifacts.processor import (
    fuses_silu_best,
    overflows_on_int8,
    read_flags,
    takes_zero_points_free,
)


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


@pytest.mark.parametrize(
    ("flags", "is_free"),
    [
        ({"sse2", "avx2"}, True),
        ({"sse2", "avx2", "avx512_vnni"}, True),
        ({"sse2", "avx2", "avx512_vnni", "amx_int8"}, False),
        ({"sse2", "avx2", "avx_vnni"}, False),
        (set(), False),
    ],
    ids=["AVX2", "AVX-512 VNNI", "AMX", "AVX2 VNNI, not measured", "unknown"],
)
def test_zero_points_are_free_where_they_were_measured_to_be(flags, is_free) -> None:
    assert takes_zero_points_free(frozenset(flags)) is is_free


@pytest.mark.parametrize(
    ("flags", "is_best"),
    [
        ({"sse2", "avx2"}, True),
        ({"sse2"}, False),
        ({"sse2", "avx2", "avx512f"}, False),
        ({"sse2", "avx2", "avx_vnni"}, False),
        ({"sse2", "avx2", "avx512f", "avx512_vnni", "amx_int8"}, False),
        (set(), False),
    ],
    ids=["AVX2", "SSE2", "AVX-512", "AVX2 VNNI", "AMX", "unknown"],
)
def test_silu_is_best_as_it_is_where_it_was_measured_to_be(flags, is_best) -> None:
    assert fuses_silu_best(frozenset(flags)) is is_best
