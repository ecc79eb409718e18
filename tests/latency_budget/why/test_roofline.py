import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.target import list_targets, load_target
from latency_budget.clock import ManualClock
from latency_budget.why.advice import advise
from latency_budget.why.machine_peaks import measure_machine
from latency_budget.why.node_costs import Kernel, count_network
from latency_budget.why.roofline import (
    BANDWIDTH,
    COMPUTE,
    OVERHEAD,
    WALLS,
    Machine,
    find_walls,
    place_kernel,
    predict,
)

sys.path.insert(0, str(Path(__file__).parent))
from small_networks import quantized_conv, two_heads

A100 = Machine.from_target(load_target("a100"))


def kernel(operations, moved_bytes, precision="fp16"):
    return Kernel(
        name="k",
        op_type="MatMul",
        owner="trunk",
        precision=precision,
        nodes=("k",),
        macs=operations // 2,
        operations=operations,
        moved_bytes=moved_bytes,
    )


def test_the_field_guides_layer_norm_is_memory_bound_on_an_a100():
    count = 2**20
    seconds, wall = place_kernel(kernel(4 * count, 12 * count), A100)
    assert wall == BANDWIDTH
    share = 4 * count / seconds / A100.peak("fp16")
    assert share == pytest.approx(0.002, abs=0.0005)


def test_the_field_guides_matrix_product_is_compute_bound_on_an_a100():
    seconds, wall = place_kernel(kernel(2 * 4096**3, 3 * 4096**2 * 2), A100)
    assert wall == COMPUTE
    assert seconds == pytest.approx(2 * 4096**3 / 312e12)


@settings(deadline=None)
@given(st.floats(0.01, 1e5), st.sampled_from(["int8", "fp16", "fp32"]))
def test_both_walls_meet_at_the_crossover(intensity, precision):
    """Attainable = min(peak, intensity * bandwidth)."""
    seconds, wall = place_kernel(kernel(intensity, 1, precision), A100)
    if intensity < A100.peak(precision) / A100.bandwidth:
        assert wall == BANDWIDTH
        assert intensity / seconds == pytest.approx(intensity * A100.bandwidth)
    else:
        assert wall == COMPUTE
        assert intensity / seconds == pytest.approx(A100.peak(precision))


@pytest.mark.parametrize("name", [name for name in list_targets() if not name.startswith("rtx")])
def test_every_target_predicts_an_interval_marked_as_predicted(name):
    machine = Machine.from_target(load_target(name))
    if not machine.peaks:
        assert name == "cpu"
        return
    for model in (two_heads(), quantized_conv()):
        found = predict(count_network(model), machine)
        assert found.to_dict()["predicted"] is True
        assert found.low_s > 0
        assert (found.high_s is None) == (machine.bandwidth is None)
        assert found.high_s is None or found.high_s > found.low_s
        assert found.wall in WALLS
        assert found.assumptions


def test_int8_is_predicted_to_be_faster_where_compute_is_the_wall():
    slow = Machine(name="m", peaks={"fp32": 1e9, "int8": 4e9}, bandwidth=1e12)
    network = count_network(two_heads())
    int8 = [kernel(k.operations, k.moved_bytes, "int8") for k in network.kernels]
    float_s = sum(place_kernel(k, slow)[0] for k in network.kernels)
    assert sum(place_kernel(k, slow)[0] for k in int8) < float_s


@pytest.mark.parametrize(
    ("machine", "wall"),
    [
        (Machine(name="m", peaks={"fp32": 1e9}, bandwidth=1e15), COMPUTE),
        (Machine(name="m", peaks={"fp32": 1e15}, bandwidth=1e6), BANDWIDTH),
        (Machine(name="m", peaks={"fp32": 1e15}, bandwidth=1e15, overhead_s=(1, 1)), OVERHEAD),
    ],
)
def test_the_wall_and_the_advice_follow_the_machine(machine, wall):
    costs = count_network(two_heads())
    walls = find_walls(costs, machine)
    assert walls.wall == wall
    advice = advise(costs, walls.wall, walls)
    assert advice
    assert any("CUDA graph" in line for line in advice) == (wall == OVERHEAD)
    assert any("bytes" in line for line in advice) == (wall == BANDWIDTH)
    assert any("operations run in float" in line for line in advice) == (wall == COMPUTE)


def test_a_quantized_network_is_not_told_to_quantize():
    costs = count_network(quantized_conv())
    for wall in WALLS:
        assert not any("compress quantize" in line for line in advise(costs, wall))


def test_this_machine_is_measured():
    pytest.importorskip("openvino")
    machine = measure_machine(rounds=3, copy_bytes=2**22)
    assert machine.is_measured
    assert machine.peaks["int8"] > 0 < machine.peaks["fp32"]
    assert machine.bandwidth > 0 < machine.overhead_s[0]


def test_a_stopped_clock_gives_no_infinite_peak():
    pytest.importorskip("openvino")
    machine = measure_machine(rounds=1, copy_bytes=2**16, clock=ManualClock())
    assert all(value < float("inf") for value in machine.peaks.values())
