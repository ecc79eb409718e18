"""TensorRT sessions: their control flow on stand-ins, their results on a GPU where there is one.

The stand-ins keep "device" memory in host buffers and record a stream's work while it is captured,
so that a copy forgotten, queued in the wrong order or left out of the graph changes the outputs.
"""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from artifacts.errors import (
    DeviceFaultError,
    InputError,
    MissingExtraError,
    UnavailableError,
    UnsafeFileError,
)
from artifacts.plan_manifest import PlanManifest, write_plan
from engines.runtimes import SessionSettings, list_runtimes, open_session

SHAPE = (1, 2, 3)
OK, BAD = SimpleNamespace(name="cudaSuccess"), SimpleNamespace(name="cudaErrorBad")


class FakeCuda(ModuleType):
    """The calls of cuda.bindings.runtime that a session makes."""

    def __init__(self):
        super().__init__("cuda.bindings.runtime")
        self.cudaError_t = SimpleNamespace(cudaSuccess=OK)
        self.cudaDeviceAttr = SimpleNamespace(
            cudaDevAttrComputeCapabilityMajor=8, cudaDevAttrComputeCapabilityMinor=6
        )
        self.cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)
        self.cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
        self.memory, self.live, self.recorded = {}, set(), None
        self.broken, self.launches, self.count = "", 0, 1

    def queue(self, work):
        if self.recorded is None:
            work()
        else:
            self.recorded.append(work)

    def cudaGetErrorString(self, error):
        return OK, b"it is broken"

    def cudaGetDeviceCount(self):
        return (BAD, None) if self.broken == "driver" else (OK, self.count)

    def cudaSetDevice(self, device):
        return (OK,)

    def cudaDeviceGetAttribute(self, kind, device):
        return OK, kind

    def cudaStreamCreateWithFlags(self, flags):
        self.live.add(77)
        return OK, 77

    def _allocate(self, size_bytes):
        buffer = ctypes.create_string_buffer(b"\xff" * size_bytes, size_bytes)
        address = ctypes.addressof(buffer)
        self.memory[address] = buffer
        self.live.add(address)
        return OK, address

    def cudaHostAlloc(self, size_bytes, flags):
        return self._allocate(size_bytes)

    def cudaMalloc(self, size_bytes):
        return (BAD, None) if self.broken == "memory" else self._allocate(size_bytes)

    def cudaMemcpyAsync(self, target, source, size_bytes, kind, stream):
        self.queue(lambda: ctypes.memmove(target, source, size_bytes))
        return (OK,)

    def cudaStreamSynchronize(self, stream):
        return (OK,)

    def cudaStreamBeginCapture(self, stream, mode):
        self.recorded = []
        return (OK,)

    def cudaStreamEndCapture(self, stream):
        work, self.recorded = self.recorded, None
        if self.broken == "capture":
            return BAD, None
        self.live.add("graph")
        return OK, ("graph", work)

    def cudaGraphInstantiate(self, graph, flags):
        self.live.add("executable")
        return OK, ("executable", graph[1])

    def cudaGraphLaunch(self, executable, stream):
        self.launches += 1
        for work in executable[1]:
            work()
        return (OK,)

    def _release(self, handle):
        self.live.remove(handle[0] if isinstance(handle, tuple) else handle)
        return (OK,)

    cudaFree = cudaFreeHost = cudaStreamDestroy = _release
    cudaGraphDestroy = cudaGraphExecDestroy = _release


class FakeContext:
    def __init__(self, cuda):
        self.cuda, self.addresses = cuda, {}

    def get_tensor_shape(self, name):
        return SHAPE

    def set_tensor_address(self, name, address):
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream):
        def work():
            size_bytes = int(np.prod(SHAPE)) * 4
            values = np.frombuffer(ctypes.string_at(self.addresses["x"], size_bytes), np.float32)
            ctypes.memmove(self.addresses["y"], (values * 2).tobytes(), size_bytes)

        self.cuda.queue(work)
        return True


