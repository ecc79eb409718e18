"""What all tests share: no hurry for hypothesis, and a browser that renders pages."""

import gc
import json
import re
import shutil
import subprocess
from html import unescape

import pytest
from hypothesis import settings

from artifacts.processor import overflows_on_int8, read_flags

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Lets the garbage collector skip what was imported: it would look at all of it many times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _collect_once_a_module():
    """And what a module leaves for good: torch's exporter keeps many objects."""
    yield
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Lets it take what it skipped, which bindings would call leaked."""
    gc.unfreeze()


FRAME = """<!doctype html><script>
addEventListener('message', event => { document.title = JSON.stringify(event.data); });
</script><iframe src="inner.html" style="width:{width}px;height:900px;border:0"></iframe>"""


@pytest.fixture(scope="session")
def exact_weights() -> str:
    """The type of weights that runtimes compute on this processor as a file says."""
    return "int8-pairs" if overflows_on_int8(read_flags()) else "int8"


@pytest.fixture
def render_in_chromium(tmp_path):
    """Returns a function that renders a page at a width and gives what its probe posts.

    The probe is a script that ends in `parent.postMessage(found, '*')`.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed: page not rendered")

    def render(page: str, width: int, probe: str):
        (tmp_path / "inner.html").write_text(page.replace("<head>", f"<head>{probe}", 1))
        (tmp_path / "outer.html").write_text(FRAME.replace("{width}", str(width)))
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            (tmp_path / "outer.html").as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return json.loads(unescape(re.search(r"<title>(.*)</title>", done.stdout)[1]))

    return render
