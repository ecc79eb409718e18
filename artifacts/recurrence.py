"""Networks with a state: outputs of one frame that are inputs of the next (ConvGRU, LSTM)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import onnx

from artifacts.errors import InputError
from artifacts.onnx_inputs import input_tensors


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """Which outputs a network reads again in the next frame, and where sequences of frames begin.

    Attributes:
        states: name of the output that gives the next state, by the input's name.
        sequence_frames: frames of a sequence, at least 2; None where all samples are one sequence.

    Raises:
        InputError: there is no state, or a sequence is shorter than two frames.
    """

    states: Mapping[str, str] = field(hash=False)
    sequence_frames: int | None = None

    def __post_init__(self) -> None:
        if not self.states:
            raise InputError(
                "--sequence-frames was given, and no state", "--state INPUT=OUTPUT with it"
            )
        if self.sequence_frames is not None and self.sequence_frames < 2:
            raise InputError(f"a sequence has {self.sequence_frames} frames", "at least 2")

    @classmethod
    def parse(cls, texts: Sequence[str], sequence_frames: int | None = None) -> Self | None:
        """Returns what options INPUT=OUTPUT say; None where nothing was given.

        Raises:
            InputError: one has another form, or an input has two states.
        """
        if not texts and sequence_frames is None:
            return None
        states: dict[str, str] = {}
        for text in texts:
            name, equals, output = (part.strip() for part in text.rpartition("="))
            if not (name and equals and output):
                raise InputError(f"--state is '{text}'", "INPUT=OUTPUT, such as h=h_next")
            if name in states:
                raise InputError(f"input '{name}' has two states, '{states[name]}' and '{output}'")
            states[name] = output
        return cls(states=states, sequence_frames=sequence_frames)

    def require_in(self, model: onnx.ModelProto) -> None:
        """Checks that a network has these inputs and outputs, and inputs besides.

        Raises:
            InputError: it has not.
        """
        inputs, outputs = list(input_tensors(model)), [item.name for item in model.graph.output]
        for name, output in self.states.items():
            if name not in inputs:
                raise InputError(f"state '{name}' is no input", f"one of {', '.join(inputs)}")
            if output not in outputs:
                raise InputError(
                    f"'{output}', the next state '{name}', is no output",
                    f"one of {', '.join(outputs)}",
                )
        if len(self.states) == len(inputs):
            raise InputError("every input is a state", "an input that frames are given to")

    def is_first(self, frame: int) -> bool:
        """Whether a sequence begins with this frame, counted from 0."""
        return frame % self.sequence_frames == 0 if self.sequence_frames else frame == 0

    def find_ends(self, frames: int) -> frozenset[int]:
        """Returns the frames of the last quarter of each sequence, at least one of each.

        Args:
            frames: number of all of them; the last sequence may be shorter than the others.
        """
        length = self.sequence_frames or frames
        ends: set[int] = set()
        for first in range(0, frames, length):
            after = min(first + length, frames)
            ends.update(range(after - max(1, (after - first) // 4), after))
        return frozenset(ends)
