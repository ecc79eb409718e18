"""What the processor of this machine can compute."""

from pathlib import Path

EXACT_FEATURES = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""With one of them products of 8-bit integers are added in 32 bits."""

PAIRED_SUMS = "this processor has no VNNI and adds products of 8-bit integers in pairs, in 16 bits"
"""What users are told where `overflows_on_int8`."""


def read_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Returns the names of its features; none where Linux does not list them as x86's are."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(flag for line in lines if line.startswith("flags") for flag in line.split())


def overflows_on_int8(flags: frozenset[str]) -> bool:
    """Whether runtimes add pairs of products of 8-bit integers in 16 bits, which is too few.

    x86 without VNNI has nothing else (`vpmaddubsw`): 2 * 255 * 127 is beyond 32767.

    Args:
        flags: of `read_flags`.
    """
    return "sse2" in flags and not flags & EXACT_FEATURES


def takes_zero_points_free(flags: frozenset[str]) -> bool:
    """Whether OpenVINO takes as long with activations' zero points as without.

    So do its kernels for AVX2 and for AVX-512 VNNI, not those for AMX (docs/experiments.md, "What
    zero points cost"). Those of other processors were not measured.

    Args:
        flags: of `read_flags`.
    """
    is_measured = "avx512_vnni" in flags or overflows_on_int8(flags)
    return is_measured and "amx_int8" not in flags


def fuses_silu_best(flags: frozenset[str]) -> bool:
    """Whether OpenVINO's integer layers are fastest with SiLU as it is, never written with tanh.

    So are its kernels for AVX2 and for AVX-512 VNNI, not those for AMX (docs/experiments.md, "SiLU
    written with tanh"). Those of other processors were not measured.

    Args:
        flags: of `read_flags`.
    """
    has_avx2_alone = overflows_on_int8(flags) and "avx2" in flags and "avx512f" not in flags
    return has_avx2_alone or ("avx512_vnni" in flags and "amx_int8" not in flags)
