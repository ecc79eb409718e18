"""The page as a person uses it: real keys, dark mode, narrow and wide windows, no network."""

import dataclasses
import json
import os
import select
import shutil
import subprocess
import time

import numpy as np
import pytest

from latency_budget.budget import Budget
from latency_budget.report import build_report, build_variant
from latency_budget.report_extras import (
    HistoryPoint,
    ReportExtras,
    RooflinePoint,
    RooflineView,
    StageOption,
)
from latency_budget.reports import html
from latency_budget.run import Run
from latency_budget.verdict import judge

MS = 1_000_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Browser:
    """Headless Chromium over a pair of pipes (--remote-debugging-pipe); no port is opened."""

    def __init__(self, folder):
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        command = [
            "bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "bash", CHROMIUM,
            "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, pass_fds=(to_child, from_child), stderr=subprocess.DEVNULL
        )
        os.close(to_child)
        os.close(from_child)
        self._number, self._session, self._rest = 0, None, b""
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self):
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], 60)[0], "chromium does not answer"
            self._rest += os.read(self._in, 1 << 16)
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def open(self, path, width):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + 60
        while self.ask("document.readyState") != "complete" or not self.ask("location.pathname"):
            assert time.monotonic() < until
            time.sleep(0.02)

    def ask(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)[
            "result"
        ].get("value")

    def press(self, key, code, text=""):
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        typed = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def close(self):
        self.call("Browser.close")
        self._process.wait(timeout=30)
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


def option(stage, base_ms, **settings):
    samples = ((base_ms + np.linspace(0, 1, 200)) * MS).astype(np.int64)
    return StageOption.from_samples(stage, settings, samples)


def shapes():
    for precision, base in (("float", 40), ("INT8", 18)):
        for depth, saved in (("off", 2), ("on", 0)):
            settings = {"precision": precision, "depth": depth}
            yield option("preprocess", 1, **settings)
            yield option("network", base - saved, **settings)
            yield option("frame", base - saved + 2, **settings)


def view_roofline():
    rng = np.random.default_rng(0)
    points = [
        RooflinePoint(
            name=f"a/rather/long/name/of/a/layer/Conv_{index}",
            owner=("trunk", "detection", "segmentation", "depth")[index % 4],
            precision=("int8", "fp32")[index % 2],
            intensity=float(10 ** rng.uniform(-1, 2.5)),
            operations_per_s=float(10 ** rng.uniform(9, 11)),
            ms=float(rng.uniform(0.01, 2)),
        )
        for index in range(30)
    ]
    return RooflineView(
        machine="this machine (x86_64), measured",
        peaks={"fp32": 3e11, "int8": 9e11},
        bandwidth=2e10,
        points=tuple(points),
        wall="compute",
        advice=("prune channels where the work is",),
        predictions=({"target": "orin", "low_ms": 0.1, "high_ms": 4.0, "wall": "bandwidth"},),
        owners_ms={"trunk": 20.0, "detection": 1.0, "segmentation": 2.0, "depth": 1.5},
        network="road.int8.onnx",
        runs=20,
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    budget = Budget(stages={"preprocess": 3.0, "network": 22.0})
    variants = []
    for name, base in (("float", 40), ("INT8", 18)):
        network = np.full(400, base * MS) + np.arange(400) * 1000
        network[[50, 51]] += 30 * MS
        parts = {"preprocess": np.full(400, MS), "network": network}
        run = Run.from_latencies(sum(parts.values()), stages_ns=parts)
        judgement = judge(run, budget)
        variants.append(build_variant(name, run, budget, judgement=judgement))
    history = tuple(
        HistoryPoint(label=f"#{i} 0123abc", p50_ms=20.0 + i, p99_ms=30.0 + i, verdict="pass")
        for i in range(12)
    )
    extras = ReportExtras(options=tuple(shapes()), roofline=view_roofline(), history=history)
    report = build_report(variants, budget, judgement, title="A frame")
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html.render(dataclasses.replace(report, extras=extras)))
    return path


ANSWER = "document.getElementById('mix-answer').textContent"
FOCUS = "document.activeElement.name + '=' + document.activeElement.value"


