"""Matrix products of numpy leave the processors to other samples, and to other processes."""

import pytest

from compress.quantize import blas_threads
from compress.quantize.blas_threads import share_blas
from compress.quantize.side_by_side import MOST_WORKERS, threads_each


class Library:
    """Counts threads as OpenBLAS does."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def read(self) -> int:
        return self.threads

    def write(self, threads: int) -> None:
        self.threads = threads


@pytest.mark.parametrize("threads", [1, 64])
def test_threads_are_shared_for_the_block_and_never_more(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    library = Library(threads)
    monkeypatch.setattr(blas_threads, "_find_openblas", lambda: (library.read, library.write))
    with share_blas():
        assert library.threads == min(threads, threads_each(MOST_WORKERS))
    assert library.threads == threads


def test_numpy_without_openblas_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "_find_openblas", lambda: None)
    with share_blas():
        pass


def test_the_library_of_the_wheel_obeys() -> None:
    found = blas_threads._find_openblas()
    if found is None:
        pytest.skip("numpy was built without OpenBLAS in its wheel")
    read, write = found
    before = read()
    write(1)
    assert read() == 1
    write(before)
    assert read() == before
