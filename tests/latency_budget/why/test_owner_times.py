import sys
import time
from pathlib import Path

import pytest

from artifacts.errors import InputError
from engines.layer_profile import PROFILERS, profile_layers
from engines.profiles.layer_time import LayerProfile, LayerTime
from engines.profiles.trt import join_layers
from latency_budget.why.node_costs import count_network
from latency_budget.why.owner_times import UNATTRIBUTED, sum_by_owner

sys.path.insert(0, str(Path(__file__).parent))
from small_networks import two_heads


@pytest.fixture
def model():
    return two_heads()


@pytest.fixture
def path(model, tmp_path):
    file = tmp_path / "two_heads.onnx"
    file.write_bytes(model.SerializeToString())
    return file


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_a_real_profile_is_summed_by_trunk_and_heads(runtime, model, path):
    profile = profile_layers(path, runtime, now_ns=time.monotonic_ns, runs=3)
    costs = count_network(model)
    times = sum_by_owner(model, profile, costs=costs)
    assert {"trunk", "a", "b"} <= {owned.owner for owned in times.layers}
    assert set(times.seconds) <= {"trunk", "a", "b"}
    assert times.unattributed_share == 0
    assert sum(times.seconds.values()) == pytest.approx(profile.layers_s)
    assert sum(owned.operations or 0 for owned in times.layers) == costs.operations


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_heads_may_be_named(runtime, model, path):
    profile = profile_layers(path, runtime, now_ns=time.monotonic_ns, runs=1)
    times = sum_by_owner(model, profile, heads={"both": ("a", "b")})
    assert set(times.seconds) <= {"both"}


def layer(name, seconds, **more):
    return LayerTime(name=name, kind="", median_s=seconds, **more)


def test_without_a_graph_the_names_of_the_nodes_decide(model):
    profile = LayerProfile(
        runtime="tensorrt",
        layers=(
            layer("stem + relu", 0.004, nodes=("stem", "relu")),
            layer("head_a", 0.002, nodes=("head_a",)),
            layer("head_a || head_b", 0.001, nodes=("head_a", "head_b")),
            layer("reformat 7", 0.003),
        ),
        total_s=0.012,
        runs=1,
    )
    times = sum_by_owner(model, profile)
    assert times.seconds == {
        "trunk": pytest.approx(0.005),
        "a": 0.002,
        UNATTRIBUTED: 0.003,
    }
    assert times.unattributed_share == pytest.approx(0.3)
    assert profile.outside_s == pytest.approx(0.002)


@pytest.mark.parametrize(
    "described",
    [
        [
            {
                "Name": "stem",
                "LayerType": "Convolution",
                "Inputs": [{"Name": "x"}],
                "Outputs": [{"Name": "r"}],
                "Metadata": "[ONNX Layer: stem]\x1e[ONNX Layer: relu]",
            },
            {"Name": "k2", "Inputs": [{"Name": "r"}], "Outputs": [{"Name": "a"}]},
        ],
        ["stem", "k2"],
    ],
)
def test_tensorrts_layers_are_joined_with_its_times(described):
    layers = join_layers(described, {"stem": [0.1, 0.3, 0.2], "k2": [0.1]}, {"a"})
    assert [item.median_s for item in layers] == [0.2, 0.1]
    if isinstance(described[0], dict):
        assert layers[0].nodes == ("stem", "relu")
        assert layers[1].inputs == ("stem",)
        assert layers[1].outputs == ("a",)
    else:
        assert layers[0].nodes == ("stem",)


def test_mistakes_are_named(path):
    with pytest.raises(InputError, match="no profile per layer of 'null'"):
        profile_layers(path, "null", now_ns=time.monotonic_ns)
    with pytest.raises(InputError, match="runs is 0"):
        profile_layers(path, "openvino", now_ns=time.monotonic_ns, runs=0)


def test_every_profiler_is_a_runtime():
    from engines.runtimes import BACKENDS

    assert set(PROFILERS) < set(BACKENDS)
