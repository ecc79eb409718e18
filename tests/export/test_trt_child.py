"""What the builder's child asks of a TensorRT module, on stand-ins for 8.6, 10 and 11."""

from types import SimpleNamespace

import pytest

from export.trt_child import (
    BuildError,
    load_timing_cache,
    parse,
    set_capabilities,
    strongly_typed_flag,
)


def make_module(version, flags, builder_flags):
    return SimpleNamespace(
        __version__=version,
        NetworkDefinitionCreationFlag=SimpleNamespace(**flags),
        BuilderFlag=SimpleNamespace(**builder_flags),
        ComputeCapability=SimpleNamespace(SM86=1, SM89=2, CURRENT=0),
    )


def test_strong_typing_is_probed_and_not_guessed_from_the_version():
    ten = make_module("10.3", {"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1}, {"FP16": 0})
    eleven = make_module("11.4", {}, {"REFIT": 0})
    eight = make_module("8.6", {"EXPLICIT_BATCH": 0}, {"FP16": 0})
    assert strongly_typed_flag(ten) == 2
    assert strongly_typed_flag(eleven) == 0
    with pytest.raises(BuildError, match="10 or newer"):
        strongly_typed_flag(eight)


def test_classic_tensorrt_builds_only_for_its_own_gpu(monkeypatch):
    monkeypatch.setattr("export.trt_child.read_gpu", lambda: 87)
    classic = SimpleNamespace()
    assert set_capabilities(None, classic, []) == [87]
    assert set_capabilities(None, classic, [87]) == [87]
    with pytest.raises(BuildError, match="which is 87"):
        set_capabilities(None, classic, [86])


def test_rtx_sets_each_capability_and_refuses_unknown_ones():
    class Config:
        def __init__(self):
            self.set = {}

        def set_compute_capability(self, kind, index):
            self.set[index] = kind
            return True

    module, config = make_module("1.7", {}, {}), Config()
    assert set_capabilities(module, config, [89, 86]) == [89, 86]
    assert config.num_compute_capabilities == 2
    assert config.set == {0: 2, 1: 1}
    with pytest.raises(BuildError) as caught:
        set_capabilities(module, config, [90])
    assert caught.value.content["known"] == [86, 89]


def test_a_parser_that_fails_without_a_reason_is_reported(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x")
    parser = SimpleNamespace(parse=lambda content: False, num_errors=0)
    module = SimpleNamespace(OnnxParser=lambda network, logger: parser)
    with pytest.raises(BuildError, match="told to the logger"):
        parse(module, None, SimpleNamespace(errors=["told to the logger"]), path)


class CacheConfig:
    """A builder's configuration that knows the caches `b"mine"`, `b"other gpu"` and empty ones."""

    def __init__(self):
        self.used = None

    def create_timing_cache(self, content):
        if content == b"torn, raises":
            raise RuntimeError("bad magic")
        return content if content in (b"", b"mine", b"other gpu") else None

    def set_timing_cache(self, cache, ignore_mismatch):
        assert not ignore_mismatch
        self.used = cache
        return cache != b"other gpu"


@pytest.mark.parametrize("content", [b"other gpu", b"torn", b"torn, raises"])
def test_a_timing_cache_that_cannot_be_used_is_ignored(tmp_path, content):
    path, config = tmp_path / "timing.cache", CacheConfig()
    path.write_bytes(content)
    assert not load_timing_cache(config, str(path))
    assert config.used == b""
    assert path.read_bytes() == content


def test_a_timing_cache_of_this_builder_is_used(tmp_path):
    path, config = tmp_path / "timing.cache", CacheConfig()
    assert load_timing_cache(config, None)
    assert config.used is None
    assert load_timing_cache(config, str(path))
    path.write_bytes(b"mine")
    assert load_timing_cache(config, str(path))
    assert config.used == b"mine"
