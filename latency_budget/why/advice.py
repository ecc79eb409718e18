"""What moves the wall that a network stands at, and nothing that does not."""

from latency_budget.why.node_costs import NetworkCosts
from latency_budget.why.roofline import BANDWIDTH, COMPUTE, OVERHEAD, Walls

_MOSTLY = 0.5
_FEW = 0.1


def advise(costs: NetworkCosts, wall: str, walls: Walls | None = None) -> tuple[str, ...]:
    """Returns what to try, the most effective first; every line moves `wall`.

    Args:
        costs: the network.
        wall: "compute", "bandwidth" or "overhead".
        walls: how much each wall asks for, for the shares in the text.
    """
    rules = {COMPUTE: _against_compute, BANDWIDTH: _against_bandwidth, OVERHEAD: _against_overhead}
    return tuple(rules[wall](costs, walls))


def _against_compute(costs: NetworkCosts, walls: Walls | None) -> list[str]:
    found = []
    if costs.share_of("int8") < _MOSTLY:
        found.append(
            f"quantize to INT8: {1 - costs.share_of('int8'):.0%} of the operations run in float"
            " (compress quantize)"
        )
    owner, share = _heaviest(costs)
    found.append(f"prune channels where the work is: {owner} has {share:.0%} of the operations")
    node = max(costs.nodes, key=lambda node: node.operations)
    found.append(
        f"shrink or replace the heaviest layer, {node.op_type} {node.name}:"
        f" {node.operations / costs.operations:.0%} of the operations"
    )
    owners = costs.owners()
    heads = sum(part["operations"] for name, part in owners.items() if name != "trunk")
    if "trunk" in owners and heads > _FEW * costs.operations:
        found.append(
            f"switch off heads that a driving mode does not need: together they are"
            f" {heads / costs.operations:.0%} of the operations"
        )
    return found


def _against_bandwidth(costs: NetworkCosts, walls: Walls | None) -> list[str]:
    found = []
    if costs.share_of("int8") < _MOSTLY and costs.share_of("fp16") < _MOSTLY:
        found.append(
            "store tensors in fewer bytes: INT8 moves a quarter of FP32 (compress quantize)"
        )
    if costs.weight_bytes > _MOSTLY * costs.moved_bytes:
        found.append(
            f"weights are {costs.weight_bytes / costs.moved_bytes:.0%} of the bytes: 4-bit weights"
            " or fewer channels"
        )
    kernel = max(costs.kernels, key=lambda kernel: kernel.moved_bytes)
    found.append(
        f"look first at {kernel.op_type} {kernel.name}: it moves"
        f" {kernel.moved_bytes / costs.moved_bytes:.0%} of the bytes"
    )
    unfused = sum(node.moved_bytes for node in costs.nodes)
    if unfused > (1 + _FEW) * costs.moved_bytes:
        found.append(
            f"check that elementwise layers are fused: unfused, {unfused / costs.moved_bytes:.1f}"
            " times the bytes are moved"
        )
    return found


def _against_overhead(costs: NetworkCosts, walls: Walls | None) -> list[str]:
    return [
        "replay the network as one CUDA graph where there is a GPU (--cuda-graph)",
        f"have fewer, larger layers: there are {len(costs.kernels)} kernels with"
        f" {costs.operations / max(1, len(costs.kernels)) / 1e6:.1f} million operations each",
        "run several cameras as one batch",
    ]


def _heaviest(costs: NetworkCosts) -> tuple[str, float]:
    owners = costs.owners()
    name = next(iter(owners))
    return name, owners[name]["operations"] / max(1, costs.operations)
