from benchmarks.marked import replace_section


def test_a_new_section_is_added_and_then_replaced() -> None:
    page = replace_section("# Page\n", "peers", ["first"])
    again = replace_section(page, "peers", ["second", "", "third"])
    assert "# Page" in page
    assert "first" in page
    assert "first" not in again
    assert "second\n\nthird" in again
    assert again.count("peers: begin") == 1


def test_text_around_a_section_stays() -> None:
    page = replace_section("before\n", "a", ["old"]) + "after\n"
    page = replace_section(page, "a", ["new"])
    assert page.startswith("before")
    assert page.endswith("after\n")
