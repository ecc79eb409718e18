"""Networks with a state on sequences: every frame reads what the frame before has computed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.onnx_inputs import input_tensors
from artifacts.recurrence import Recurrence
from artifacts.samples import Samples, spread_indices
from compress.compare import compare_models
from compress.model_runner import Runner, open_runner
from compress.progress import Progress

Array = NDArray[Any]


class StateCarrier:
    """Runs a network frame by frame; what it computed as next states is read in the next frame.

    A sequence begins with the state that its first frame is given, with zeros where that is none.

    Args:
        run: the network, from inputs to outputs.
        model: the same, for the shapes of its inputs.
        recurrence: its states.

    Attributes:
        states: those that the next frame reads, unless a sequence begins with it.
    """

    def __init__(self, run: Runner, model: onnx.ModelProto, recurrence: Recurrence) -> None:
        tensors = input_tensors(model)
        self._run, self._recurrence = run, recurrence
        self._tensors = {name: tensors[name] for name in recurrence.states}
        self._frame = 0
        self.states: dict[str, Array] = {}

    def begin_frame(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the inputs of the next frame: what is given, and the states."""
        if self._recurrence.is_first(self._frame):
            self.states = {
                name: feeds.get(name, np.zeros(tensor.shape, tensor.dtype))
                for name, tensor in self._tensors.items()
            }
        return {**feeds, **self.states}

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one frame.

        Raises:
            InputError: a next state has another shape or type than the input that is to read it.
        """
        found = self._run(self.begin_frame(feeds))
        for name, output in self._recurrence.states.items():
            tensor, state = self._tensors[name], found[output]
            if state.shape != tensor.shape or state.dtype != tensor.dtype:
                raise InputError(
                    f"output '{output}' is {state.dtype} {list(state.shape)}",
                    f"{tensor.dtype} {list(tensor.shape)}, as input '{name}' that it is a state of",
                )
            self.states[name] = state
        self._frame += 1
        return found


class FramesWithStates(Samples):
    """Frames, each with the states that a network had computed before it.

    Args:
        model: the network.
        frames: all of them in order, without states; those of a sequence's first frame are taken.
        recurrence: the network's states.
        limit: frames to use, evenly spread; the network is run on the others too. None for all.
        progress: is told ("states", frames done, frames in all).

    Attributes:
        frames: as given.
        recurrence: as given.

    Raises:
        InputError: the states do not fit the network.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        frames: Samples,
        recurrence: Recurrence,
        *,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        recurrence.require_in(model)
        self.frames, self.recurrence = frames, recurrence
        self._rows = spread_indices(len(frames), limit)
        super().__init__([frames.names[row] for row in self._rows])
        carrier, chosen = StateCarrier(open_runner(model), model, recurrence), set(self._rows)
        self._states: list[dict[str, Array]] = []
        for row in range(max(chosen, default=-1) + 1):
            if progress is not None:
                progress("states", row, max(chosen) + 1)
            feeds = frames[row]
            if row in chosen:
                carrier.begin_frame(feeds)
                self._states.append(dict(carrier.states))
            carrier(feeds)

    @property
    def extremes(self) -> tuple[dict[str, Array], ...]:
        """The frames' own, with the states of the first sample."""
        return tuple({**sample, **self._states[0]} for sample in self.frames.extremes)

    def _read(self, index: int) -> dict[str, Array]:
        return {**self.frames[self._rows[index]], **self._states[index]}


def compare_own_states(
    reference: onnx.ModelProto,
    candidate: onnx.ModelProto,
    samples: FramesWithStates,
    progress: Progress | None = None,
) -> dict[str, dict[str, float]]:
    """Compares two networks on whole sequences, each with its own states, so that errors build up.

    Args:
        reference: the network that is right by definition.
        candidate: the network to judge, of the same states.
        samples: their frames are run, all of them.
        progress: is told ("compare", frames done, frames in all).

    Returns:
        own_states_db, the SQNR of all frames, and own_states_end_db, that of the last quarter of
        each sequence; for each output, and for each part of those that join unlike tensors.

    Raises:
        InputError: the states do not fit a network.
    """

    def carry(model: onnx.ModelProto, watched: Sequence[str] = ()) -> Runner:
        samples.recurrence.require_in(model)
        return StateCarrier(open_runner(model, watched), model, samples.recurrence)

    ends = samples.recurrence.find_ends(len(samples.frames))
    found = compare_models(reference, candidate, samples.frames, progress, carry, carry, ends)
    return {
        name: {"own_states_db": item["sqnr_db"], "own_states_end_db": item["sqnr_end_db"]}
        for name, item in (found["outputs"] | found["parts"]).items()
    }
