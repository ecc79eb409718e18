"""The two-head road network, and small networks of every kind of layer."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="session")
def esp() -> ModuleType:
    """The module `esp_network` beside this file."""
    path = Path(__file__).with_name("esp_network.py")
    spec = importlib.util.spec_from_file_location("esp_network", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
