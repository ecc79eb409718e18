import pytest

from artifacts.errors import InputError
from engines.runtimes import BACKENDS
from engines.target import list_targets, load_target, parse_target


@pytest.mark.parametrize("name", list_targets())
def test_every_target_loads_and_names_a_real_runtime(name):
    target = load_target(name)
    assert target.kind in ("gpu", "cpu", "npu")
    assert target.runtime is None or target.runtime in BACKENDS
    assert (target.compute_capability is not None) == (target.runtime == "tensorrt")
    assert not target.tensorrt_rtx or target.compute_capability in (75, 80, 86, 89, 120, 121)


@pytest.mark.parametrize(
    ("name", "crossover"),
    [("v100", 139), ("a100", 156), ("h100", 291), ("h200", 206), ("b200", 281)],
)
def test_the_roofline_crossover_is_the_published_one(name, crossover):
    """In operations per byte: where bfloat16's peak meets intensity * bandwidth."""
    target = load_target(name)
    assert round(target.bf16_tflops / target.bandwidth_tb_s) == crossover


def test_what_is_not_known_stays_unknown():
    assert load_target("thor").bf16_tflops is None
    assert load_target("thor").bandwidth_tb_s is None
    assert load_target("thor").memory_gb == ()


def test_mistakes_are_named():
    with pytest.raises(InputError, match="target is 'orinn'"):
        load_target("orinn")
    with pytest.raises(InputError, match="unknown key 'bandwith'"):
        parse_target("mine", 'title = "x"\nkind = "gpu"\nbandwith = 3\n')
    with pytest.raises(InputError, match="title"):
        parse_target("mine", 'kind = "gpu"\n')
    with pytest.raises(InputError, match="not TOML"):
        parse_target("mine", "= 3")
