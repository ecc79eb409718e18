import numpy as np

from engines.backends.null import NullSession
from engines.session import TensorInfo


def test_the_delay_is_called_once_per_run_and_outputs_are_zeros():
    calls = []
    session = NullSession(
        (TensorInfo("x", (1, 2), np.dtype(np.float32)),),
        (TensorInfo("y", (3, -1), np.dtype(np.int64)),),
        lambda: calls.append(1),
    )
    for _ in range(3):
        outputs = session.run({"x": np.ones((1, 2), np.float32)})
    assert len(calls) == 3
    assert outputs["y"].shape == (3, 1)
    assert outputs["y"].dtype == np.int64
    assert not outputs["y"].any()
