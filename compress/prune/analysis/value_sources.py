"""What values are computed from: which weights, and whether the inputs of the network."""

from collections.abc import Iterable

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class ValueSources:
    """Follows from which weights, and from inputs or not, the values in each storage were computed.

    By storage, so that what is written through a view counts for the whole: a value may be said to
    have more sources than it has, never fewer. The weak references keep addresses from being used
    again.

    Args:
        weights: name and tensor of each parameter and buffer.
        inputs: of the network.
    """

    def __init__(self, weights: Iterable[tuple[str, Tensor]], inputs: Iterable[Tensor]) -> None:
        self._names: list[str] = []
        self._sources: dict[StorageWeakRef, int] = {}
        self._read_by_code = 0
        for place, (name, tensor) in enumerate(weights):
            self._names.append(name)
            self._add([tensor], 1 << place)
        self._input = 1 << len(self._names)
        self._add(inputs, self._input)

    def note(self, taken: Iterable[Tensor], made: Iterable[Tensor]) -> None:
        """Notes that an operator made some tensors of others; of none: code reads the values."""
        taken, made = list(taken), list(made)
        sources = self._sources_of(taken)
        if made:
            self._add(made, sources)
        else:
            self._read_by_code |= sources

    def needs_inputs(self, tensor: Tensor) -> bool:
        """Returns whether other inputs may give it other values."""
        return bool((self._sources_of([tensor]) | self._read_by_code) & self._input)

    def list_unneeded(self, outputs: Iterable[Tensor]) -> set[str]:
        """Returns the names of the weights that none of these tensors was computed from."""
        needed = self._sources_of(outputs) | self._read_by_code
        return {name for place, name in enumerate(self._names) if not needed >> place & 1}

    def _sources_of(self, tensors: Iterable[Tensor]) -> int:
        sources = 0
        for key in map(_find_storage, tensors):
            sources |= self._sources.get(key, 0) if key is not None else 0
        return sources

    def _add(self, tensors: Iterable[Tensor], sources: int) -> None:
        for key in map(_find_storage, tensors):
            if key is None:
                self._read_by_code |= sources
            else:
                self._sources[key] = self._sources.get(key, 0) | sources


def _find_storage(tensor: Tensor) -> StorageWeakRef | None:
    """Returns which storage a tensor lies in; None where it has none (a sparse one)."""
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except NotImplementedError:
        return None
