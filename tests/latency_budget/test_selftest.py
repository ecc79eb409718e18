import pytest

from latency_budget.selftest import LIVE, SIMULATED, Fault, inject
from latency_budget.simulated_faults import judge_simulated
from latency_budget.verdict import Verdict


@pytest.mark.parametrize("fault", SIMULATED, ids=lambda fault: fault.name)
def test_each_simulated_fault_gets_its_verdict(fault):
    """Rows 103, 104 and 107 to 111."""
    outcome = inject(fault)
    assert outcome.is_right, outcome


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("fault", LIVE, ids=lambda fault: fault.name)
def test_each_fault_on_the_real_clock_gets_its_verdict(fault):
    """Row 109: a processor hog and a SIGSTOP of 500 ms, for real."""
    outcome = inject(fault)
    assert outcome.is_right, outcome


def test_the_selftest_notices_a_gate_that_is_blind():
    healthy = lambda: judge_simulated(lambda index: 20.0 + index % 7 / 10)  # noqa: E731
    blind = Fault(name="a fault nobody injected", expected=Verdict.FAIL, judge=healthy)
    assert not inject(blind).is_right
    wrong_gate = Fault(name="none", expected=Verdict.PASS, judge=healthy, evidence="no such words")
    assert not inject(wrong_gate).is_right