class FakeEngine:
    num_io_tensors = 2

    def __init__(self, cuda):
        self.cuda = cuda

    def get_tensor_name(self, index):
        return ("x", "y")[index]

    def get_tensor_mode(self, name):
        return {"x": "in", "y": "out"}[name]

    def get_tensor_dtype(self, name):
        return "float32"

    def create_execution_context(self):
        return FakeContext(self.cuda)


class FakeRuntime:
    def __init__(self, logger):
        self.logger = logger

    def deserialize_cuda_engine(self, plan):
        FakeRuntime.seen.append(plan)
        if plan == b"for another GPU":
            self.logger.log("error", "the engine was built\nfor another GPU")
            return None
        return FakeEngine(FakeRuntime.cuda)


class FakeLogger:
    INTERNAL_ERROR, ERROR, INFO = "internal", "error", "info"


@pytest.fixture
def cuda(monkeypatch):
    cuda = FakeCuda()
    bindings, package = ModuleType("cuda.bindings"), ModuleType("cuda")
    bindings.runtime, package.bindings = cuda, bindings
    for name, module in (
        ("cuda", package),
        ("cuda.bindings", bindings),
        ("cuda.bindings.runtime", cuda),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    FakeRuntime.cuda, FakeRuntime.seen = cuda, []
    trt = ModuleType("tensorrt_rtx")
    trt.__version__ = "1.2.3"
    trt.ILogger, trt.Runtime, trt.nptype = FakeLogger, FakeRuntime, np.dtype
    trt.TensorIOMode = SimpleNamespace(INPUT="in", OUTPUT="out")
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", trt)
    return cuda


def make_plan(folder, content=b"engine"):
    manifest = PlanManifest(
        onnx_name="model.onnx",
        onnx_sha256="0" * 64,
        flavour="tensorrt-rtx",
        tensorrt_version="1.2.3",
        compute_capabilities=(86, 89),
    )
    path = folder / "model.plan"
    write_plan(path, content, manifest)
    return path


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_feeds_travel_to_the_device_and_back(cuda, tmp_path, cuda_graph):
    settings = SessionSettings(cuda_graph=cuda_graph)
    with open_session(make_plan(tmp_path), settings=settings) as session:
        first = np.arange(6, dtype=np.float32).reshape(SHAPE)
        results = [session.run({"x": first * scale}) for scale in (1, 10)]
        np.testing.assert_array_equal(results[0]["y"], first * 2)
        np.testing.assert_array_equal(results[1]["y"], first * 20)
        assert cuda.launches == (2 if cuda_graph else 0)
        description = session.describe()
        assert description["cuda_graph"] == {"asked": cuda_graph, "got": cuda_graph}
        assert description["flavour"] == "tensorrt-rtx"
        assert cuda.live
        with pytest.raises(InputError, match="float64"):
            session.run({"x": first.astype(np.float64)})
    assert not cuda.live
    session.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("cudaErrorIllegalAddress", DeviceFaultError), ("cudaErrorBad", UnavailableError)],
)
@pytest.mark.parametrize("call", ["synchronize", "execute"])
def test_an_error_that_stays_is_told_from_one_that_passes(
    cuda, tmp_path, monkeypatch, name, kind, call
):
    with open_session(make_plan(tmp_path)) as session:
        monkeypatch.setattr(
            cuda, "cudaStreamSynchronize", lambda stream: (SimpleNamespace(name=name),)
        )
        if call == "execute":
            monkeypatch.setattr(FakeContext, "execute_async_v3", lambda self, stream: False)
        with pytest.raises(kind) as caught:
            session.run({"x": np.zeros(SHAPE, np.float32)})
        assert type(caught.value) is kind
    assert not cuda.live


