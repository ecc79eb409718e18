"""One network on its way: known channels, importance, cuts, and what they did to the outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.module_copy import share_values
from artifacts.module_run import run_module
from compress.progress import Progress
from compress.prune.adapt import open_network
from compress.prune.analysis.families import Channels
from compress.prune.cost import Cost
from compress.prune.disturbers import spare_disturbers
from compress.prune.importance import IMPORTANCES, NEED_DATA, ImportanceData
from compress.prune.prunable_network import TOLERANCE, PrunableNetwork
from compress.prune.select import Selection, WidthLimits, find_floor, rank_scores, select_groups
from compress.prune.settings import PruneSettings
from compress.prune.surgery import Edits
from compress.sqnr import SignalToNoise
from compress.train.answers import answer, comparable
from compress.train.batch_norm import improve_batch_norm
from compress.train.threads import use_threads
from compress.train.unit_parts import OutputParts, find_parts

Inputs = tuple[Tensor, ...]
_MOST_REASONS = 6


@dataclass(frozen=True, kw_only=True)
class PruneData:
    """What the network is judged on.

    Attributes:
        importance: for gradients and activations.
        calibration: arguments of the network for BatchNorm's statistics.
        held_out: arguments for the quality probe.
    """

    importance: ImportanceData = field(default_factory=ImportanceData)
    calibration: Sequence[Inputs] = ()
    held_out: Sequence[Inputs] = ()

    @property
    def samples(self) -> list[Inputs]:
        """All that is given as the network's arguments, each once."""
        given = (*self.importance.images, *self.calibration, *self.held_out)
        return list({id(sample): sample for sample in given}.values())


@dataclass(frozen=True)
class Cut:
    """A network after a cut.

    Attributes:
        module: the narrower network.
        edits: what makes it from the network before.
        selection: what left.
        difference: how far it is from the zeroed original in float64, relative; before BatchNorm
            was re-estimated.
        narrowed_statistics: what that original computes over the remaining channels only.
    """

    module: nn.Module
    edits: Edits
    selection: Selection
    difference: float
    narrowed_statistics: tuple[str, ...] = ()


class UnprovenError(InputError):
    """A pruned network that does not compute what the zeroed original does.

    Args:
        selection: what left.
        difference: how far the two are apart.
    """

    def __init__(self, selection: Selection, difference: float) -> None:
        self.selection = selection
        super().__init__(
            f"the pruned network differs from the zeroed original by {difference:.1e}",
            f"{TOLERANCE:.0e} at most",
            "protect the part that is to blame with --protect",
        )


