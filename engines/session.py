"""The one contract that every runtime fulfils: arrays in by name, arrays out by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.feeds import check_array, check_names

DYNAMIC = -1

Feeds = Mapping[str, NDArray[Any]]
"""The array of each input, by name."""


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a session.

    Attributes:
        name: the name in the graph.
        shape: its dimensions; -1 for one that only a run decides (outputs only).
        dtype: the numpy type of the array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        """Returns the tensor as a user writes it, such as `input float32 [1, 3, 240, 320]`."""
        dims = ", ".join("?" if dim == DYNAMIC else str(dim) for dim in self.shape)
        return f"{self.name} {self.dtype.name} [{dims}]"

    def of_one_sample(self) -> "TensorInfo":
        """Returns the tensor with a batch of 1."""
        return replace(self, shape=(1, *self.shape[1:]))


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """How a session is opened.

    Attributes:
        threads: CPU threads of one inference; None leaves it to the runtime (its physical cores).
        cuda_graph: replay the inference as one CUDA graph; an error where that cannot be had.
        device: index of the GPU; CPU runtimes take only 0.
        input_shapes: fixes inputs that the graph leaves dynamic, by name; "" is the only input. A
            batch that is free without one is 1.
        takes_turns: other sessions run between its inferences. onnxruntime's threads look for work
            for a while after an inference, and would take the processors from the next session;
            they stop at once then.
    """

    threads: int | None = None
    cuda_graph: bool = False
    device: int = 0
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    takes_turns: bool = False

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads is {self.threads}", "1 or more")
        if self.device < 0:
            raise InputError(f"device is {self.device}", "0 or more")
        for name, shape in self.input_shapes.items():
            if not shape or min(shape) < 1:
                raise InputError(
                    f"input shape {list(shape)} of '{name}'", "dimensions of 1 or more"
                )

    def require_cpu(self, runtime: str) -> None:
        """Refuses what a CPU runtime cannot give, rather than ignoring it.

        Raises:
            InputError: a CUDA graph or a second device was asked for.
        """
        if self.cuda_graph:
            raise InputError(
                f"a CUDA graph was asked for, which the runtime '{runtime}' does not have",
                fix="leave --cuda-graph out, or run a TensorRT plan",
            )
        if self.device != 0:
            raise InputError(f"device is {self.device}", f"0, as '{runtime}' runs on the CPU")

    def shapes_for(self, names: list[str]) -> dict[str, tuple[int, ...]]:
        """Returns `input_shapes` with the name "" replaced by that of the only input.

        Raises:
            InputError: `input_shapes` names an input that the network does not have.
        """
        shapes = dict(self.input_shapes)
        if set(shapes) == {""} and len(names) == 1:
            return {names[0]: shapes[""]}
        for name in shapes:
            if name not in names:
                raise InputError(
                    f"--input-shape names no input for '{name}'", f"NAME=… with {', '.join(names)}"
                )
        return shapes


class Session(Protocol):
    """An opened, runnable model.

    Arrays that `run` returns belong to the caller: a later run does not change them.
    A session is used by one thread at a time and is closed by its `with` block.
    """

    @property
    def runtime(self) -> str:
        """The backend's name, as in `BACKENDS`."""

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs in the graph's order; their shapes are static."""

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs in the graph's order."""

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once.

        Args:
            feeds: one array per input, with exactly its shape and dtype.

        Returns:
            one array per output, by name, in the graph's order.

        Raises:
            InputError: an input is missing, unknown, or of another shape or dtype.
        """

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once and lends its outputs: the next run may overwrite them.

        For timing, and for a frame that is done with them before the next: it spares a copy of
        every output, which a program in C++ would not make either. Otherwise like `run`.
        """

    def describe(self) -> dict[str, Any]:
        """Says what was asked for and what was got: runtime, version, device, precision …."""

    def close(self) -> None:
        """Frees what the session holds; closing twice is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class SessionBase:
    """Gives a session the `with` block that closes it, and outputs to borrow."""

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once; see `Session.run`."""
        return {name: array.copy() for name, array in self.run_borrowed(feeds).items()}

    def run_borrowed(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Runs the network once; see `Session.run_borrowed`."""
        raise NotImplementedError

    def close(self) -> None:
        """Frees what the session holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_feeds(
    inputs: tuple[TensorInfo, ...], feeds: Mapping[str, NDArray[Any]]
) -> list[NDArray[Any]]:
    """Checks the arrays of one run against a session's inputs.

    Args:
        inputs: the session's inputs.
        feeds: the arrays by name.

    Returns:
        the arrays in the order of `inputs`, C-contiguous; not copied where they already are.

    Raises:
        InputError: an input is missing, unknown, not an array, or of another shape or dtype.
    """
    check_names([tensor.name for tensor in inputs], feeds)
    return [
        check_array(tensor.name, feeds.get(tensor.name), tensor.shape, tensor.dtype)
        for tensor in inputs
    ]


def require_static(inputs: tuple[TensorInfo, ...], path: object) -> None:
    """Refuses a network whose input shapes are not all known.

    Raises:
        InputError: an input has a dynamic dimension.
    """
    from artifacts.onnx_inputs import suggest_shape

    for tensor in inputs:
        if DYNAMIC in tensor.shape:
            sizes = [0 if dim == DYNAMIC else dim for dim in tensor.shape]
            raise InputError(
                f"{path}: input '{tensor}' has a dynamic shape",
                "static shapes",
                f"fix it with --input-shape {tensor.name}={suggest_shape(sizes)}",
            )
