import subprocess
import sys

import numpy as np
import pytest

from artifacts.errors import InputError
from perception.scene.dataset import SceneDataset
from perception.scene.sample import Scene


def same(one: Scene, other: Scene) -> bool:
    parts = ("image", "boxes", "labels", "mask", "depth")
    return all(np.array_equal(getattr(one, p), getattr(other, p)) for p in parts)


def test_a_scene_depends_on_seed_and_index_alone() -> None:
    straight, jumping = SceneDataset(5, 4), SceneDataset(100, 4)
    jumping[77]
    assert same(jumping[3], straight[3])
    assert same(straight[3], straight[3])
    assert not same(straight[3], straight[4])
    assert not same(straight[3], SceneDataset(5, 5)[3])


def test_types_and_shapes() -> None:
    scene = SceneDataset(1, 0, height=144, width=250)[0]
    assert scene.image.shape == (144, 250, 3)
    assert scene.mask.shape == scene.depth.shape == (144, 250)
    assert scene.boxes.shape == (len(scene.labels), 4)
    kinds = [a.dtype.name for a in (scene.image, scene.boxes, scene.labels, scene.mask)]
    assert kinds == ["uint8", "float32", "int64", "uint8"]
    assert scene.depth.dtype == np.float32
    assert scene.ids is None


def test_iteration_gives_count_scenes() -> None:
    dataset = SceneDataset(3, 1, height=96, width=160)
    assert len(list(dataset)) == len(dataset) == 3


def test_pictures_vary() -> None:
    brightness = [scene.image.mean() for scene in SceneDataset(30, 2, height=96, width=160)]
    assert max(brightness) > 2 * min(brightness)


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_is_refused(index: int) -> None:
    with pytest.raises(IndexError):
        SceneDataset(3, 0)[index]


@pytest.mark.parametrize(
    ("count", "seed", "height", "width"), [(-1, 0, 288, 512), (1, -1, 288, 512), (1, 0, 8, 512)]
)
def test_arguments_out_of_range_are_refused(count: int, seed: int, height: int, width: int) -> None:
    with pytest.raises(InputError):
        SceneDataset(count, seed, height, width)


def test_the_renderer_needs_no_torch() -> None:
    code = "import sys, perception.scene.sequence; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
