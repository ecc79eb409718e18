"""What a network's file must hold before a runtime opens it: some run damaged ones as well."""

from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.external_data import find_external, load_external_data
from artifacts.file_kind import require_file
from artifacts.graph_checks import (
    check_definitions,
    check_finite,
    check_random,
    check_sizes,
    check_versions,
)
from artifacts.onnx_file import read_as_stored
from artifacts.pair_constants import check_scales
from engines.onnx_outline import check_onnx_outline
from framefit.overflow_check import warn_of_overflow

if TYPE_CHECKING:
    from engines.session import Session, SessionSettings


def check_network(path: Path) -> bool:
    """Refuses NaN, scales of 0, values defined twice, unknown versions, weights behind a link.

    And random numbers at which a runtime ends the process.

    Args:
        path: a model; of a plan only that it is a file.

    Returns:
        whether it has weights in files beside it.

    Raises:
        InputError: it is no such file, or holds one of these.
    """
    require_file(path, "a model")
    if path.suffix.lower() != ".onnx":
        return False
    check_onnx_outline(path)
    network = read_as_stored(path)
    is_split = bool(find_external(network))
    if is_split:
        load_external_data(network, path, path.stat().st_size)
    check_versions(network, path)
    check_sizes(network.graph, path)
    check_definitions(network.graph, path)
    check_random(network.graph, path)
    check_scales(network.graph, path)
    check_finite(network.graph, path, may_be_infinite=True)
    return is_split


def open_checked_session(path: Path, runtime: str | None, settings: "SessionSettings") -> "Session":
    """Opens a network that `check_network` lets through; see `engines.runtimes.open_session`.

    Warns of one that overflows here.
    """
    from engines.runtimes import open_session

    check_network(path)
    warn_of_overflow(path, runtime)
    return open_session(path, runtime, settings)
