"""Which weights the outputs of a network are computed from."""

from collections.abc import Iterable

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class NeededWeights:
    """Follows from which weights the values in each storage were computed.

    By storage, so that what is written through a view counts for the whole: a value may be said to
    need more weights than it does, never fewer. The weak references keep addresses from being used
    again.

    Args:
        weights: name and tensor of each parameter and buffer.
    """

    def __init__(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self._names: list[str] = []
        self._sources: dict[StorageWeakRef, int] = {}
        self._read_by_code = 0
        for place, (name, tensor) in enumerate(weights):
            self._names.append(name)
            self._add([tensor], 1 << place)

    def note(self, taken: Iterable[Tensor], made: Iterable[Tensor]) -> None:
        """Notes that an operator made some tensors of others; of none: code reads the values."""
        taken, made = list(taken), list(made)
        sources = self._sources_of(taken)
        if made:
            self._add(made, sources)
        else:
            self._read_by_code |= sources

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
