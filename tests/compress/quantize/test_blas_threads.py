"""Matrix products leave the processors to other samples, and to other processes."""

import json
import os
import subprocess
import sys
from unittest.mock import patch

import numpy  # noqa: F401  # brings the library whose threads are counted
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from compress.quantize import blas_threads
from compress.quantize.blas_threads import share_blas


def count_threads() -> set[int]:
    return {item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas"}


@pytest.mark.parametrize(("before", "shared"), [(1, 2), (2, 1), (2, 2)])
def test_threads_are_shared_for_the_block_and_never_more(before: int, shared: int) -> None:
    if not count_threads():
        pytest.skip("threadpoolctl does not know the library that numpy was built with")
    with (
        threadpool_limits(before, user_api="blas"),
        patch.object(blas_threads, "threads_each", lambda items: shared),
    ):
        with share_blas():
            assert count_threads() == {min(before, shared)}
        assert count_threads() == {before}


LATE_IMPORT = """
import json
from unittest.mock import patch
import numpy
from threadpoolctl import threadpool_info
from compress.quantize import blas_threads

def count_threads():
    return [item["num_threads"] for item in threadpool_info() if item["user_api"] == "blas"]

seen = [count_threads()]
with patch.object(blas_threads, "threads_each", lambda items: 1), blas_threads.share_blas():
    blas_threads.import_linalg()
    seen.append(count_threads())
seen.append(count_threads())
print(json.dumps(seen))
"""


def test_a_library_that_scipy_brings_in_the_block_is_shared_too() -> None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    child = subprocess.run(
        [sys.executable, "-c", LATE_IMPORT], env=environment, capture_output=True, check=True
    )
    before, shared, after = json.loads(child.stdout)
    if not before or max(after) < 2:
        pytest.skip("this machine's library takes no second thread, or threadpoolctl no library")
    assert len(shared) > len(before)
    assert set(shared) == {1}
    assert after[: len(before)] == before
    assert min(after) > 1
