"""`python -m framefit`, also as one of several processes that torchrun started."""

import os
import sys

from framefit.cli import main

if "TORCHELASTIC_RUN_ID" in os.environ:
    # Each process would warn that DDP looks for unused weights, which networks with gates have.
    # PyTorch reads this once, when it is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

sys.exit(main())
