"""Memory for what onnxruntime computes, where it is much.

A quantization computes each layer's output anew for every sample. onnxruntime asks the system for
such memory page by page (4 KiB), which takes longer than many a layer; numpy asks for huge pages.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from compress.quantize.graph import Array

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

LEAST_BYTES = 1 << 22
"""From here on numpy asks for huge pages."""
_GROWS_AS_REQUESTED = 1
_log = logging.getLogger(__name__)


class LentOutputs:
    """Runs a session with its large outputs in numpy's memory.

    Args:
        session: its outputs of float32, of known shape and LEAST_BYTES or more are large.
    """

    def __init__(self, session: "InferenceSession") -> None:
        self._session = session
        self._shapes = {
            item.name: tuple(item.shape)
            for item in session.get_outputs()
            if item.type == "tensor(float)"
            and all(isinstance(size, int) for size in item.shape)
            and 4 * math.prod(item.shape) >= LEAST_BYTES
        }

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the outputs called `names`, all that the session has, in new arrays."""
        held = {name: np.asarray(value, order="C") for name, value in feeds.items()}
        if not self._shapes or any(value.dtype.kind not in "fiub" for value in held.values()):
            return dict(zip(names, self._session.run(names, held), strict=True))
        lent = {name: np.empty(shape, np.float32) for name, shape in self._shapes.items()}
        binding = self._session.io_binding()
        for name, value in held.items():
            binding.bind_cpu_input(name, value)
        for name in names:
            if name in lent:
                array = lent[name]
                binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            else:
                binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        values = zip(names, binding.get_outputs(), strict=True)
        return {name: lent[name] if name in lent else value.numpy() for name, value in values}


@cache
def share_memory() -> bool:
    """Lets sessions take their working memory from one arena; returns whether they can.

    Otherwise each has one of its own, whose memory comes from the system and goes back to it.
    """
    import onnxruntime as ort

    info = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    try:
        ort.create_and_register_allocator(info, ort.OrtArenaCfg(0, _GROWS_AS_REQUESTED, -1, -1))
    except Exception as error:
        _log.info("onnxruntime's sessions have memory of their own: %s", error)
        return False
    return True