def test_a_graph_that_cannot_be_had_is_an_error_and_frees_everything(cuda, tmp_path, monkeypatch):
    cuda.broken = "capture"
    with pytest.raises(UnavailableError, match="cannot be captured as a CUDA graph"):
        open_session(make_plan(tmp_path), settings=SessionSettings(cuda_graph=True))
    assert not cuda.live
    cuda.broken = ""
    monkeypatch.setattr(
        FakeContext, "is_stream_capturable", lambda self, stream: False, raising=False
    )
    with pytest.raises(UnavailableError, match="CUDA graph"):
        open_session(make_plan(tmp_path), settings=SessionSettings(cuda_graph=True))


def test_a_changed_plan_never_reaches_tensorrt(cuda, tmp_path):
    path = make_plan(tmp_path)
    path.write_bytes(b"evil")
    with pytest.raises(UnsafeFileError):
        open_session(path)
    assert FakeRuntime.seen == []


def test_a_plan_for_another_gpu_says_what_it_was_built_for(cuda, tmp_path):
    with pytest.raises(InputError, match=r"compute capability 86 .* built for 86, 89") as caught:
        open_session(make_plan(tmp_path, b"for another GPU"))
    assert "\n" not in str(caught.value)
    assert not cuda.live


def test_a_gpu_that_rtx_does_not_run_on_is_told_before_the_plan_is_loaded(
    cuda, tmp_path, monkeypatch
):
    """Its own message suggests to build again for that GPU, which it refuses too."""
    module = sys.modules["tensorrt_rtx"]
    module.ComputeCapability = SimpleNamespace(SM80=1, SM89=2)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(
        UnavailableError, match=r"1\.2\.3 does not run on .* 86.*--flavour tensorrt"
    ):
        open_session(make_plan(tmp_path))
    assert not cuda.live
    assert FakeRuntime.seen == []
    status = next(status for status in list_runtimes() if status.name == "tensorrt")
    assert not status.available
    assert "does not run on a GPU of compute capability 86" in status.reason
    module.ComputeCapability.SM86 = 3
    open_session(make_plan(tmp_path)).close()


def test_no_driver_no_memory_and_no_such_gpu(cuda, tmp_path):
    path = make_plan(tmp_path)
    cuda.broken = "driver"
    with pytest.raises(UnavailableError, match="no NVIDIA GPU can be used"):
        open_session(path)
    cuda.broken = "memory"
    with pytest.raises(UnavailableError, match="cudaMalloc failed"):
        open_session(path)
    assert not cuda.live
    cuda.broken = ""
    with pytest.raises(InputError, match="GPU 3 was asked for"):
        open_session(path, settings=SessionSettings(device=3))
    with pytest.raises(InputError, match="threads"):
        open_session(path, settings=SessionSettings(threads=2))


def test_without_tensorrt_the_extra_is_named(cuda, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(MissingExtraError, match=r"framefit\[tensorrt-rtx\]"):
        open_session(make_plan(tmp_path))
    status = next(status for status in list_runtimes() if status.name == "tensorrt")
    assert not status.available
    assert "framefit[tensorrt]" in status.reason


@pytest.mark.gpu
def test_a_real_plan_agrees_with_onnxruntime(model_path, image, tmp_path):
    status = next(status for status in list_runtimes() if status.name == "tensorrt")
    if not status.available:
        pytest.skip(f"TensorRT cannot run here: {status.reason}")
    from engines.backends.cuda_calls import Cuda
    from export.to_trt import PlanSettings, build_plans

    cuda = Cuda(0, "tensorrt-rtx")
    capability = cuda.compute_capability()
    cuda.close()
    settings = PlanSettings(fp16=False, sm=(capability,))
    (result,) = build_plans(model_path, tmp_path / "model.plan", settings=settings)
    with open_session(model_path, "onnxruntime") as session:
        expected = session.run({"image": image})
    for cuda_graph in (False, True):
        asked = SessionSettings(cuda_graph=cuda_graph)
        with open_session(result.path, settings=asked) as session:
            for _ in range(3):
                outputs = session.run({"image": image})
        for name, values in expected.items():
            np.testing.assert_allclose(outputs[name], values, rtol=1e-2, atol=1e-2)
