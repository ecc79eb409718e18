"""What a library prints while it exports stays away from the user, from compiled code too."""

import subprocess
import sys

SCRIPT = """
import ctypes
import os
from export.quiet import quiet

print("before")
with quiet() as heard:
    print("by Python")
    os.write(1, b"by the system\\n")
    ctypes.CDLL(None).puts(b"by C, held back in its buffer")
print("after:", heard.getvalue().strip())
"""
CLOSED = """
import os
import sys
from export.quiet import quiet

os.close(1)
sys.stdout = None
with quiet():
    pass
sys.stderr.write("went on")
"""


def test_what_compiled_code_prints_is_dropped_and_the_rest_comes_in_order() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "before\nafter: by Python\n"


def test_a_process_without_standard_output_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "went on")
