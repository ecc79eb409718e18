import time

import pytest

from artifacts.strict_toml import MOST_PARTS, read_toml


@pytest.mark.parametrize("part", ["a", "'a b'", '"a"'])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "x = {{{} = 1}}"])
def test_a_key_of_very_many_parts_is_refused_before_it_is_parsed(part, form):
    with pytest.raises(ValueError, match="more than 16 parts"):
        read_toml(form.format(" . ".join([part] * 100_000)))


def test_what_only_looks_alike_is_read():
    key = ".".join(["a"] * MOST_PARTS)
    text = f"# {'. ' * 200}\n{key} = 1\nb = [{'0.5, ' * 100}]\nc = 'v1.2.3.4'"
    assert read_toml(text)["c"] == "v1.2.3.4"


@pytest.mark.parametrize("text", ["a" * 300_000, '"' * 300_000, "a " * 150_000, "'a" * 150_000])
def test_a_long_text_takes_no_longer_than_its_length(text):
    begun = time.perf_counter()
    with pytest.raises(ValueError, match=r"line 1|end of document"):
        read_toml(text)
    assert time.perf_counter() - begun < 5
