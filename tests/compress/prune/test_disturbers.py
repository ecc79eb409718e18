"""Families that do not prune together with the others are found in few proofs."""

from types import SimpleNamespace

import pytest

from compress.prune import disturbers as search

FAMILIES = 64


@pytest.fixture
def find(monkeypatch):
    """Finds those of many families that disturb, and counts the proofs that it takes."""

    def find_among(disturbers, *, clashing=()):
        """`clashing` families prune only without one another."""
        proven = []

        def problem(network, removed):
            proven.append(removed)
            wrong = sorted(removed & set(disturbers))
            together = len(removed & set(clashing)) > 1
            return f"wrong with {wrong}" if wrong else "clash" * together

        families = [{f"family {index}": {index} for index in range(FAMILIES)}]
        monkeypatch.setattr(search, "find_problem", problem)
        return search.find_disturbers(SimpleNamespace(channels=None), families), len(proven)

    return find_among


@pytest.mark.parametrize("disturbers", [(), (0,), (63,), (17, 18), (3, 30, 50), range(FAMILIES)])
def test_each_is_found_with_its_reason(disturbers, find):
    found, proofs = find(disturbers)
    assert found == {f"family {index}": f"wrong with [{index}]" for index in disturbers}
    assert proofs <= 1 + 12 * len(disturbers)


def test_of_those_that_clash_the_first_stays(find):
    found, _ = find((), clashing=(5, 6, 40))
    assert found == {"family 6": "clash", "family 40": "clash"}