def tab_to(browser, name):
    for _ in range(30):
        browser.press("Tab", 9)
        if browser.ask(FOCUS).startswith(f"{name}="):
            return
    raise AssertionError(f"{name} is not reached with Tab")


def test_toggles_work_with_the_keyboard_alone(browser, page):
    browser.open(page, 1280)
    shipped = browser.ask(ANSWER)
    assert "✓ fits: frame P50 20.5 ms" in shipped
    assert "Measured as a whole (200 frames back to back). INT8 above, 400 frames" in shipped
    assert browser.ask("document.querySelectorAll('#mix-axis span').length") > 3
    tab_to(browser, "mix-all-precision")
    outline = "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
    assert browser.ask(outline) == "solid"
    browser.press("ArrowLeft", 37)
    assert browser.ask(FOCUS) == "mix-all-precision=float"
    assert "✗ too long: frame P50 42.5 ms" in browser.ask(ANSWER)
    assert "22.0 ms longer than what ships" in browser.ask(ANSWER)
    browser.press("ArrowRight", 39)
    tab_to(browser, "mix-all-depth")
    browser.press("ArrowRight", 39)
    assert browser.ask(FOCUS) == "mix-all-depth=off"
    assert "✓ fits: frame P50 18.5 ms" in browser.ask(ANSWER)
    assert "2.0 ms shorter than what ships" in browser.ask(ANSWER)
    for _ in range(30):
        browser.press("Tab", 9)
        if browser.ask("document.activeElement.dataset.toggle") == "log":
            break
    browser.press(" ", 32, " ")
    assert browser.ask("document.documentElement.classList.contains('log')")


def test_the_page_asks_no_network_for_anything(browser, page):
    browser.events.clear()
    browser.open(page, 1280)
    browser.ask("document.body.getBoundingClientRect().height")
    sent = [e for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    urls = [event["params"]["request"]["url"] for event in sent]
    assert [url for url in urls if not url.startswith("file://")] == []
    assert len(urls) == 1
    assert not [e for e in browser.events if e["method"] == "Runtime.exceptionThrown"]


CUT_OFF = """[...document.querySelectorAll('.name, .numbers, .labels > span, .lane, .tick, th')]
  .filter(one => one.offsetParent && one.scrollWidth > one.clientWidth + 1
    && getComputedStyle(one).textOverflow !== 'ellipsis')
  .map(one => one.textContent)"""
OVERLAPPING = """[...document.querySelectorAll('.ticks')].flatMap(row => {
  const boxes = [...row.children].map(one => one.getBoundingClientRect());
  return boxes.slice(1).filter((box, i) => box.left < boxes[i].right).map(() => row.id || 'ticks');
})"""


@pytest.mark.parametrize("width", [360, 768, 1280, 2560])
def test_nothing_overflows_or_overlaps(browser, page, width):
    browser.open(page, width)
    browser.ask("for (const one of document.querySelectorAll('details')) one.open = true; 0")
    assert browser.ask("document.documentElement.scrollWidth") == width
    assert browser.ask(CUT_OFF) == []
    assert browser.ask(OVERLAPPING) == []


CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255)
      .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
  };
  const style = getComputedStyle(document.documentElement);
  const of = name => light(style.getPropertyValue(name));
  const ratio = (a, b) => (Math.max(of(a), of(b)) + .05) / (Math.min(of(a), of(b)) + .05);
  return {
    text: Math.min(...['--ink', '--quiet', '--pass', '--fail', '--doubt', '--invalid', '--red']
      .map(name => Math.min(ratio(name, '--card'), ratio(name, '--page')))),
    marks: Math.min(...['--c0', '--c1', '--c2', '--c3', '--c4', '--c5', '--red']
      .map(name => ratio(name, '--page'))),
    page: of('--page'),
  };
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme_and_can_be_read(browser, page, scheme):
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.call("Emulation.setEmulatedMedia", features=[feature])
    browser.open(page, 1280)
    found = browser.ask(CONTRAST)
    assert (found["page"] < 0.1) == (scheme == "dark")
    assert found["text"] >= 4.5
    assert found["marks"] >= 3
