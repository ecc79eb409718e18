import pytest
import torch
from torch import nn

from benchmarks.torch_pruning_peer import TRIALS, WITHIN, find_output_layers, search_ratio


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Conv2d(3, 4, 1)
        self.left = nn.Conv2d(4, 2, 1)
        self.right = nn.Linear(4, 5)

    def forward(self, x):
        features = self.trunk(x)
        return {"left": self.left(features), "right": self.right(features.mean((2, 3)))}


class Narrowed(nn.Module):
    def __init__(self, ratio):
        super().__init__()
        self.ratio = ratio


def tell_nobody(text):
    del text


def test_the_layers_that_make_the_outputs_are_found():
    network = TwoOutputs()
    found = find_output_layers(network, torch.zeros(1, 3, 2, 2))
    assert found == [network.left, network.right]


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0])
def test_a_ratio_is_found_whose_latency_is_that_of_the_other(power):
    search = search_ratio(
        Narrowed, lambda module: 2 * (1 - module.ratio) ** power, 2.0, tell_nobody
    )
    assert abs(search.share - 1) <= WITHIN
    assert search.module is not None
    assert search.module.ratio == search.ratio
    assert len(search.trials) <= TRIALS


def test_ratios_that_fail_count_as_too_high():
    def prune(ratio):
        if ratio > 0.4:
            raise IndexError("no channel is left")
        return Narrowed(ratio)

    search = search_ratio(prune, lambda module: 2 - 4 * module.ratio, 2.0, tell_nobody)
    assert abs(search.share - 1) <= WITHIN
    assert search.trials[0][1] == "IndexError: no channel is left"


def test_a_network_that_cannot_be_pruned_leaves_its_error():
    def prune(ratio):
        raise RuntimeError(f"does not run at {ratio > 0}\nmore")

    search = search_ratio(prune, lambda module: 1.0, 2.0, tell_nobody)
    assert search.module is None
    assert {share for _, share in search.trials} == {"RuntimeError: does not run at True"}
