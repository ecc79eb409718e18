"""Samples are worked on side by side, and their results come in order."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from compress.quantize import side_by_side
from compress.quantize.side_by_side import map_ahead, threads_each


def test_results_come_in_order_though_the_first_is_the_slowest():
    def work(item):
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    assert list(map_ahead(work, range(9))) == [item * item for item in range(9)]
    assert list(map_ahead(work, ())) == []


def test_few_are_computed_ahead(monkeypatch):
    monkeypatch.setattr(side_by_side, "_count_processors", lambda: 2)
    started = []
    results = map_ahead(started.append, iter(range(100)))
    next(results)
    assert len(started) <= 3
    results.close()
    assert len(started) <= 3


def test_two_items_are_in_work_at_once(monkeypatch):
    monkeypatch.setattr(side_by_side, "_count_processors", lambda: 2)
    barrier = threading.Barrier(2, timeout=60)
    assert len(list(map_ahead(lambda _: barrier.wait(), range(4)))) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_threads_of_its_own():
    assert list(map_ahead(str, range(2))) == ["0", "1"]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, context) as pool:
        assert pool.submit(_count_in_child).result(timeout=30) == [0, 1, 4]


def _count_in_child():
    return list(map_ahead(lambda item: item * item, range(3)))


def test_an_error_comes_where_its_result_would():
    def work(item):
        if item == 3:
            raise ValueError("the fourth")
        return item

    results = map_ahead(work, range(10))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the fourth"):
        next(results)


@pytest.mark.parametrize(
    ("processors", "items", "threads"), [(1, 8, 1), (2, 8, 1), (2, 1, 2), (16, 8, 8), (16, 1, 16)]
)
def test_threads_are_shared_out(processors, items, threads, monkeypatch):
    monkeypatch.setattr(side_by_side, "_count_processors", lambda: processors)
    assert threads_each(items) == threads
