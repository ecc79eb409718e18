"""A student learns from its teacher's answers alone; what cannot be compared is named."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from artifacts.errors import InputError
from artifacts.module_outputs import name_outputs
from compress.distill.api import distill_module
from compress.distill.lesson import DistillLesson
from compress.distill.outputs import match_outputs
from compress.distill.relative_probe import RelativeProbe, measure_floors, measure_losses
from compress.distill.settings import DistillSettings
from compress.distill.taps import choose_taps
from compress.train.settings import TrainerSettings
from compress.train.threads import use_threads
from export.outputs import flatten_outputs

TRAINING = TrainerSettings(
    steps=80, batch_size=4, learning_rate=1e-2, threads=1, device="cpu", probe_every=40
)


class TwoHeads(nn.Module):
    """A shared trunk with a segmentation and a depth head."""

    def __init__(self, width: int, seed: int, extra: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.deep = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.ReLU())
        self.masks = nn.Conv2d(width, 3, 1)
        self.metres = nn.Conv2d(width, 1, 1)
        self.extra = nn.Conv2d(width, 2, 1) if extra else None
        self.heads_metadata = {
            "segmentation": {"outputs": ["masks"]},
            "depth": {"outputs": ["metres"]},
        }

    def forward(self, x):
        features = self.trunk(x)
        deep = nn.functional.interpolate(self.deep(features), scale_factor=2.0)
        outputs = {"masks": self.masks(features + deep), "metres": self.metres(deep)}
        if self.extra is not None:
            outputs["extra"] = self.extra(features)
        return outputs


def samples(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"image": rng.standard_normal((3, 16, 16), np.float32)} for _ in range(count)]


def test_a_narrower_student_gets_closer_in_every_head_without_labels() -> None:
    student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
    frozen = {name: value.clone() for name, value in teacher.state_dict().items()}
    result = distill_module(student, teacher, samples(32), samples(8, 1), training=TRAINING)
    assert result.score_after < 0.8
    assert all(result.losses_after[head] < result.losses_before[head] for head in ("depth",))
    assert result.losses_after["segmentation"] < result.losses_before["segmentation"]
    assert {(tap.student_channels, tap.teacher_channels) for tap in result.taps} == {(6, 12)}
    after = teacher.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in frozen.items())
    assert not result.module.training


def test_losses_are_no_matter_of_bfloat16() -> None:
    """On a GPU, autocast refuses the cross-entropy of probabilities."""
    seen = []

    def label_loss(outputs, labels):
        seen.append((torch.is_autocast_enabled("cpu"), outputs["masks"].dtype))
        return {"masks": outputs["masks"].square().mean()}

    coarse = replace(TRAINING, steps=2, probe_every=1, precision="bfloat16")
    labelled = [sample | {"label": np.zeros(1, np.float32)} for sample in samples(8)]
    student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
    network = student.masks.register_forward_hook(
        lambda module, arguments, output: seen.append((torch.is_autocast_enabled("cpu"), None))
    )
    distill_module(
        student, teacher, labelled, samples(4, 1), training=coarse, label_loss=label_loss
    )
    network.remove()
    assert (True, None) in seen, "the network itself computes in bfloat16"
    assert {pair for pair in seen if pair[1] is not None} == {(False, torch.float32)}


def label(count: int, seed: int = 0):
    return [one | {"far": np.ones(1, np.float32)} for one in samples(count, seed)]


def test_a_loss_on_labels_may_be_one_number() -> None:
    def far(outputs, labels):
        return (outputs["metres"].mean((1, 2, 3)) - labels["far"][:, 0]).square().mean()

    losses = [
        distill_module(
            TwoHeads(6, 1),
            TwoHeads(12, 2),
            label(8),
            label(4, 1),
            training=replace(TRAINING, steps=4),
            label_loss=loss,
        ).losses_after
        for loss in (far, lambda outputs, labels: {"far": far(outputs, labels)})
    ]
    assert losses[0] == losses[1]
    assert "labels" in losses[0]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda outputs, labels: {}, r"returned tensors of shapes \[\]"),
        (lambda outputs, labels: outputs["metres"].flatten(1).mean(1), r"shapes \[\[4\]\]"),
        (lambda outputs, labels: outputs["metres"].mean() / 0, "look at the labels"),
    ],
)
def test_a_loss_on_labels_that_is_no_number_is_refused(loss, message: str) -> None:
    with pytest.raises(InputError, match=message):
        distill_module(
            TwoHeads(6, 1),
            TwoHeads(12, 2),
            label(8),
            label(4, 1),
            training=TRAINING,
            label_loss=loss,
        )


def test_samples_without_an_input_are_refused() -> None:
    named = [{"picture": one["image"]} for one in samples(4)]
    for given, held_out in ((named, samples(2)), (samples(2), named)):
        with pytest.raises(InputError, match="has picture, and not the input 'image'"):
            distill_module(TwoHeads(6, 1), TwoHeads(12, 2), given, held_out, training=TRAINING)


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_training_does_not_mind_a_caller_without_gradients(without_gradients) -> None:
    student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
    with without_gradients():
        result = distill_module(
            student, teacher, samples(8), samples(4, 1), training=replace(TRAINING, steps=4)
        )
    assert result.steps == 4


def test_a_student_that_would_move_its_teacher_is_refused() -> None:
    """What both have in common may only be frozen."""
    student, teacher = TwoHeads(12, 1), TwoHeads(12, 2)
    with pytest.raises(InputError, match="is the teacher's weight itself"):
        distill_module(teacher, teacher, samples(4), samples(2, 1), training=TRAINING)
    student.masks = teacher.masks
    few = replace(TRAINING, steps=2)
    with pytest.raises(InputError, match=r"'masks\.weight' is the teacher's weight itself"):
        distill_module(student, teacher, samples(4), samples(2, 1), training=few)
    teacher.masks.requires_grad_(False)
    assert distill_module(student, teacher, samples(4), samples(2, 1), training=few).steps == 2


@pytest.mark.parametrize("is_held_out", [False, True])
def test_samples_that_are_no_numbers_are_named(is_held_out: bool) -> None:
    bad = [{"image": one["image"] * np.float32("nan")} for one in samples(4)]
    given = (samples(4), bad) if is_held_out else (bad, samples(4))
    with pytest.raises(InputError, match="as 'image' of a sample has values that are no numbers"):
        distill_module(TwoHeads(6, 1), TwoHeads(12, 2), *given, training=TRAINING, heads={})


def test_layers_are_told_the_version_of_the_weights_they_load() -> None:
    """MNASNet of torchvision refuses weights without one."""
    versions = []

    def look(module, state_dict, prefix, local_metadata, *rest):
        versions.append(local_metadata.get("version"))

    student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
    student.masks.register_load_state_dict_pre_hook(look)
    short = replace(TRAINING, steps=2, probe_every=1)
    distill_module(student, teacher, samples(8), samples(4, 1), training=short)
    assert set(versions) == {1}


def test_threads_are_those_of_before_once_a_run_is_over() -> None:
    with use_threads(3):
        short = replace(TRAINING, steps=1, probe_every=1, threads=2)
        distill_module(TwoHeads(6, 1), TwoHeads(12, 2), samples(4), samples(4, 1), training=short)
        assert torch.get_num_threads() == 3


def test_the_same_seed_gives_the_same_student_bit_by_bit() -> None:
    """Features of other widths pass a convolution that is drawn at random."""
    runs = []
    for disturbance in (3, 4):
        student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
        torch.manual_seed(disturbance)
        short = replace(TRAINING, steps=8, probe_every=4)
        result = distill_module(student, teacher, samples(8), samples(4, 1), training=short)
        assert result.taps
        assert result.best_step > 0
        runs.append(result)
    first, second = (run.module.state_dict() for run in runs)
    assert runs[0].losses_before == runs[1].losses_before
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("other", ["teacher", "student", "held out", "settings", "nothing"])
def test_a_run_goes_on_only_with_what_it_began_with(tmp_path: Path, other: str) -> None:
    """The state of a run towards another teacher has the same shapes, and would be taken."""
    short = replace(TRAINING, steps=6, save_every=2, probe_every=2)

    class StoppedError(Exception):
        """Stands for a kill after the first saved state."""

    def stop(step) -> None:
        if step.step == 3:
            raise StoppedError

    def run(seed=1, teacher=2, held_out=1, settings=None, **options):
        return distill_module(
            TwoHeads(6, seed),
            TwoHeads(12, teacher),
            samples(8),
            samples(4, held_out),
            settings,
            short,
            state_path=tmp_path / "run.state",
            **options,
        )

    with pytest.raises(StoppedError):
        run(report=stop)
    changed = {
        "teacher": {"teacher": 3},
        "student": {"seed": 3},
        "held out": {"held_out": 3},
        "settings": {"settings": DistillSettings(temperature=3.0)},
    }
    if other == "nothing":
        assert run().steps == 6
        return
    with pytest.raises(InputError, match="another network, data or settings"):
        run(**changed[other])
    assert (tmp_path / "run.state").exists()


@pytest.mark.parametrize("whose", ["student", "teacher"])
def test_a_network_that_does_not_take_the_samples_is_named(whose) -> None:
    networks = {"student": TwoHeads(6, 1), "teacher": TwoHeads(6, 1)}
    networks[whose] = torch.nn.Conv2d(7, 4, 1)
    with pytest.raises(InputError, match=f"the {whose}: the forward pass failed with inputs of"):
        distill_module(*networks.values(), samples(16), samples(4, 1), training=TRAINING)


class Counts(TwoHeads):
    """Two heads beside a buffer that each forward pass writes and one that it makes anew."""

    def __init__(self) -> None:
        super().__init__(6, 1)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, image):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * image.mean()
        return super().forward(image)


def test_the_teacher_is_left_as_it_is() -> None:
    teacher = Counts().train()
    teacher.masks.eval()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    distill_module(TwoHeads(6, 2), teacher, samples(16), samples(4, 1), training=TRAINING)
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert teacher.training
    assert not teacher.masks.training


def test_a_student_that_is_its_teacher_is_not_made_worse() -> None:
    student, teacher = TwoHeads(6, 1), TwoHeads(6, 1)
    result = distill_module(
        student, teacher, samples(16), samples(4, 1), training=TRAINING, probe=distance(teacher)
    )
    assert result.score_after == result.score_before == 0
    assert result.best_step == 0


@pytest.mark.parametrize(("moved", "is_better"), [(1e-3, True), (0.2, False)])
def test_a_head_that_came_equal_may_move_unseen_but_no_further(moved, is_better) -> None:
    student, teacher = TwoHeads(6, 1), TwoHeads(6, 1)
    start = student.masks.weight.detach().clone()
    batches = [{"image": torch.from_numpy(sample["image"][None])} for sample in samples(3)]
    with torch.no_grad():
        student.masks.weight.mul_(0.5)
        x = batches[0]["image"]
        match = match_outputs(student.eval()(x), teacher.eval()(x), student.heads_metadata)
    lesson = DistillLesson(student, teacher, match, (), DistillSettings())
    before, floors = measure_losses(lesson, batches), measure_floors(lesson, batches)
    assert before["depth"] <= floors["depth"]
    probe = RelativeProbe(lesson, batches, before, floors)
    as_it_came = probe(student)
    with torch.no_grad():
        spread = teacher(x)["metres"].std()
        student.metres.bias.add_(moved * spread)
        student.masks.weight.copy_(0.9 * start)
    assert (probe(student) < as_it_came) == is_better
    assert probe.find_obstacle().loss == ("segmentation" if is_better else "depth")


def distance(teacher):
    batch = torch.from_numpy(np.stack([sample["image"] for sample in samples(4, 1)]))

    def score(network: nn.Module) -> float:
        with torch.no_grad():
            got, wanted = network(batch), teacher(batch)
        return sum(float((got[name] - wanted[name]).abs().sum()) for name in wanted)

    return score


def test_labels_are_learned_too() -> None:
    def label_loss(outputs, labels):
        return {"mean": (outputs["metres"].mean((1, 2, 3)) - labels["level"]).square().mean()}

    labelled = [sample | {"level": np.float32(5.0)} for sample in samples(16)]
    held_out = [sample | {"level": np.float32(5.0)} for sample in samples(4, 1)]
    with_labels, without = (
        distill_module(
            TwoHeads(6, 1),
            TwoHeads(12, 2),
            labelled,
            held_out,
            training=TRAINING,
            label_loss=loss,
            probe=lambda network: -1e-3 * float(network.metres.bias.detach()),
        )
        for loss in (label_loss, None)
    )
    assert with_labels.losses_after["labels"] < 0.9 * with_labels.losses_before["labels"]
    assert "labels" not in without.losses_before


def test_outputs_are_matched_by_name_and_the_others_named() -> None:
    student, teacher = TwoHeads(6, 1, extra=True), TwoHeads(12, 2)
    x = torch.zeros(1, 3, 16, 16)
    match = match_outputs(student(x), teacher(x), student.heads_metadata)
    assert match.heads == {"segmentation": ("masks",), "depth": ("metres",)}
    assert match.student_only == {"extra": "the teacher has no such output"}
    wrong = {"masks": torch.zeros(1, 9, 8, 8), "metres": teacher(x)["metres"]}
    match = match_outputs(student(x), wrong, student.heads_metadata)
    assert "shapes differ" in match.student_only["masks"]
    with pytest.raises(InputError, match=r"no output in common.*masks.*scores"):
        match_outputs(student(x), {"scores": x})


def test_outputs_have_the_names_of_an_export() -> None:
    class Answer(NamedTuple):
        mask: torch.Tensor
        levels: tuple[torch.Tensor, ...]

    x = torch.zeros(1)
    module = nn.Identity()
    answer = Answer(x, (x, x))
    names = [name for name, _ in flatten_outputs(answer)]
    assert list(name_outputs(module, answer)) == names == ["mask", "levels_0", "levels_1"]
    assert list(name_outputs(module, (x, x))) == ["output_0", "output_1"]
    module.output_names = ("a", "b")
    assert list(name_outputs(module, (x, x))) == ["a", "b"]
    with pytest.raises(InputError, match="answers a str"):
        name_outputs(module, "nothing")


def test_taps_are_what_most_outputs_need_at_each_resolution() -> None:
    student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
    taps = choose_taps(student, teacher, (torch.zeros(1, 3, 16, 16),))
    assert [tap.student for tap in taps] == ["trunk", "deep"]
    with pytest.raises(InputError, match="no module 'neck'"):
        choose_taps(student, teacher, (torch.zeros(1, 3, 16, 16),), ["neck"])
    with pytest.raises(InputError, match="same height and width"):
        choose_taps(student, teacher, (torch.zeros(1, 3, 16, 16),), ["trunk=deep"])


def test_the_weights_of_a_parametrized_layer_are_no_feature() -> None:
    def make(width: int) -> nn.Module:
        first = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, width, 3))
        return nn.Sequential(first, nn.ReLU(), nn.Conv2d(width, 2, 1))

    example = (torch.rand(1, 3, 16, 16),)
    for width in (8, 16):
        taps = choose_taps(make(width).eval(), make(16).eval(), example)
        assert [tap.student for tap in taps] == ["1"]
    name = "0.parametrizations.weight"
    with pytest.raises(InputError, match="two maps"):
        choose_taps(make(8).eval(), make(16).eval(), example, [name])


def test_a_map_of_one_place_is_no_feature() -> None:
    """A softmax over one place is 1, whatever the network answers."""

    def network(width: int) -> nn.Module:
        maps = (nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        return nn.Sequential(*maps, nn.Flatten(), nn.Linear(width, 4))

    student, teacher, inputs = network(6), network(12), torch.zeros(1, 3, 16, 16)
    assert [tap.student for tap in choose_taps(student, teacher, (inputs,))] == ["1"]
    with pytest.raises(InputError, match="'2' of the student gives no map"):
        choose_taps(student, teacher, (inputs,), ["2"])


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.0), ("confident", 1.0)])
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        DistillSettings(**{name: value})


@pytest.mark.parametrize("whose", ["teacher", "student"])
def test_outputs_that_are_no_numbers_are_named_before_anything_is_trained(whose: str) -> None:
    networks = {"student": TwoHeads(6, 1), "teacher": TwoHeads(12, 2)}
    networks[whose].metres.bias.data.fill_(torch.nan)
    with pytest.raises(InputError, match=f"'depth'.*: output 'metres' of the {whose}; expected"):
        distill_module(
            networks["student"], networks["teacher"], samples(8), samples(4), training=TRAINING
        )


def test_no_samples_is_an_error() -> None:
    with pytest.raises(InputError, match="0 held out"):
        distill_module(TwoHeads(6, 1), TwoHeads(6, 2), samples(4), [])


class Pose(nn.Module):
    """One output of metres and radians, made of one layer's features."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))
        self.head = nn.Linear(8, 4)
        self.units = nn.Buffer(torch.tensor([50.0, 50.0, 0.1, 0.1]))

    def forward(self, x):
        return self.head(self.trunk(8 * x)) * self.units


