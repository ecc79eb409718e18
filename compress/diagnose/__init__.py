"""Says why a quantized network is worse than its float one, and what helps."""

from compress.diagnose.api import diagnose_model
from compress.diagnose.report import Diagnosis

__all__ = ["Diagnosis", "diagnose_model"]
