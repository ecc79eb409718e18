"""Imports OpenVINO without what it sends to its makers' server.

`import openvino` tells a server that it was imported, from a process that it forks, and where that
has no answer for three seconds (a firewall that drops packets) waits as long and ends it with
SIGTERM. Without `openvino_telemetry` it takes a stub of its own.
"""

import sys
from typing import Any

_SENDER = "openvino_telemetry"


def import_openvino() -> Any:
    """Returns the module `openvino`.

    Raises:
        ImportError: it is not installed.
    """
    was_there = _SENDER in sys.modules
    if not was_there:
        sys.modules[_SENDER] = None  # type: ignore[assignment]
    try:
        import openvino
    finally:
        if not was_there:
            del sys.modules[_SENDER]
    return openvino