def test_small_values_beside_large_ones_in_one_output_are_learned() -> None:
    """In a sum of squares, the radians would be a millionth of the metres."""
    student, teacher = Pose(1), Pose(2)
    result = distill_module(student, teacher, samples(64), samples(16, 1), training=TRAINING)
    metres, radians = "output[:, 0:2]", "output[:, 2:4]"
    assert result.match.heads == {metres: (metres,), radians: (radians,)}
    for part in (metres, radians):
        assert result.losses_after[part] < 0.2 * result.losses_before[part]


class Speed(nn.Module):
    """One number for a picture."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 1))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(("batch_size", "accumulate"), [(1, 1), (2, 1), (8, 8)])
def test_a_loss_has_one_unit_however_few_samples_are_together(
    batch_size: int, accumulate: int
) -> None:
    """The variance of a single number is 0, and that of two may be nearly so."""
    losses = []
    for size, parts in ((8, 1), (batch_size, accumulate)):
        training = replace(TRAINING, batch_size=size, accumulate=parts, steps=2, probe_every=2)
        settings = DistillSettings(batch_norm_batches=64 // size)
        held_out = samples(16, 1)
        result = distill_module(Speed(1), Speed(2), samples(64), held_out, settings, training)
        losses.append(result.losses_before["output"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


class OtherwiseInTraining(nn.Module):
    """While it trains it answers in another form, through a head that nothing else uses."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Dropout(0.1))
        self.masks = nn.Conv2d(8, 3, 1)
        self.auxiliary = nn.Conv2d(9, 3, 1)

    def forward(self, x):
        features = self.trunk(x)
        if self.training:
            return [self.masks(features), self.auxiliary(features)]
        return {"masks": self.masks(features).sigmoid()}


