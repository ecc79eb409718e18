"""A network's measured time, summed by owner: the trunk, each head, and what nobody claims."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engines.profiles.layer_time import LayerProfile, LayerTime
from latency_budget.why.node_costs import Kernel, NetworkCosts

if TYPE_CHECKING:
    import onnx

UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, kw_only=True)
class OwnedLayer:
    """A layer, whose it is, and what it computes.

    Attributes:
        layer: its time.
        owner: "trunk", a head, or "unattributed".
        nodes: the ONNX nodes behind it, as far as they could be found.
        operations: of these nodes; None where none was found.
        moved_bytes: what its kernels have to read and write; None where none was found.
        precision: of the kernel that computes most; empty where none was found.
    """

    layer: LayerTime
    owner: str
    nodes: tuple[str, ...] = ()
    operations: int | None = None
    moved_bytes: float | None = None
    precision: str = ""

    @property
    def operations_per_s(self) -> float | None:
        """How fast it computed; None where its operations or its time are not known."""
        if not self.operations or not self.layer.median_s:
            return None
        return self.operations / self.layer.median_s


@dataclass(frozen=True, kw_only=True)
class OwnerTimes:
    """A profile summed by owner.

    Attributes:
        profile: what the runtime said.
        layers: every layer with its owner.
        seconds: per owner, the largest first; "unattributed" last where there is any.
    """

    profile: LayerProfile
    layers: tuple[OwnedLayer, ...]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def unattributed_share(self) -> float:
        """Share of the layers' time that no owner could be found for."""
        total = self.profile.layers_s
        return self.seconds.get(UNATTRIBUTED, 0.0) / total if total else 0.0


def sum_by_owner(
    model: "onnx.ModelProto",
    profile: LayerProfile,
    *,
    heads: Mapping[str, Sequence[str]] | None = None,
    costs: NetworkCosts | None = None,
) -> OwnerTimes:
    """Sums a profile by owner.

    Where the runtime tells which layer reads which, ownership follows the executed graph backwards
    from its outputs, so that layers of the runtime's own making (layout changes) belong to whoever
    needs them. Elsewhere it follows the ONNX nodes that the runtime names.

    Args:
        model: the profiled network.
        profile: its layers.
        heads: graph outputs of each head; None for those of the model's metadata.
        costs: for the operations of each layer.
    """
    from artifacts.ownership import node_owners, read_heads

    found = {head: tuple(names) for head, names in (heads or read_heads(model)).items()}
    by_graph = _follow_outputs(profile.layers, found)
    by_node = node_owners(model, heads)
    nodes = {node.name: node.name for node in model.graph.node}
    nodes = {name: node.name for node in model.graph.node for name in node.output} | nodes
    claims = {
        layer.name: tuple(dict.fromkeys(nodes[name] for name in layer.nodes if name in nodes))
        for layer in profile.layers
    }
    work = _find_work(model, costs, claims) if costs else {}
    layers = []
    for layer in profile.layers:
        names = claims[layer.name]
        layers.append(
            OwnedLayer(
                layer=layer,
                owner=by_graph.get(layer.name) or _agree({by_node.get(name) for name in names}),
                nodes=names,
                **work.get(layer.name, {}),
            )
        )
    return OwnerTimes(profile=profile, layers=tuple(layers), seconds=_sum(layers))


def _find_work(
    model: "onnx.ModelProto", costs: NetworkCosts, claims: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, Any]]:
    """Operations, bytes and precision per layer; see `_find_layers`."""
    layer_of = _find_layers(model, claims)
    operations: dict[str, int] = defaultdict(int)
    for cost in costs.nodes:
        if cost.name in layer_of:
            operations[layer_of[cost.name]] += cost.operations
    kernels: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in costs.kernels:
        if kernel.name in layer_of:
            kernels[layer_of[kernel.name]].append(kernel)
    found: dict[str, dict[str, Any]] = {
        layer: {"operations": count} for layer, count in operations.items()
    }
    for layer, parts in kernels.items():
        found[layer]["moved_bytes"] = sum(kernel.moved_bytes for kernel in parts)
        found[layer]["precision"] = max(parts, key=lambda kernel: kernel.operations).precision
    return found


def _find_layers(model: "onnx.ModelProto", claims: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The layer of each node; one that no layer names was fused into the one that needs it."""
    layer_of = {node: layer for layer, names in claims.items() for node in names}
    readers: dict[str, str] = {}
    for node in reversed(model.graph.node):
        layer = layer_of.get(node.name) or next(
            (readers[name] for name in node.output if name in readers), None
        )
        if layer is not None:
            layer_of[node.name] = layer
            readers.update(dict.fromkeys(node.input, layer))
    return layer_of


def _follow_outputs(
    layers: Sequence[LayerTime], heads: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    from artifacts.ownership import TRUNK

    by_name = {layer.name: layer for layer in layers}
    needed_by: dict[str, set[str]] = defaultdict(set)
    for head, outputs in heads.items():
        waiting = [layer.name for layer in layers if set(layer.outputs) & set(outputs)]
        while waiting:
            name = waiting.pop()
            if head not in needed_by[name]:
                needed_by[name].add(head)
                waiting += [source for source in by_name[name].inputs if source in by_name]
    return {
        name: next(iter(found)) if len(found) == 1 else TRUNK for name, found in needed_by.items()
    }


def _agree(owners: set[str | None]) -> str:
    """The owner that all nodes of a layer have; several heads in one layer make it the trunk's."""
    from artifacts.ownership import TRUNK

    known = {owner for owner in owners if owner is not None}
    if not known:
        return UNATTRIBUTED
    return next(iter(known)) if len(known) == 1 else TRUNK


def _sum(layers: Sequence[OwnedLayer]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for owned in layers:
        seconds[owned.owner] += owned.layer.median_s
    ordered = sorted(seconds.items(), key=lambda item: (item[0] == UNATTRIBUTED, -item[1]))
    return {owner: value for owner, value in ordered if value > 0}
