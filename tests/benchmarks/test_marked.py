from benchmarks.marked import keep_sections, replace_section


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


def test_sections_outlive_a_page_that_is_written_anew() -> None:
    known = replace_section(replace_section("old text\n", "a", ["1"]), "b-c", ["2"])
    page = keep_sections("new text\n", known)
    assert "old text" not in page
    assert "<!-- a: begin -->\n1\n<!-- a: end -->" in page
    assert "<!-- b-c: begin -->\n2\n<!-- b-c: end -->" in page
    assert keep_sections(page, page) == page