def test_a_student_learns_by_the_answers_that_are_deployed() -> None:
    student, teacher = OtherwiseInTraining(0), OtherwiseInTraining(1)
    aside = student.auxiliary.weight.detach().clone()
    statistics = student.trunk[1].running_mean.clone()
    result = distill_module(student, teacher, samples(16), samples(4, seed=1), training=TRAINING)
    assert result.losses_after["masks"] < result.losses_before["masks"]
    assert torch.equal(student.auxiliary.weight, aside)
    assert not torch.equal(student.trunk[1].running_mean, statistics)


def test_only_layers_change_their_mode() -> None:
    student = OtherwiseInTraining(0)
    match = match_outputs({"masks": torch.zeros(1)}, {"masks": torch.zeros(1)})
    lesson = DistillLesson(student, OtherwiseInTraining(1), match, [], DistillSettings())
    lesson.train()
    assert lesson.training
    assert not student.training
    assert student.trunk[1].training
    assert student.trunk[2].training
    lesson.eval()
    assert not any(part.training for part in lesson.modules())


@pytest.mark.parametrize("feature_weight", [0.0, 0.5])
def test_a_student_without_weights_that_learn_is_refused(feature_weight: float) -> None:
    """Its adapters alone would learn, and the run would look like one that brought nothing."""
    student, teacher = TwoHeads(6, 1).requires_grad_(False), TwoHeads(12, 2)
    settings = DistillSettings(feature_weight=feature_weight)
    with pytest.raises(InputError, match="are frozen"):
        distill_module(student, teacher, samples(8), samples(4, 1), settings, TRAINING)


