"""Matrix products of numpy leave the processors to other samples, and to other processes."""

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
