"""Runs the zoo: a process per network with a limit, so that one crash does not stop the rest."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.zoo.networks import ZooNetwork

TIMEOUT_S = 120.0
PRELOADED = ("torch", "timm", "onnxruntime", "openvino", "export.to_onnx", "compress.quantize.api")

Row = dict[str, Any]


def run_zoo(
    networks: Sequence[ZooNetwork],
    targets: Sequence[str],
    *,
    workers: int = 1,
    timeout_s: float = TIMEOUT_S,
    tell: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Returns one row per network, in order, those that crashed or took too long included.

    Args:
        networks: what to run.
        targets: placements to quantize for; the first is linted and built.
        workers: processes at a time, of one thread each; times are then disturbed more.
        timeout_s: the longest that one network may take.
        tell: is given each row as it is finished.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    rows: dict[str, Row] = {}
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(_run_one, context, one, targets, timeout_s) for one in networks]
        for job in as_completed(jobs):
            row = job.result()
            rows[row["name"]] = row
            tell(row)
    return [rows[network.name] for network in networks]


def _run_one(context: Any, network: ZooNetwork, targets: Sequence[str], timeout_s: float) -> Row:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(network, tuple(targets), sender))
    process.start()
    sender.close()
    row: Row = {"name": network.name, "size": network.size, "seconds": {}}
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


def _work(network: ZooNetwork, targets: tuple[str, ...], sender: Connection) -> None:
    from benchmarks.zoo.child import measure_network

    sender.send(measure_network(network, targets))
    sender.close()
