from pathlib import Path

import perception
from artifacts.checkpoint import build_module, load_checkpoint
from perception.scene.dataset import SceneDataset
from perception.train_checkpoint import evaluate_checkpoint

ROAD = Path(perception.__file__).parent / "checkpoints" / "road.pt"


def test_the_shipped_checkpoint_is_small_and_builds():
    assert ROAD.stat().st_size < 12_000_000
    checkpoint = load_checkpoint(ROAD)
    network = build_module(checkpoint)
    assert set(network.heads_metadata) == {"detection", "segmentation", "depth"}
    assert not network.training


def test_the_shipped_checkpoint_is_good_on_scenes_it_has_not_seen():
    figures = evaluate_checkpoint(ROAD, lambda height, width: SceneDataset(24, 777, height, width))
    assert figures["detection"]["mAP50"] >= 0.6
    assert figures["segmentation"]["mIoU"] >= 0.7
    assert figures["depth"]["abs_rel"] <= 0.15
