"""A DETR on a small ResNet whose queries make masks, as MaskFormer's do."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.fresh_networks.losses import classes_loss, depth_loss, points_loss
from benchmarks.fresh_networks.parts import ConvNorm, Standardize, Trunk
from benchmarks.fresh_networks.scenes import HEIGHT, WIDTH, Targets
from perception.scene.sample import BOX_CLASSES, MASK_CLASSES

DIM, QUERIES, HEADS = 96, 16, 4


class Attention(nn.Module):
    """Attention with projections of its own for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.values, self.leave = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Returns one token per query [N, queries, DIM]."""
        parts = (self.queries(queries), self.keys(keys), self.values(values))
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.leave(mixed.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Self-attention and a perceptron, LayerNorm behind each."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.perceptron = Attention(), _perceptron()
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Returns as many tokens."""
        placed = tokens + places
        tokens = self.norms[0](tokens + self.attention(placed, placed, tokens))
        return self.norms[1](tokens + self.perceptron(tokens))


class DecoderLayer(nn.Module):
    """Queries look at each other and at the picture, LayerNorm behind each."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross, self.perceptron = Attention(), Attention(), _perceptron()
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(3))

    def forward(self, found: Tensor, queries: Tensor, tokens: Tensor, places: Tensor) -> Tensor:
        """Returns what the queries have found."""
        asked = found + queries
        found = self.norms[0](found + self.own(asked, asked, found))
        seen = self.cross(found + queries, tokens + places, tokens)
        found = self.norms[1](found + seen)
        return self.norms[2](found + self.perceptron(found))


class MaskQueries(nn.Module):
    """Kinds, boxes and masks of queries, and a dense depth."""

    def __init__(self) -> None:
        super().__init__()
        self.standardize = Standardize()
        self.trunk = Trunk("resnet10t", (1, 2, 3))
        first, second, third = self.trunk.channels
        self.enter = nn.Conv2d(third, DIM, 1)
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(2))
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(2))
        self.queries = nn.Parameter(torch.randn(1, QUERIES, DIM))
        self.lateral = nn.ModuleList([nn.Conv2d(second, DIM, 1), nn.Conv2d(first, DIM, 1)])
        self.smooth = nn.ModuleList(ConvNorm(DIM, DIM, act=nn.ReLU) for _ in range(2))
        self.to_masks = nn.Conv2d(DIM, 32, 3, padding=1)
        self.mask_words = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 32))
        self.kinds = nn.Linear(DIM, len(MASK_CLASSES) + 1)
        self.boxes = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 4))
        self.depth = nn.Sequential(ConvNorm(DIM, 32, act=nn.ReLU), nn.Conv2d(32, 1, 3, padding=1))

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Returns logits of kinds, boxes from 0 to 1, masks' logits and depth."""
        first, second, third = self.trunk(self.standardize(image))
        entered = self.enter(third)
        places = _place_words(*entered.shape[-2:])
        tokens = entered.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, places)
        found = torch.zeros_like(self.queries).expand(len(image), -1, -1)
        for layer in self.decoder:
            found = layer(found, self.queries, tokens, places)
        value = tokens.transpose(1, 2).reshape(entered.shape)
        for lateral, smooth, skip in zip(self.lateral, self.smooth, (second, first), strict=True):
            value = smooth(F.interpolate(value, scale_factor=2.0) + lateral(skip))
        masks = torch.einsum("nqc,nchw->nqhw", self.mask_words(found), self.to_masks(value))
        return {
            "kinds": self.kinds(found),
            "boxes": self.boxes(found).sigmoid(),
            "masks": masks,
            "depth": F.softplus(self.depth(value)) * 10,
        }

    @staticmethod
    def lesson(outputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Returns the loss; masks by kinds are classes, and boxes means of the objects' places."""
        kinds = outputs["kinds"].softmax(2)[:, :, :-1]
        classes = torch.einsum("nqk,nqhw->nkhw", kinds, outputs["masks"].sigmoid())
        enlarged = F.interpolate(classes, size=(HEIGHT, WIDTH), mode="bilinear")
        weights = outputs["kinds"][:, :, : len(BOX_CLASSES)].softmax(1).transpose(1, 2)
        return (
            classes_loss((enlarged + 1e-3).log(), targets)
            + depth_loss(outputs["depth"], targets)
            + points_loss(weights @ outputs["boxes"][:, :, :2], targets)
        )


def _perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(DIM, 3 * DIM), nn.GELU(), nn.Linear(3 * DIM, DIM))


def _place_words(rows: int, columns: int) -> Tensor:
    """Returns sines and cosines of row and column [1, rows * columns, DIM]."""
    count = DIM // 4
    pace = torch.exp(-math.log(1000.0) * torch.arange(count) / count)
    y, x = (torch.arange(size).float()[:, None] * pace for size in (rows, columns))
    words = [part[:, None].expand(rows, columns, count) for part in (y.sin(), y.cos())] + [
        part[None].expand(rows, columns, count) for part in (x.sin(), x.cos())
    ]
    return torch.cat(words, 2).flatten(0, 1)[None]
