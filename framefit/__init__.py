"""The shell around the packages: command line, demo and workspace."""

import sys
from pathlib import Path

_FOLDER = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, _FOLDER)
try:
    from artifacts.own_packages import put_first
finally:
    sys.path.remove(_FOLDER)
put_first()
