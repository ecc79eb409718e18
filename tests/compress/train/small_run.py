"""A small training run as a process of its own: `small_run.py OUT [key=value ...]`.

`die_at=N` kills this process (in rank `die_rank`) at step N, `nan_at=N` makes a loss NaN.
`probe=1` scores the network, and so lets trials find the learning rate where there are 40 steps.
`probe=2` makes scores up, of which the third is so bad that the run goes back to the second.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from artifacts.errors import FramefitError
from compress.train.lesson import Lesson
from compress.train.settings import TrainerSettings
from compress.train.trainer import train


class Imitation(Lesson):
    def __init__(
        self, student: nn.Module, teacher: nn.Module, nan_at: int = 0, die_at: int = 0
    ) -> None:
        super().__init__(student)
        self.__dict__["teacher"] = teacher
        self.nan_at, self.die_at = nan_at, die_at
        self.calls = 0

    def forward(self, batch):
        self.calls += 1
        if self.calls == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        image = batch["image"]
        error = (self.student(image) - self.teacher.to(image.device)(image)).square().mean()
        return {"error": error * float("nan") if self.calls == self.nan_at else error}


def make_network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Dropout(0.1),
        nn.Sequential(block),
        nn.Conv2d(4, 2, 1),
    )


def make_samples(count: int = 24) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"image": rng.standard_normal((3, 8, 8), np.float32)} for _ in range(count)]


def make_probe():
    teacher = make_network(2).eval()
    batch = torch.from_numpy(np.stack([sample["image"] for sample in make_samples()]))

    def score(network: nn.Module) -> float:
        with torch.no_grad():
            return float((network(batch) - teacher(batch)).square().mean())

    return score


def make_up_scores():
    scores = iter([1.0, 0.2, 1.5, 0.1])
    return lambda network: next(scores)


def main() -> int:
    out = Path(sys.argv[1])
    values = dict(item.split("=") for item in sys.argv[2:])
    die_at, die_rank = int(values.pop("die_at", 0)), int(values.pop("die_rank", 0))
    nan_at = int(values.pop("nan_at", 0))
    probes = {"0": lambda: None, "1": make_probe, "2": make_up_scores}
    probe = probes[values.pop("probe", "0")]()
    numbers = {name: int(value) for name, value in values.items() if value.isdigit()}
    words = {name: value for name, value in values.items() if not value.isdigit()}
    settings = TrainerSettings(
        **{"steps": 12, "batch_size": 4, "save_every": 3, "threads": 1, "device": "cpu"}
        | numbers
        | words
    )
    if int(os.environ.get("RANK", "0")) != die_rank:
        die_at = 0
    lesson = Imitation(make_network(1), make_network(2).eval(), nan_at, die_at)
    try:
        state = out.with_suffix(".state")
        result = train(lesson, make_samples(), settings, probe=probe, state_path=state)
    except FramefitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    last = {f"last.{name}": value.clone() for name, value in lesson.state_dict().items()}
    lesson.student.load_state_dict(result.weights)
    if int(os.environ.get("RANK", "0")) == 0:
        rate = {
            "rate.trials": torch.tensor(result.rate.trials),
            "rate.fallen": torch.tensor(result.rate.fallen),
        }
        torch.save(result.weights | last | rate, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