class Pruner:
    """Knows a network's channels and their importance, and makes cuts.

    Args:
        module: the network; it is not changed.
        inputs: its arguments.
        settings: how to prune.
        data: samples.
        progress: told (what, done, total).
        others: arguments with which it runs other layers.

    Raises:
        InputError: the network cannot run, nothing in it can be pruned, or the importance needs
            data that is not given.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs,
        settings: PruneSettings,
        data: PruneData,
        progress: Progress | None = None,
        others: Sequence[Inputs] = (),
    ) -> None:
        if settings.importance in NEED_DATA and not data.importance.images:
            raise InputError(
                f"the importance '{settings.importance}' is found on samples",
                "samples",
                "give --data, or --importance magnitude",
            )
        self.module = module
        self._settings = settings
        self._data = data
        with use_threads(settings.threads):
            network = open_network(
                module, inputs, protect=settings.protect, others=others, progress=progress
            )
        self._know(network)

    def _know(self, network: PrunableNetwork) -> None:
        """Takes over what is known of the network's channels, and finds what matters of them."""
        self._network = network
        if not self.channels.families:
            raise _nothing_to_remove(self.channels)
        score = IMPORTANCES[self._settings.importance]
        raw = score(share_values(self.module), self.channels, self._data.importance)
        self._scores = rank_scores(self.channels, raw, self._settings.ranking)

    @property
    def channels(self) -> Channels:
        """What can be pruned, and what not."""
        return self._network.channels

    @property
    def limits(self) -> WidthLimits:
        """Which widths its feature maps may get."""
        return self._settings.limits

    def select(self, cost: Cost, goal: float) -> Selection:
        """Chooses what leaves to bring a cost down to `goal`."""
        return select_groups(self.channels, self._scores, cost, goal, self._settings.limits)

    def floor(self, cost: Cost) -> Selection:
        """Returns the narrowest network that the limits allow."""
        return find_floor(self.channels, cost, self._settings.limits)

    def narrow(self, selection: Selection) -> nn.Module:
        """Returns the network without the selection, as quickly as possible."""
        return self._network.narrow(selection.removed)

    def cut(self, selection: Selection) -> Cut:
        """Removes channels, proves that nothing else changed, and renews BatchNorm's statistics.

        Raises:
            UnprovenError: the narrower network computes something else.
        """
        with use_threads(self._settings.threads):
            difference = self._network.largest_difference(selection.removed)
        if not difference <= TOLERANCE:
            self._network.require_repeatable()
            raise UnprovenError(selection, difference)
        edits = self._network.make_edits(selection.removed)
        module = self._network.narrow(selection.removed)
        self._renew_statistics(module)
        statistics = self._network.narrowed_statistics(selection.removed)
        return Cut(module, edits, selection, difference, statistics)

    def spare_disturbers(self, selection: Selection) -> None:
        """Leaves those families alone with which a cut was not proven, one of them at least.

        Raises:
            InputError: nothing is left that can be pruned.
        """
        with use_threads(self._settings.threads):
            network = spare_disturbers(self._network, selection.removed)
        self._know(network)

    def _renew_statistics(self, module: nn.Module) -> None:
        """Re-estimates BatchNorm where that brings the outputs nearer to those before the cut."""
        samples = self._data.calibration
        if not samples:
            return
        wanted = run_all(self.module, samples)
        parts = find_parts(wanted)

        def score(candidate: nn.Module) -> float:
            return -min(compare_outputs(run_all(candidate, samples), wanted, parts).values())

        improve_batch_norm(module, samples, score)


def _nothing_to_remove(channels: Channels) -> InputError:
    """Returns the error for a network without prunable channels: one weight for each reason."""
    by_reason: dict[str, str] = {}
    for item in channels.left_alone:
        by_reason.setdefault(item.reason, f"{item.weight}: {item.reason}")
    if not by_reason:
        return InputError(
            "no channel of the network can be removed: no layer was found",
            "a network with convolutions or linear layers between its input and outputs",
        )
    shown = list(by_reason.values())[:_MOST_REASONS]
    more = f"; and {len(by_reason) - len(shown)} more" if len(by_reason) > len(shown) else ""
    return InputError(f"no channel of the network can be removed: {'; '.join(shown)}{more}")


@torch.no_grad()
def run_all(module: nn.Module, samples: Sequence[Inputs]) -> list[dict[str, Tensor]]:
    """Returns the outputs on each sample, by name; in place of decisions what they are about.

    What a forward pass writes (counters, recurrent states) is kept from sample to sample, and not
    in the network.

    Raises:
        InputError: it fails on one.
    """
    running = share_values(module)
    return [comparable(answer(running, inputs, run_module)) for inputs in samples]


def probe_quality(
    module: nn.Module, data: PruneData, wanted: Sequence[Mapping[str, Tensor]]
) -> dict[str, float]:
    """Compares a network with what the original gave on the held-out samples.

    Returns:
        SQNR in dB per output, or per part of it; empty without samples.
    """
    return compare_outputs(run_all(module, data.held_out), wanted, find_parts(wanted))


def compare_outputs(
    outputs: Sequence[Mapping[str, Tensor]],
    wanted: Sequence[Mapping[str, Tensor]],
    parts: OutputParts,
) -> dict[str, float]:
    """Returns the SQNR in dB per output, or per part of it, over all samples."""
    noise: dict[str, SignalToNoise] = {}
    for found, references in zip(map(parts.split, outputs), wanted, strict=True):
        for name, reference in parts.split(references).items():
            meter = noise.setdefault(name, SignalToNoise())
            meter.update(reference.numpy(), found[name].numpy())
    return {name: meter.sqnr_db for name, meter in noise.items()}
