"""Files, headings and modules that pages name exist."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
MODULE = re.compile(r"-m ((?:benchmarks|framefit|export|compress|latency_budget)[\w.]*)")
SOURCE = re.compile(r"(?<![\w./<*])(?:\w+/)+\w+\.(?:py|toml|css|js|j2|md)\b")
PACKAGES = tuple(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())
OTHERS = ("benchmarks", "docs", "examples", "tests")


def find_anchors(text: str) -> set[str]:
    """Returns the names that GitHub gives a page's headings."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        name = first = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = 0
        while name in anchors:
            count += 1
            name = f"{first}-{count}"
        anchors.add(name)
    return anchors


def find_broken_links(page: Path, text: str) -> list[str]:
    """Returns the links within the repository that lead nowhere."""
    broken = []
    for target in LINK.findall(text):
        name, _, anchor = target.partition("#")
        path = Path(os.path.normpath(page.parent / name)) if name else page
        if target.startswith(("http:", "https:")):
            continue
        if not path.exists() or (anchor and anchor not in find_anchors(path.read_text())):
            broken.append(target)
    return broken


def find_missing_sources(text: str) -> list[str]:
    """Returns the files and modules of ours that a text names and that there are not."""
    sources = {
        path
        for code in CODE.findall(text)
        for path in SOURCE.findall(code)
        if path.split("/")[0] in (*PACKAGES, *OTHERS)
    }
    modules = {name.rstrip(".") for name in MODULE.findall(text)}
    return [path for path in sources if not (ROOT / path).exists()] + [
        name
        for name in modules
        if not (ROOT / f"{name.replace('.', '/')}.py").exists()
        and not (ROOT / name.replace(".", "/") / "__main__.py").exists()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert not find_broken_links(page, page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_that_are_named_exist(page: Path) -> None:
    assert not find_missing_sources(page.read_text())


def test_what_does_not_exist_is_found() -> None:
    text = "# A `b`\n## Two words\n## Two words\n[x](#a-b) [y](#two-words-1) [z](README.md)"
    page = ROOT / "docs" / "index.md"
    assert find_anchors(text) == {"a-b", "two-words", "two-words-1"}
    assert find_broken_links(page, text) == ["#a-b", "#two-words-1", "README.md"]
    assert find_broken_links(page, "[z](../README.md#try-it) [w](https://a.b/c)") == []
    assert find_missing_sources("`compress/shrink.py`, run as `python -m benchmarks.fly`") == [
        "compress/shrink.py",
        "benchmarks.fly",
    ]
    assert not find_missing_sources("`framefit/cli.py`, `your/own.py`, `-m benchmarks.peers`")
