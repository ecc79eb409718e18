"""Runs a network by operators that can be followed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


class _FirstAxisWeightNorm(TorchFunctionMode):
    """Runs `weight_norm` along an inner axis as one along the first, a single operator."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not torch._weight_norm or len(args) < 3 or not 0 < args[2] < args[0].ndim - 1:
            return func(*args, **(kwargs or {}))
        direction, scale, axis = args
        turned = direction.transpose(0, axis), scale.transpose(0, axis)
        return func(*turned, 0).transpose(0, axis)


@contextmanager
def plain_operators() -> Iterator[None]:
    """Runs attention as matrix products and softmax, and transformer layers without fusion."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _FirstAxisWeightNorm():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
