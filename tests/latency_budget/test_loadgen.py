"""Our frame counts beside MLPerf's LoadGen, whose early stopping makes the same claim.

LoadGen never claims on fewer than one query above the percentile, and takes one rank more than the
exact bound: it discards one query less than may be over.
"""

import json
import subprocess
import sys

import pytest

from latency_budget.statistics import frames_needed, misses_allowed

CASES = [(0.9, 64), (0.9, 500), (0.97, 300), (0.99, 661), (0.99, 662), (0.99, 3304), (0.999, 7000)]
RUN_LOADGEN = """
import json, re, sys, tempfile
from pathlib import Path
import mlperf_loadgen as lg

def answer(samples):
    lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0) for sample in samples])

found = []
for percentile, count in json.loads(sys.argv[1]):
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.SingleStream
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = 0
    settings.min_query_count = settings.max_query_count = count
    settings.single_stream_target_latency_percentile = percentile
    with tempfile.TemporaryDirectory() as folder:
        log = lg.LogSettings()
        log.log_output.outdir = folder
        log.enable_trace = False
        sut = lg.ConstructSUT(answer, lambda: None)
        qsl = lg.ConstructQSL(8, 8, lambda x: None, lambda x: None)
        lg.StartTestWithLogSettings(sut, qsl, settings, log, "")
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
        text = (Path(folder) / "mlperf_log_summary.txt").read_text()
    at_least = re.search(r"at least (\\d+) queries", text)
    discard = re.search(r"Would discard (\\d+) highest", text)
    found.append([at_least and int(at_least[1]), discard and int(discard[1]), text])
print("FOUND" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def loadgen():
    pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen is not installed")
    done = subprocess.run(
        [sys.executable, "-c", RUN_LOADGEN, json.dumps(CASES)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout.rpartition("FOUND")[2])


@pytest.mark.parametrize("index", range(len(CASES)))
def test_loadgen_needs_and_discards_as_many(loadgen, index):
    percentile, count = CASES[index]
    at_least, discard, text = loadgen[index]
    allowed = misses_allowed(count, percentile, 0.99)
    assert at_least == frames_needed(1, percentile, 0.99), text
    assert discard == (allowed - 1 if allowed else None), text


@pytest.mark.parametrize(
    ("quantile", "confidence", "misses", "frames"),
    [
        (0.9, 0.99, 1, 64),
        (0.97, 0.99, 1, 219),
        (0.99, 0.99, 1, 662),
        (0.999, 0.99, 1, 6636),
        (0.99, 0.95, 0, 299),
        (0.99, 0.99, 0, 459),
        (0.999, 0.95, 0, 2995),
        (0.999, 0.99, 0, 4603),
    ],
)
def test_golden_values(quantile, confidence, misses, frames):
    assert frames_needed(misses, quantile, confidence) == frames
