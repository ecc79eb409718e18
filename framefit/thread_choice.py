"""How many threads a computation in PyTorch is fastest with, on this machine as it is now."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from latency_budget.clock import Clock, MonotonicClock

if TYPE_CHECKING:
    from torch import Tensor, nn

_RUNS = 2


class ProofRun:
    """What a proof of pruning repeats: an inference in float64.

    Args:
        module: the network; it is not changed.
        inputs: its arguments.
    """

    def __init__(self, module: "nn.Module", inputs: "tuple[Tensor, ...]") -> None:
        from artifacts.module_copy import copy_module

        self._module = copy_module(module).double().eval()
        self._inputs = tuple(
            value.double() if value.is_floating_point() else value for value in inputs
        )

    def __call__(self) -> None:
        """Runs the network once."""
        from compress.prune.analysis.plain_operators import plain_operators
        from compress.prune.double_precision import run_widely

        with plain_operators():
            run_widely(self._module, self._inputs)


def choose_threads(run: Callable[[], object], clock: Clock | None = None) -> int:
    """Returns 1 or PyTorch's own number of threads, with whichever `run` takes less time.

    Threads that have a core each share the work. Where other processes use the cores too, threads
    wait for each other at the end of every operator: small networks then took 2 to 50 times as long
    with two threads as with one.

    Args:
        run: the computation.
        clock: what to time it with.
    """
    import torch

    from compress.train.threads import use_threads

    clock = clock or MonotonicClock()
    most = torch.get_num_threads()
    fastest_ns: dict[int, int] = {}
    for threads in (1, most) * _RUNS:
        with use_threads(threads):
            start_ns = clock.now_ns()
            run()
            took_ns = clock.now_ns() - start_ns
        fastest_ns[threads] = min(took_ns, fastest_ns.get(threads, took_ns))
    return min(fastest_ns, key=lambda threads: fastest_ns[threads])
