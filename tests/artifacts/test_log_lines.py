import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.log_lines import defuse


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("::error::x", ": :error::x"),
        ("fine\n   ::stop-commands::x", "fine\n   : :stop-commands::x"),
        ("error: ##[stop-commands]x.csv", "error: # #[stop-commands]x.csv"),
        ("###[group]", "## #[group]"),
        ("a ##vso[task.complete]", "a # #vso[task.complete]"),
        ("Detector::infer  4 ms\n## title", "Detector::infer  4 ms\n## title"),
    ],
)
def test_only_commands_are_parted(text, safe):
    assert defuse(text) == safe


@given(st.text(alphabet=":# [vso]\n\ta"))
def test_no_text_keeps_a_command(text):
    lines = defuse(text).split("\n")
    assert not any(line.lstrip().startswith("::") for line in lines)
    assert not any("##[" in line or "##vso[" in line for line in lines)
