"""The roofline: how fast a network could run on a device, and which wall stands in its way.

S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures" (2009): attainable = min(peak, intensity * bandwidth), where intensity is
operations per byte moved.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from latency_budget.why.node_costs import Kernel, NetworkCosts

if TYPE_CHECKING:
    from engines.target import Target

COMPUTE, BANDWIDTH, OVERHEAD = "compute", "bandwidth", "overhead"
WALLS = (COMPUTE, BANDWIDTH, OVERHEAD)
_FALLBACK = {"int8": ("fp16", "fp32"), "fp16": ("fp32", "int8"), "fp32": ("fp16", "int8")}
GPU_OVERHEAD_S = (0.0, 10e-6)
"""Launch of one kernel: nothing inside a CUDA graph, up to 10 us without (5 to 10 us is usual)."""
GPU_EFFICIENCY = (0.15, 1.0)
BANDWIDTH_EFFICIENCY = (0.5, 1.0)
"""Assumed shares of the peaks that real kernels reach: the interval of a prediction."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a device can do at most.

    Attributes:
        name: the device.
        peaks: operations per second by precision ("int8", "fp16", "fp32"); unknown ones missing.
        bandwidth: memory bandwidth in bytes per second; None where it is not known.
        overhead_s: least and most seconds that one kernel costs besides its work.
        efficiency: least and most share of `peaks` that a network's kernels reach.
        bandwidth_efficiency: the same for the bandwidth.
        is_measured: True where the figures were measured on the device itself.
    """

    name: str
    peaks: dict[str, float]
    bandwidth: float | None
    overhead_s: tuple[float, float] = (0.0, 0.0)
    efficiency: tuple[float, float] = GPU_EFFICIENCY
    bandwidth_efficiency: tuple[float, float] = BANDWIDTH_EFFICIENCY
    is_measured: bool = False

    @classmethod
    def from_target(cls, target: "Target") -> "Machine":
        """Takes a target's published peaks; what its file leaves out stays unknown."""
        peaks = {
            "int8": target.int8_dense_tops or target.int8_tops,
            "fp16": target.bf16_tflops,
            "fp32": target.fp32_tflops,
        }
        return cls(
            name=target.name,
            peaks={name: value * 1e12 for name, value in peaks.items() if value},
            bandwidth=target.bandwidth_tb_s * 1e12 if target.bandwidth_tb_s else None,
            overhead_s=GPU_OVERHEAD_S,
        )

    def peak(self, precision: str) -> float | None:
        """Returns the peak in a precision, or the nearest one that is known."""
        for name in (precision, *_FALLBACK[precision]):
            if name in self.peaks:
                return self.peaks[name]
        return None


@dataclass(frozen=True, kw_only=True)
class Walls:
    """Seconds that each wall asks for by itself.

    Attributes:
        compute_s: of the kernels that compute bounds, at the full peak.
        bandwidth_s: of those that memory bounds, at the full bandwidth.
        overhead_s: least cost of starting the kernels.
        kernels: how many there are.
    """

    compute_s: float
    bandwidth_s: float
    overhead_s: float
    kernels: int

    @property
    def attainable_s(self) -> float:
        """The shortest time that the machine's peaks allow."""
        return self.compute_s + self.bandwidth_s + self.overhead_s

    @property
    def wall(self) -> str:
        """The wall that takes most of the attainable time."""
        parts = (self.compute_s, self.bandwidth_s, self.overhead_s)
        return WALLS[parts.index(max(parts))]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A time that was computed and not measured.

    Attributes:
        target: the device.
        low_s: at the full peaks, everything fused, no overhead.
        high_s: at the least assumed efficiency, nothing fused, the most overhead; None where the
            device's bandwidth is not known, so that there is no upper end.
        wall: what bounds the low end.
        assumptions: what the interval rests on, one line each.
    """

    target: str
    low_s: float
    high_s: float | None
    wall: str
    assumptions: tuple[str, ...] = ()
    is_predicted: bool = field(default=True, init=False)

    def to_dict(self) -> dict[str, object]:
        """Returns it for `--json`, marked as predicted."""
        return {
            "target": self.target,
            "predicted": self.is_predicted,
            "low_ms": self.low_s * 1e3,
            "high_ms": None if self.high_s is None else self.high_s * 1e3,
            "wall": self.wall,
            "assumptions": list(self.assumptions),
        }


def place_kernel(kernel: Kernel, machine: Machine) -> tuple[float, str]:
    """Returns the seconds that a kernel needs at the machine's peaks, and its wall."""
    peak = machine.peak(kernel.precision)
    compute = kernel.operations / peak if peak else 0.0
    memory = kernel.moved_bytes / machine.bandwidth if machine.bandwidth else 0.0
    return (compute, COMPUTE) if compute >= memory else (memory, BANDWIDTH)


def find_walls(costs: NetworkCosts, machine: Machine) -> Walls:
    """Returns what each wall asks for; see `Walls`."""
    seconds = {COMPUTE: 0.0, BANDWIDTH: 0.0}
    for kernel in costs.kernels:
        needed, wall = place_kernel(kernel, machine)
        seconds[wall] += needed
    return Walls(
        compute_s=seconds[COMPUTE],
        bandwidth_s=seconds[BANDWIDTH],
        overhead_s=machine.overhead_s[0] * len(costs.kernels),
        kernels=len(costs.kernels),
    )


def predict(costs: NetworkCosts, machine: Machine) -> Prediction:
    """Predicts a network's time on a machine as an interval.

    The low end is a bound that physics sets: full peaks, perfect fusion. The high end assumes the
    least efficiency of `machine`, each node run by itself, and the most overhead.
    """
    walls = find_walls(costs, machine)
    least, least_bandwidth = machine.efficiency[0], machine.bandwidth_efficiency[0]
    assumptions = [
        f"kernels reach {least:.0%} to {machine.efficiency[1]:.0%} of the peak and "
        f"{least_bandwidth:.0%} to {machine.bandwidth_efficiency[1]:.0%} of the bandwidth",
        f"a kernel costs {machine.overhead_s[0] * 1e6:.3g} to {machine.overhead_s[1] * 1e6:.3g} us"
        " besides its work",
    ]
    missing = sorted({k.precision for k in costs.kernels} - machine.peaks.keys())
    if missing:
        assumptions.append(
            f"no {', '.join(missing)} peak is known: that of another precision is taken instead"
        )
    if costs.unknown:
        assumptions.append(f"not counted: {', '.join(costs.unknown)}")
    high = None
    if machine.bandwidth is None:
        assumptions.append("the bandwidth is not known, so there is no upper end")
    else:
        high = _slowest(costs, machine)
    return Prediction(
        target=machine.name,
        low_s=walls.attainable_s,
        high_s=high,
        wall=walls.wall,
        assumptions=tuple(assumptions),
    )


def _slowest(costs: NetworkCosts, machine: Machine) -> float:
    """Each node by itself at the least efficiency; compute and memory do not overlap less."""
    total = 0.0
    for node in costs.nodes:
        peak = machine.peak(node.precision)
        compute = node.operations / (peak * machine.efficiency[0]) if peak else 0.0
        bandwidth = (machine.bandwidth or 1.0) * machine.bandwidth_efficiency[0]
        total += max(compute, node.moved_bytes / bandwidth) + machine.overhead_s[1]
    return total
