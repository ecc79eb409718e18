"""`python -m export …` is `framefit export …`, as `export` alone is a builtin of the shell."""

import sys

from framefit.cli import FRAMEFIT
from framefit.lazy_group import build_command
from framefit.shell import run_command

if __name__ == "__main__":
    sys.exit(run_command("python -m export", build_command("export", FRAMEFIT["export"])))
