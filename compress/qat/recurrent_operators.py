"""ONNX's recurrent layers, step by step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from artifacts.errors import InputError
from compress.qat.layer_operators import Attributes, Values

Step = Callable[[Tensor, list[Tensor]], list[Tensor]]
"""Returns the new states (hidden, and cell if there is one) for an input [batch, in] and states."""
_DEFAULTS = {
    "GRU": ["Sigmoid", "Tanh"],
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "RNN": ["Tanh"],
}


def run_gru(values: Values, attributes: Attributes) -> Any:
    """GRU; the reset gate before or after the product with the hidden state."""
    is_late = bool(attributes.get("linear_before_reset", 0))

    def make_step(w: Tensor, r: Tensor, wb: Tensor, rb: Tensor) -> Step:
        size = r.shape[1]

        def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
            (h,) = states
            inputs = x @ w.T + wb
            gates = inputs[:, : 2 * size] + h @ r[: 2 * size].T + rb[: 2 * size]
            update, reset = torch.sigmoid(gates).chunk(2, 1)
            late, early = (reset, 1.0) if is_late else (1.0, reset)
            recalled = late * ((early * h) @ r[2 * size :].T + rb[2 * size :])
            new = torch.tanh(inputs[:, 2 * size :] + recalled)
            return [(1 - update) * new + update * h]

        return step

    return _run("GRU", values, attributes, make_step)


def run_lstm(values: Values, attributes: Attributes) -> Any:
    """LSTM without peepholes."""
    if len(values) > 7 and values[7] is not None:
        raise InputError("an LSTM with peepholes", "one without")
    if attributes.get("input_forget", 0):
        raise InputError("an LSTM whose input and forget gates are one", "both gates")

    def make_step(w: Tensor, r: Tensor, wb: Tensor, rb: Tensor) -> Step:
        def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
            h, cell = states
            gates = x @ w.T + h @ r.T + wb + rb
            taken, shown, kept, new = gates.chunk(4, 1)
            cell = torch.sigmoid(kept) * cell + torch.sigmoid(taken) * torch.tanh(new)
            return [torch.sigmoid(shown) * torch.tanh(cell), cell]

        return step

    return _run("LSTM", values, attributes, make_step)


def run_rnn(values: Values, attributes: Attributes) -> Any:
    """RNN with tanh."""

    def make_step(w: Tensor, r: Tensor, wb: Tensor, rb: Tensor) -> Step:
        return lambda x, states: [torch.tanh(x @ w.T + states[0] @ r.T + wb + rb)]

    return _run("RNN", values, attributes, make_step)


def _run(
    kind: str,
    values: Values,
    attributes: Attributes,
    make_step: Callable[[Tensor, Tensor, Tensor, Tensor], Step],
) -> Any:
    """Returns all hidden states, then the last of each state.

    Args:
        kind: the operator.
        values: x [time, batch, in], w [directions, rows, in], r [directions, rows, size], and what
            may be left out: biases [directions, 2 rows], lengths, initial hidden and cell states
            [directions, batch, size].
        attributes: of the node.
        make_step: returns a direction's step.
    """
    _check(kind, values, attributes)
    x, w, r, biases, _, *given = [*values, None, None, None, None][: 7 if kind == "LSTM" else 6]
    directions, rows, size = w.shape[0], w.shape[1], r.shape[2]
    if biases is None:
        biases = x.new_zeros(directions, 2 * rows)
    zeros = x.new_zeros(directions, x.shape[1], size)
    begun = [zeros if item is None else item for item in given]
    ways = _list_ways(attributes)
    shown, last = [], []
    for place, is_backward in enumerate(ways):
        step = make_step(w[place], r[place], *biases[place].chunk(2))
        hidden, states = _walk(x, [item[place] for item in begun], step, is_backward=is_backward)
        shown.append(hidden)
        last.append(states)
    return torch.stack(shown, 1), *(torch.stack(item) for item in zip(*last, strict=True))


def _walk(
    x: Tensor, states: list[Tensor], step: Step, *, is_backward: bool
) -> tuple[Tensor, list[Tensor]]:
    """Returns the hidden states [time, batch, size], and the last states."""
    times = range(len(x))
    hidden: list[Tensor] = [x] * len(x)
    for time in reversed(times) if is_backward else times:
        states = step(x[time], states)
        hidden[time] = states[0]
    return torch.stack(hidden), states


def _list_ways(attributes: Attributes) -> list[bool]:
    """Returns for each direction whether it is backward."""
    way = attributes.get("direction", b"forward").decode()
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]


def _check(kind: str, values: Values, attributes: Attributes) -> None:
    """Refuses what is rare: other activations, clipped ones, other layouts, several lengths."""
    names = [item.decode() for item in attributes.get("activations", [])]
    if names not in ([], _DEFAULTS[kind], 2 * _DEFAULTS[kind]):
        raise InputError(f"a {kind} with {', '.join(names)}", ", ".join(_DEFAULTS[kind]))
    if attributes.get("layout", 0):
        raise InputError(f"a {kind} whose first axis is the batch (layout 1)", "layout 0")
    if "clip" in attributes:
        raise InputError(f"a {kind} that clips its gates", "one that does not")
    if len(values) > 4 and values[4] is not None:
        raise InputError(f"a {kind} with lengths of sequences", "sequences of one length")
