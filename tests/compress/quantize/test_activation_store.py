"""The store gives back what was put, from memory or from disk."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import FramefitError
from compress.quantize.activation_store import ActivationStore


@given(cap=st.integers(0, 4000), seed=st.integers(0, 100))
def test_a_cap_changes_where_not_what(cap, seed):
    rng = np.random.default_rng(seed)
    arrays = {(f"t{i}", s): rng.standard_normal((1, 5, 7)) for i in range(4) for s in range(3)}
    with ActivationStore(3, cap) as store:
        for (name, sample), array in arrays.items():
            store.put(name, sample, array)
        store.free("t1", 0)
        with pytest.raises(FramefitError, match="sample 0 of 't1'"):
            store.get("t1", 0)
        np.testing.assert_array_equal(store.get("t1", 1), arrays["t1", 1])
        store.put("t2", 0, arrays["t2", 0] + 1)
        np.testing.assert_array_equal(store.get("t2", 0), arrays["t2", 0] + 1)
        for (name, sample), array in arrays.items():
            if name not in ("t1", "t2"):
                np.testing.assert_array_equal(store.get(name, sample), array)


def test_the_folder_is_gone_afterwards():
    with ActivationStore(1, 0) as store:
        store.put("t", 0, np.ones(10))
        folder = store._folder.name
        (file,) = Path(folder).iterdir()
        np.testing.assert_array_equal(store.get("t", 0), np.ones(10))
        store.free("t", 0)
        assert not file.exists()
    assert not Path(folder).exists()


def test_a_full_disk_is_one_clear_error(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with (
        ActivationStore(1, 0) as store,
        pytest.raises(FramefitError, match=r"No space left on device.*fewer samples"),
    ):
        store.put("t", 0, np.ones(10))
