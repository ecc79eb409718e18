"""Under which name a layer uses what it computes from parameters of other names."""

import re

_COMPUTED = re.compile(r"(?:\bparametrizations\.(\w+)\.original\d*|\b(\w+)_(?:v|orig))$")


def name_in_layer(parameter: str) -> str:
    """Returns `conv.weight` for what weight_norm, spectral_norm and masks keep in its place.

    Args:
        parameter: `conv.parametrizations.weight.original1`, `conv.weight_v` or `conv.weight_orig`;
            any other name is returned as it is.
    """
    return _COMPUTED.sub(r"\1\2", parameter)
