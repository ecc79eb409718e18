import stat
from pathlib import Path

import pytest

from latency_budget.environment import Check
from latency_budget.gpu import judge_gpu, parse_samples
from latency_budget.jetson import judge_jetson, parse_tegrastats
from latency_budget.samplers import Sampler, Samplers

FIXTURES = Path(__file__).parent / "fixtures"


def lines_of(name):
    return (FIXTURES / name).read_text().splitlines()


def verdicts(checks):
    return {check.name: check.verdict for check in checks}


def test_samples_of_nvidia_smi_are_read_and_torn_lines_skipped():
    samples = parse_samples(lines_of("nvidia_smi.csv"))
    assert [sample.sm_mhz for sample in samples] == [1980, 1980, 1965, None]
    assert [sample.reasons for sample in samples] == [0, 0, 4, None]


def test_a_power_cap_warns_and_a_steady_clock_is_fine():
    found = verdicts(judge_gpu(lines_of("nvidia_smi.csv"), "", ()))
    assert found == {"GPU throttling": "warn", "GPU clock": "ok", "other GPU processes": "ok"}


@pytest.mark.parametrize("reason", [0x8, 0x20, 0x40, 0x80])
def test_slowdowns_of_the_hardware_are_invalid(reason):
    line = f"0, GPU, P0, 1980, 1980, 60, 200.0, {hex(reason | 0x4)}"
    assert verdicts(judge_gpu([line], "", ()))["GPU throttling"] == "invalid"


def test_a_clock_that_varies_is_invalid():
    found = judge_gpu([f"0, GPU, P0, {mhz}, 1980, 60, 1, 0x0" for mhz in (1980, 1500)], "", ())
    assert verdicts(found)["GPU clock"] == "invalid"


def test_only_processes_that_are_not_ours_count():
    text = "41, /usr/bin/python3\n42, /opt/other\n"
    assert verdicts(judge_gpu([], text, (41, 42)))["other GPU processes"] == "ok"
    foreign = judge_gpu([], text, (41,))[2]
    assert (foreign.verdict, foreign.detail) == ("invalid", "other")


def test_a_gpu_that_tells_nothing_is_unknown():
    found = verdicts(judge_gpu([], "", ()))
    assert (found["GPU throttling"], found["GPU clock"]) == ("unknown", "unknown")


def test_tegrastats_of_jetpack_6_is_read():
    samples = parse_tegrastats(lines_of("tegrastats_jetpack6.txt"))
    assert [sample.gpu_mhz for sample in samples] == [1300, 1300]
    assert [sample.hottest_c for sample in samples] == [52.312, 53.0]
    mode = "NV Power Mode: MAXN\n0\n"
    clocks = "GPU MinFreq=1300500000 MaxFreq=1300500000 CurrentFreq=1300500000\n"
    found = verdicts(judge_jetson(lines_of("tegrastats_jetpack6.txt"), mode, clocks))
    assert set(found.values()) == {"ok"}


def test_a_hot_swapping_unlocked_jetson_is_told():
    mode = "NVPM WARN: fan mode is not set!\nNV Power Mode: MODE_30W\n2\n"
    clocks = "GPU MinFreq=306000000 MaxFreq=1300500000 CurrentFreq=905250000\n"
    assert verdicts(judge_jetson(lines_of("tegrastats_jetpack5.txt"), mode, clocks)) == {
        "Jetson temperature": "warn",
        "Jetson GPU clock": "invalid",
        "Jetson swap": "invalid",
        "Jetson power mode": "warn",
        "jetson_clocks": "warn",
    }


def test_a_jetson_without_its_tools_is_unknown():
    assert set(verdicts(judge_jetson([], "", "")).values()) == {"unknown"}


def test_a_tool_samples_during_the_block_and_is_ended_after_it(tmp_path, monkeypatch):
    tool = tmp_path / "fake-smi"
    tool.write_text("#!/bin/sh\nwhile :; do echo line; sleep 0.02; done\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    seen = []

    def judge(lines):
        seen.extend(lines)
        return [Check("fake", "ok", f"{len(lines)} lines")]

    fake = Sampler(program="fake-smi", arguments=(), judge=judge)
    absent = Sampler(program="no-such-tool-here", arguments=(), judge=judge)
    with Samplers(samplers=(fake, absent)) as samplers:
        process = samplers._running[0][1]
        process.poll()
        import time

        time.sleep(0.3)
    assert process.returncode is not None
    assert len(samplers.checks) == 1
    assert set(seen) == {"line"}
