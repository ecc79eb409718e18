"""`python -m framefit`."""

import sys

from framefit.cli import main

sys.exit(main())
