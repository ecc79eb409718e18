from itertools import islice

import numpy as np
import pytest

from artifacts.errors import InputError
from perception.scene.pedestrians import Pedestrian
from perception.scene.render import Layout
from perception.scene.sequence import SceneSequence
from perception.scene.vehicles import Vehicle

SIZE = {"height": 180, "width": 320}


def places(layout: Layout) -> dict[int, tuple[float, float]]:
    return {
        number: (u.pose.x, u.pose.z) if isinstance(u, Vehicle) else (u.x, u.z)
        for number, u in zip(layout.ids, layout.users, strict=True)
    }


def test_any_frame_can_be_rendered_alone() -> None:
    sequence = SceneSequence(5, **SIZE)
    frames = list(islice(sequence, 4))
    again = SceneSequence(5, **SIZE).frame(3)
    np.testing.assert_array_equal(frames[3].image, again.image)
    np.testing.assert_array_equal(frames[3].ids, again.ids)
    assert not np.array_equal(frames[2].image, frames[3].image)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_ids_are_unique_and_keep_their_looks(seed: int) -> None:
    sequence = SceneSequence(seed, **SIZE)
    looks: dict[int, tuple] = {}
    for index in range(0, 1800, 6):
        layout = sequence.layout(index)
        assert len(set(layout.ids)) == len(layout.ids)
        for number, user in zip(layout.ids, layout.users, strict=True):
            kind = (type(user), user.height, user.colours)
            assert looks.setdefault(number, kind) == kind
    assert len(looks) > len(layout.ids)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_everything_moves_without_jumps(seed: int) -> None:
    sequence = SceneSequence(seed, **SIZE)
    before = sequence.layout(0)
    for index in range(1, 400):
        after = sequence.layout(index)
        old, new = places(before), places(after)
        for number in old.keys() & new.keys():
            moved = np.subtract(new[number], old[number])
            assert np.abs(moved).max() < 50 / 30
        assert after.road.travelled_m > before.road.travelled_m
        shift = abs(after.sky_shift_px - before.sky_shift_px)
        assert shift < 0.01 * sequence.camera.focal_px
        before = after


def test_road_users_come_and_go_only_where_they_are_small_or_out_of_view() -> None:
    sequence = SceneSequence(2, **SIZE)
    before = sequence.layout(0)
    for index in range(1, 600):
        after = sequence.layout(index)
        old, new = places(before), places(after)
        changed = [old[n] for n in old.keys() - new.keys()]
        changed += [new[n] for n in new.keys() - old.keys()]
        assert all(z < 2 or z > 50 for _, z in changed)
        before = after


def test_scenes_carry_one_id_per_box_and_boxes_move_smoothly() -> None:
    sequence = SceneSequence(3, **SIZE)
    last: dict[int, np.ndarray] = {}
    compared = 0
    for scene in islice(sequence, 25):
        assert scene.ids is not None
        assert len(scene.ids) == len(scene.boxes) == len(scene.labels)
        now = dict(zip(scene.ids.tolist(), scene.boxes, strict=True))
        for number in now.keys() & last.keys():
            x1, _, x2, _ = now[number]
            if x1 > 2 and x2 < 318 and x2 - x1 < 60:
                assert abs((now[number] - last[number])[[1, 3]]).max() < 14
                compared += 1
        last = now
    assert compared > 20


def test_people_walk_upright_beside_the_road() -> None:
    layout = SceneSequence(1, **SIZE).layout(10)
    people = [u for u in layout.users if isinstance(u, Pedestrian)]
    assert people
    for person in people:
        lateral = person.x - layout.road.to_x(0.0, person.z)
        assert abs(lateral) > layout.road.half_width_m


def test_the_rate_sets_the_time_between_frames() -> None:
    slow, fast = SceneSequence(1, **SIZE, rate_hz=10), SceneSequence(1, **SIZE, rate_hz=30)
    assert slow.layout(10).road == fast.layout(30).road


@pytest.mark.parametrize(
    "arguments", [{"seed": -1}, {"seed": 0, "height": 2}, {"seed": 0, "rate_hz": 0.0}]
)
def test_arguments_out_of_range_are_refused(arguments: dict) -> None:
    with pytest.raises(InputError):
        SceneSequence(**arguments)
