"""Which outputs of a student are compared with which of its teacher."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from artifacts.errors import InputError
from compress.train.answers import comparable
from compress.train.unit_parts import OutputParts


@dataclass(frozen=True, kw_only=True)
class OutputMatch:
    """Outputs that both have, by head, and those that only one has.

    Attributes:
        heads: names of the common outputs of each head.
        student_only: outputs that the teacher lacks, or has in another shape, with the reason.
        teacher_only: the same the other way round.
        decided: common outputs that are integers: what they come from is compared.
    """

    heads: dict[str, tuple[str, ...]]
    student_only: dict[str, str]
    teacher_only: dict[str, str]
    decided: tuple[str, ...] = ()


def match_outputs(
    student: Mapping[str, Tensor],
    teacher: Mapping[str, Tensor],
    heads: Mapping[str, Any] | None = None,
) -> OutputMatch:
    """Pairs outputs by their names.

    Integers among them have nothing to learn from, and are left out where there are numbers too.

    Args:
        student: outputs for some input, see `compress.train.answers.answer`.
        teacher: outputs for the same input.
        heads: the student's heads with their "outputs" (`PerceptionNetwork.heads_metadata`); an
            output that is in none is a head of its own.

    Raises:
        InputError: they have no output in common; the message names what each has.
    """
    student_only, teacher_only = {}, {}
    common = []
    for name, value in student.items():
        if name not in teacher:
            student_only[name] = "the teacher has no such output"
        elif teacher[name].shape != value.shape:
            shapes = (
                f"{list(value.shape)} of the student, {list(teacher[name].shape)} of the teacher"
            )
            student_only[name] = teacher_only[name] = f"its shapes differ: {shapes}"
        else:
            common.append(name)
    for name in teacher:
        if name not in student:
            teacher_only[name] = "the student has no such output"
    if not common:
        raise InputError(
            f"student and teacher have no output in common: the student has "
            f"{_list_shapes(student)}, the teacher {_list_shapes(teacher)}",
            "at least one output of the same name and shape",
        )
    learned = list(comparable({name: student[name] for name in common}))
    return OutputMatch(
        heads=_group(learned, heads or {}),
        student_only=student_only,
        teacher_only=teacher_only,
        decided=tuple(name for name in common if name not in learned),
    )


def split_heads(match: OutputMatch, parts: OutputParts) -> OutputMatch:
    """Returns a match in which each part of an output is a head of its own.

    Args:
        match: by whole outputs.
        parts: of outputs of any heads.
    """
    heads = {}
    for head, names in match.heads.items():
        whole = tuple(name for name in names if name not in parts.of)
        if whole:
            heads[head] = whole
        heads |= {part: (part,) for name in names if name in parts.of for part in parts.names(name)}
    return replace(match, heads=heads)


def _group(names: list[str], heads: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    owners = {output: head for head, values in heads.items() for output in values["outputs"]}
    groups: dict[str, tuple[str, ...]] = {}
    for name in names:
        head = owners.get(name, name)
        groups[head] = (*groups.get(head, ()), name)
    return groups


def _list_shapes(outputs: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {list(value.shape)}" for name, value in outputs.items())
