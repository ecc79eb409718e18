"""CUDA's calls on a real GPU: copies there and back, a graph of them, errors in CUDA's words."""

import numpy as np
import pytest

from artifacts.errors import FramefitError, InputError, UnavailableError
from engines.backends.cuda_calls import Cuda

pytestmark = pytest.mark.gpu


@pytest.fixture
def cuda():
    try:
        opened = Cuda(0, "tensorrt-rtx")
    except FramefitError as error:
        pytest.skip(f"no CUDA here: {error}")
    yield opened
    opened.close()


def copy_through(cuda: Cuda, source, target) -> None:
    """Queues: host of `source`, its device memory, device memory of `target`, host of `target`."""
    cuda.copy_in(source)
    kind = cuda.api.cudaMemcpyKind.cudaMemcpyDeviceToDevice
    cuda.call(
        "cudaMemcpyAsync", target.address, source.address, source.size_bytes, kind, cuda.stream
    )
    cuda.copy_out(target)


def test_values_go_to_the_device_and_come_back(cuda) -> None:
    source, target = (cuda.allocate((3, 5), np.dtype(np.float32)) for _ in range(2))
    source.host[...] = np.arange(15).reshape(3, 5)
    target.host[...] = -1
    copy_through(cuda, source, target)
    cuda.synchronize()
    np.testing.assert_array_equal(target.host, source.host)


def test_a_graph_copies_what_is_there_when_it_is_launched(cuda) -> None:
    source, target = (cuda.allocate((7,), np.dtype(np.int64)) for _ in range(2))
    source.host[...] = 1
    target.host[...] = 0
    graph = cuda.capture(lambda: copy_through(cuda, source, target))
    cuda.synchronize()
    assert not target.host.any(), "capturing must not execute"
    for value in (2, 3):
        source.host[...] = value
        cuda.launch(graph)
        cuda.synchronize()
        assert (target.host == value).all()


def test_what_cannot_be_captured_is_an_error_and_the_stream_stays_usable(cuda) -> None:
    source, target = (cuda.allocate((7,), np.dtype(np.int64)) for _ in range(2))
    with pytest.raises(UnavailableError, match="cudaStreamSynchronize failed"):
        cuda.capture(cuda.synchronize)
    source.host[...] = 4
    copy_through(cuda, source, target)
    cuda.synchronize()
    assert (target.host == 4).all()


def test_the_compute_capability_and_missing_gpus(cuda) -> None:
    assert cuda.compute_capability() >= 50
    with pytest.raises(InputError, match="GPU 99 was asked for"):
        Cuda(99, "tensorrt-rtx")


def test_memory_that_is_not_there_is_one_error(cuda) -> None:
    with pytest.raises(UnavailableError, match="cudaMalloc failed: out of memory"):
        cuda.call("cudaMalloc", 1 << 50)
    source, target = (cuda.allocate((2,), np.dtype(np.uint8)) for _ in range(2))
    source.host[...] = 9
    copy_through(cuda, source, target)
    cuda.synchronize()
    assert (target.host == 9).all()
