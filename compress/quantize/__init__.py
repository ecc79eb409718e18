"""Post-training quantization of ONNX graphs: `compress.quantize(model, data, settings)`.

The package can be called, as a short name for `compress.quantize.api.quantize`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compress.quantize.result import QuantizeResult


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> "QuantizeResult":
        """See `compress.quantize.api.quantize`."""
        from compress.quantize.api import quantize

        return quantize(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
