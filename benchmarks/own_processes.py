"""Runs work on one item after the other, each in a process of its own with a limit.

One crash, or one that never ends, does not stop the rest.
"""

import json
import multiprocessing
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Work = Callable[[Any], Row]


def run_each(
    work: Work,
    items: Sequence[Any],
    *,
    workers: int = 1,
    timeout_s: float,
    preloaded: Sequence[str] = (),
    tell: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Returns one row per item, in order, those that crashed or took too long included.

    Args:
        work: makes a row of an item, with its `name`; it can be pickled, as can the items.
        items: what is worked on, each with a `name` unlike the others'.
        workers: processes at a time, of one thread each; times are then disturbed more.
        timeout_s: the longest that one item may take.
        preloaded: modules that every process finds imported; none may start threads, as OpenVINO's
            telemetry does, which a fork would find in the middle of an import.
        tell: is given each row as it is finished; `problem` says what stopped it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preloaded))
    rows: dict[str, Row] = {}
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(_run_one, context, work, item, timeout_s) for item in items]
        for job in as_completed(jobs):
            row = job.result()
            rows[row["name"]] = row
            tell(row)
    return [rows[item.name] for item in items]


def read_rows(raw: Path) -> dict[str, Row]:
    """Returns the rows by name that a run before stored."""
    return json.loads(raw.read_text(encoding="utf-8")) if raw.exists() else {}


def read_resumed(raw: Path, again: Collection[str]) -> dict[str, Row]:
    """Returns the rows that a run before stored, without those of `again` that were stopped."""
    rows = read_rows(raw)
    return {name: row for name, row in rows.items() if name not in again or "problem" not in row}


def _run_one(context: Any, work: Work, item: Any, timeout_s: float) -> Row:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_row, args=(work, item, sender))
    process.start()
    sender.close()
    row: Row = {"name": item.name, "seconds": {}}
    try:
        if receiver.poll(timeout_s):
            row = receiver.recv()
        else:
            process.kill()
            row["problem"] = f"not finished in {timeout_s:.0f} s"
    except EOFError:
        process.join()
        row["problem"] = f"its process died (exit status {process.exitcode})"
    process.join()
    return row


def _send_row(work: Work, item: Any, sender: Connection) -> None:
    sender.send(work(item))
    sender.close()
