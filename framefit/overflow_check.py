"""Warns of quantized networks that this processor may compute otherwise than their files say."""

import logging
from pathlib import Path

from artifacts.processor import PAIRED_SUMS, overflows_on_int8, read_flags

_log = logging.getLogger(__name__)


def warn_of_overflow(path: Path, runtime: str | None) -> None:
    """Warns where products of 8-bit integers may overflow here; reads the file only where they can.

    What is measured of such a network holds for its latency and not for its results.

    Args:
        path: a network that `network_check.check_network` let through.
        runtime: that opens it, a name of `engines.runtimes.BACKENDS`; None for the file's own.
    """
    if path.suffix.lower() != ".onnx" or not overflows_on_int8(read_flags()):
        return
    from artifacts.external_data import load_external_data
    from artifacts.onnx_file import read_as_stored
    from artifacts.shape_inference import infer_shapes
    from engines.runtimes import default_runtime
    from export.lint.graph import LintGraph
    from export.lint.rules.overflowing_pairs import RULE
    from export.lint.target import find_target

    runtime = runtime or default_runtime(path)
    if runtime not in RULE.targets:
        return
    model = read_as_stored(path)
    load_external_data(model, path, path.stat().st_size)
    for finding in RULE.check(LintGraph(infer_shapes(model)), find_target(runtime)):
        _log.warning(
            "%s may compute %s otherwise than the file says, by %s (%s): %s; %s",
            *(runtime, path, finding.what, finding.place, PAIRED_SUMS, finding.fix),
        )