def test_a_teacher_can_learn_afterwards() -> None:
    student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
    teacher.metres.requires_grad_(False)
    short = replace(TRAINING, steps=2, probe_every=1)
    distill_module(student, teacher, samples(8), samples(4, 1), training=short)
    learns = {name for name, weight in teacher.named_parameters() if weight.requires_grad}
    assert learns == {name for name in dict(teacher.named_parameters()) if "metres" not in name}
    assert all(weight.grad is None for weight in teacher.parameters())


class Decided(TwoHeads):
    """Also answers labels, and a feature that is cut off from the gradient."""

    def forward(self, x):
        outputs = super().forward(x)
        labels = outputs["masks"].argmax(1)
        return outputs | {"labels": labels, "copy": self.trunk(x).detach()}


def test_outputs_without_a_gradient_do_not_stop_a_distillation() -> None:
    student, teacher = Decided(6, 1), Decided(6, 2)
    taps = choose_taps(student.eval(), teacher.eval(), (torch.randn(1, 3, 16, 16),), ())
    assert {tap.student for tap in taps} <= {"trunk", "trunk.2", "deep", "deep.1"}
    result = distill_module(
        student, teacher, samples(8), samples(4, 1), training=replace(TRAINING, steps=10)
    )
    assert result.score_after <= result.score_before


