"""OpenVINO is imported without its telemetry."""

import subprocess
import sys

CODE = """
import multiprocessing, sys, urllib.request
def refuse(*args, **kwargs):
    raise SystemExit("something is sent")
multiprocessing.Process = urllib.request.urlopen = refuse
from artifacts.openvino_import import import_openvino
openvino = import_openvino()
assert "openvino_telemetry" not in sys.modules
assert openvino.Core().available_devices
print("imported")
"""


def test_nothing_is_sent_and_no_process_started() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "imported", done.stderr
