"""Runs the zoo: a process per network with a limit, so that one crash does not stop the rest."""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.zoo.networks import ZooNetwork

TIMEOUT_S = 120.0
PRELOADED = ("torch", "timm", "onnxruntime", "openvino", "export.to_onnx", "compress.quantize.api")


def run_zoo(networks: Sequence[ZooNetwork], timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """Returns one row per network, in order, those that crashed or took too long included."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    rows = []
    for network in networks:
        row = _run_one(context, network, timeout_s)
        print(f"{network.name}: {row.get('problem') or row['seconds']}", flush=True)
        rows.append(row)
    return rows


def _run_one(context: Any, network: ZooNetwork, timeout_s: float) -> dict[str, Any]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(network, sender))
    process.start()
    sender.close()
    row: dict[str, Any] = {"name": network.name, "size": network.size, "seconds": {}}
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


def _work(network: ZooNetwork, sender: Connection) -> None:
    from benchmarks.zoo.child import measure_network

    sender.send(measure_network(network))
    sender.close()
