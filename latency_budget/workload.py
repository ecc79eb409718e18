"""What is measured: stages and frames, made by a recipe that a fresh process can follow."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.digest import sha256_file
from artifacts.errors import InputError, UnsafeFileError
from artifacts.file_kind import require_file
from latency_budget.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Stages that are ready to run.

    Attributes:
        stages: the frame's stages in order.
        frames: payloads of the first stage.
        runtime: what runs the network, empty where there is none.
        session: what `Session.describe()` said.
        is_whole_frame: False where the stages are a part of the frame.
        close: frees what the stages hold.
    """

    stages: list[Stage]
    frames: Iterable[Any]
    runtime: str = ""
    session: Mapping[str, Any] | None = None
    is_whole_frame: bool = True
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to make a workload, in words that another process understands.

    Attributes:
        function: `package.module:function`, which returns a `Workload`.
        arguments: its keyword arguments, as JSON can hold them.
        artifact: the file that is measured; its digest is checked before the function is called.
        sha256: the digest it must have; empty for the one it has when the recipe is made.
    """

    function: str
    arguments: dict[str, Any] = field(default_factory=dict)
    artifact: str = ""
    sha256: str = ""

    def bind(self) -> "Recipe":
        """Returns the recipe with the digest that its artifact has now.

        Raises:
            InputError: the artifact does not exist.
        """
        if not self.artifact or self.sha256:
            return self
        path = Path(self.artifact)
        require_file(path, "a model")
        return Recipe(
            function=self.function,
            arguments=self.arguments,
            artifact=self.artifact,
            sha256=sha256_file(path),
        )

    def open(self) -> Workload:
        """Checks the artifact's digest and makes the workload.

        Raises:
            UnsafeFileError: the artifact is not the file that the recipe was made for.
            InputError: there is no such function, or it does not return a workload.
        """
        if self.artifact and self.sha256:
            require_unchanged(Path(self.artifact), self.sha256)
        module, _, name = self.function.partition(":")
        workload = getattr(importlib.import_module(module), name)(**self.arguments)
        if not isinstance(workload, Workload):
            raise InputError(
                f"'{self.function}' returned a {type(workload).__name__}", "a Workload"
            )
        return workload


def require_unchanged(artifact: Path, sha256: str) -> None:
    """Refuses a file that is not the one any more that is measured.

    Raises:
        UnsafeFileError: its content is another, or it is gone.
    """
    expected = f"the digest {sha256[:12]}… until the end"
    try:
        found = sha256_file(artifact)
    except OSError as error:
        raise UnsafeFileError(
            f"{artifact} cannot be read any more: {error.strerror or error}", expected
        ) from error
    if found != sha256:
        raise UnsafeFileError(f"{artifact} changed while it was measured", expected)
