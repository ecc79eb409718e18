"""What a head must keep: SQNR and agreement need no labels, a metric's drop does."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from artifacts.errors import InputError
from compress.compare import compare_models
from compress.quantize.graph import Array
from compress.sqnr import EXACT_DB

KINDS = {"sqnr": " dB, at least", "agreement": " of its decisions, at least", "drop": ", at most"}
"""What stands between the value and the limit."""

_LIMITS = {"sqnr": (-math.inf, EXACT_DB), "agreement": (0.0, 1.0), "drop": (0.0, math.inf)}
_LIMITS_IN_WORDS = {
    "sqnr": f"dB, {EXACT_DB:g} at most",
    "agreement": "a share of its decisions, from 0 to 1",
    "drop": "by how much its metric may be worse, 0 or more",
}

Judge = Callable[[onnx.ModelProto], Mapping[str, float]]
"""Measures by how much each head's metric is worse than the float network's; needs labels."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """A limit on what one head may lose.

    Attributes:
        head: a head of the network (each output is one where nothing else is said).
        kind: "sqnr" (dB on the calibration samples, of the head's worst output), "agreement" (share
            of decisions that stay, 0 to 1, likewise) or "drop" (of the head's metric, with labels).
        limit: the lowest SQNR or agreement, the largest drop.
    """

    head: str
    kind: str = "sqnr"
    limit: float

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"a contract asks for '{self.kind}'", f"one of {', '.join(KINDS)}")
        lowest, highest = _LIMITS[self.kind]
        if not lowest <= self.limit <= highest:
            raise InputError(
                f"the contract on head '{self.head}' limits its {self.kind} to {self.limit:g}",
                _LIMITS_IN_WORDS[self.kind],
            )

    @classmethod
    def parse(cls, text: str) -> "Contract":
        """Reads HEAD=DB, HEAD:agreement=SHARE or HEAD:drop=VALUE.

        Raises:
            InputError: it has another form.
        """
        name, _, value = text.rpartition("=")
        head, _, kind = name.rpartition(":") if name.endswith(tuple(KINDS)) else (name, "", "")
        try:
            limit = float(value)
        except ValueError as error:
            raise InputError(
                f"--contract is '{text}'",
                "HEAD=DB, HEAD:agreement=SHARE or HEAD:drop=VALUE, such as depth:drop=0.01",
            ) from error
        return cls(head=head or name, kind=kind or "sqnr", limit=limit)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a contract's head was measured to have.

    Attributes:
        contract: the contract.
        value: in the contract's own measure.
    """

    contract: Contract
    value: float

    @property
    def is_kept(self) -> bool:
        """Whether the value is within the limit."""
        if self.contract.kind == "drop":
            return self.value <= self.contract.limit
        return self.value >= self.contract.limit

    def __str__(self) -> str:
        """Returns the finding in words."""
        kind, limit = self.contract.kind, self.contract.limit
        return f"head '{self.contract.head}' has {kind} {self.value:.4g}{KINDS[kind]} {limit:g}"


def check_contracts(
    contracts: Sequence[Contract], heads: Mapping[str, Sequence[str]], judge: Judge | None
) -> None:
    """Refuses contracts that nothing could measure, before anything is.

    Raises:
        InputError: there is no such head, or nothing that judges a metric.
    """
    for contract in contracts:
        if contract.head not in heads:
            raise InputError(
                f"a contract names head '{contract.head}'", f"one of {', '.join(heads)}"
            )
        if contract.kind == "drop" and judge is None:
            raise _no_labels(contract)


def _no_labels(contract: Contract) -> InputError:
    return InputError(
        f"a contract limits the drop of head '{contract.head}', which has no labels",
        fix="give labelled data, or a contract on sqnr or agreement",
    )


def measure_contracts(
    contracts: Sequence[Contract],
    heads: Mapping[str, Sequence[str]],
    reference: onnx.ModelProto,
    candidate: onnx.ModelProto,
    samples: Sequence[dict[str, Array]],
    judge: Judge | None,
) -> tuple[Finding, ...]:
    """Measures what each contract is about.

    Raises:
        InputError: a contract is about a metric and there is no judge for that head.
    """
    if not contracts:
        return ()
    drops = judge(candidate) if judge is not None else {}
    outputs = compare_models(reference, candidate, samples)["outputs"]
    findings = []
    for contract in contracts:
        if contract.kind == "drop":
            if contract.head not in drops:
                raise _no_labels(contract)
            value = drops[contract.head]
        else:
            figure = "sqnr_db" if contract.kind == "sqnr" else "agreement"
            value = min(outputs[name][figure] for name in heads[contract.head])
        findings.append(Finding(contract=contract, value=value))
    return tuple(findings)
