"""The number of threads is chosen by what a computation takes with it."""

import pytest
import torch
from torch import nn

from compress.prune.double_precision import run_widely
from compress.train.threads import use_threads
from framefit.thread_choice import ProofRun, choose_threads
from latency_budget.clock import ManualClock


@pytest.fixture(autouse=True)
def _three_threads():
    with use_threads(3):
        yield


@pytest.mark.parametrize(("one_ns", "three_ns", "chosen"), [(5, 9, 1), (9, 5, 3), (5, 5, 1)])
def test_the_faster_number_is_taken_and_the_setting_left_as_it_was(
    one_ns, three_ns, chosen
) -> None:
    clock = ManualClock()
    took_ns = {1: one_ns, 3: three_ns}
    assert choose_threads(lambda: clock.rest_ns(took_ns[torch.get_num_threads()]), clock) == chosen
    assert torch.get_num_threads() == 3


def test_one_disturbed_run_does_not_decide() -> None:
    clock = ManualClock()
    took_ns = iter([7, 100, 8, 5])
    assert choose_threads(lambda: clock.rest_ns(next(took_ns)), clock) == 3


def test_a_proof_runs_the_network_in_float64_and_leaves_it_as_it_is() -> None:
    seen = []
    network = nn.Sequential(nn.Conv2d(3, 4, 1))
    network.register_forward_hook(
        lambda *call: seen.append((call[1][0].dtype, torch.is_grad_enabled()))
    )
    ProofRun(network, (torch.rand(1, 3, 4, 4),))()
    assert seen == [(torch.float64, False)]
    assert network[0].weight.dtype == torch.float32


@pytest.mark.parametrize(("groups", "threads"), [(1, 3), (4, 1)])
def test_groups_of_a_convolution_in_float64_share_one_thread(groups, threads) -> None:
    seen = []

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(torch.get_num_threads())
            return func(*args, **(kwargs or {}))

    network, x = nn.Conv2d(4, 4, 3, groups=groups).double(), torch.rand(1, 4, 5, 5).double()
    with torch.no_grad(), Seen():
        run_widely(network, (x,))
    assert set(seen) == {threads}
    assert torch.get_num_threads() == 3