class Unfollowed(TwoHeads):
    """Computes something that autograd has no derivative of."""

    def forward(self, x):
        one = torch.ones(())
        return {name: torch.igamma(value.abs(), one) for name, value in super().forward(x).items()}


def test_a_network_without_gradients_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"gradients cannot be computed.*derivative"):
        distill_module(
            Unfollowed(6, 1), Unfollowed(6, 2), samples(8), samples(4, 1), training=TRAINING
        )


class Decoded(TwoHeads):
    """Writes into a value that the gradient of its sigmoid needs, as detectors decode boxes."""

    def forward(self, x):
        outputs = {name: torch.sigmoid(value) for name, value in super().forward(x).items()}
        for value in outputs.values():
            value[:, 1:] = (value[:, 1:] * 2) ** 2
        return outputs


def test_boxes_that_are_decoded_in_place_are_learned() -> None:
    result = distill_module(
        Decoded(6, 1),
        Decoded(6, 2),
        samples(8),
        samples(4, 1),
        training=replace(TRAINING, steps=20),
    )
    assert result.score_after < result.score_before


class Classes(TwoHeads):
    """Answers classes in place of their scores."""

    def forward(self, image):
        outputs = super().forward(image)
        return {"classes": outputs["masks"].argmax(1), "metres": outputs["metres"]}


def test_a_student_of_classes_learns_their_scores() -> None:
    student, teacher = Classes(6, 1), Classes(12, 2)
    result = distill_module(student, teacher, samples(32), samples(8, 1), training=TRAINING)
    assert result.match.decided == ("classes",)
    assert set(result.match.heads) == {"classes before argmax", "depth"}
    for head in result.match.heads:
        assert result.losses_after[head] < result.losses_before[head], head


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_compiled_student_of_classes_learns_too() -> None:
    training = replace(TRAINING, steps=2, probe_every=1, is_compiled=True)
    result = distill_module(
        Classes(6, 1), Classes(12, 2), samples(8), samples(4, 1), training=training
    )
    assert result.steps == 2
