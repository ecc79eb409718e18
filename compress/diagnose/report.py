"""What a diagnosis says."""

import math
import shlex
from dataclasses import asdict, dataclass
from typing import Any

from compress.sqnr import EXACT_DB

WORST_CHANNELS = 3


@dataclass(frozen=True, kw_only=True)
class ActivationFinding:
    """A tensor that a layer reads through a Q/DQ pair.

    Attributes:
        tensor: its name.
        low, high: its smallest and largest value in the float network.
        represented_low, represented_high: the range of its integers.
        saturated: share of its values beyond that range, 0 to 1.
        clipping_share: share of its quantization error (squared) that those values make.
        sqnr_db: signal to noise of this quantization alone.
        outlier_channels: those whose largest magnitude is far above the others', largest first.
        outlier_ratio: the largest channel's magnitude over the median channel's.
    """

    tensor: str
    low: float
    high: float
    represented_low: float
    represented_high: float
    saturated: float
    clipping_share: float
    sqnr_db: float
    outlier_channels: tuple[int, ...]
    outlier_ratio: float


@dataclass(frozen=True, kw_only=True)
class WeightFinding:
    """A layer's weight.

    Attributes:
        sqnr_db: signal to noise of its rounding.
        histogram: how many integers lie in each bin of equal width, the lowest integer first.
        lowest, highest: the integers at the ends of the histogram.
        dead_channels: output channels whose weights are all zero.
        range_ratio: the largest output channel's scale over the median channel's.
    """

    sqnr_db: float
    histogram: tuple[int, ...]
    lowest: int
    highest: int
    dead_channels: tuple[int, ...]
    range_ratio: float


@dataclass(frozen=True, kw_only=True)
class LayerDiagnosis:
    """One quantized layer.

    Attributes:
        node: its name.
        op_type: its operator.
        owner: the head that needs it, or "trunk".
        sqnr_db: of its output, all errors before it included.
        share: its part of the heads' noise when each layer is quantized alone, 0 to 1.
        noise: squared error over squared signal of each head, when it alone is quantized.
        channel_db: SQNR of each output channel, all errors before it included.
        activations: one entry per quantized input.
        weight: None where it has none.
    """

    node: str
    op_type: str
    owner: str
    sqnr_db: float
    share: float
    noise: dict[str, float]
    channel_db: tuple[float, ...]
    activations: tuple[ActivationFinding, ...]
    weight: WeightFinding | None

    @property
    def alone_db(self) -> dict[str, float]:
        """SQNR of each head in dB when this layer alone is quantized."""
        return {
            head: -10 * math.log10(noise) if noise > 0 else EXACT_DB
            for head, noise in self.noise.items()
        }

    @property
    def worst_channels(self) -> tuple[int, ...]:
        """The output channels with the lowest SQNR, the worst first."""
        order = sorted(range(len(self.channel_db)), key=self.channel_db.__getitem__)
        return tuple(order[:WORST_CHANNELS])


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Options that were tried.

    Attributes:
        options: of `compress quantize`: option, value, option, value …
        why: what in the diagnosis speaks for them.
        cost: what they cost besides.
        heads_db: SQNR of each head with them, on the judged samples.
        gain_db: what they bring, averaged over the heads.
        worst_gain_db: what they bring the head that they help least.
    """

    options: tuple[str, ...]
    why: str
    cost: str
    heads_db: dict[str, float]
    gain_db: float
    worst_gain_db: float

    @property
    def phrases(self) -> tuple[str, ...]:
        """Each option with its value, as they are typed."""
        pairs = zip(self.options[::2], self.options[1::2], strict=True)
        return tuple(f"{option} {shlex.quote(value)}" for option, value in pairs)

    @property
    def command(self) -> str:
        """The options as they are typed."""
        return " ".join(self.phrases)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything found out about a network.

    Attributes:
        heads: the outputs of each head.
        heads_db: SQNR of each head with the settings given, on the judged samples.
        weights_only_db: the same where activations stay in float.
        layers: the quantized layers, in topological order.
        remedies: what was tried, the largest gain first.
        calibration_samples: how many samples chose the ranges.
        judged_samples: how many judged the heads; calibration did not see them unless
            `is_held_out` is False.
        is_held_out: whether there were enough samples to judge on others.
    """

    heads: dict[str, tuple[str, ...]]
    heads_db: dict[str, float]
    weights_only_db: dict[str, float]
    layers: tuple[LayerDiagnosis, ...]
    remedies: tuple[Remedy, ...]
    calibration_samples: int
    judged_samples: int
    is_held_out: bool

    @property
    def by_share(self) -> tuple[LayerDiagnosis, ...]:
        """The layers, the most costly first."""
        return tuple(sorted(self.layers, key=lambda layer: -layer.share))

    @property
    def recommended(self) -> Remedy | None:
        """The remedy that gains most, at least 0.5 dB; None without.

        It costs no head as much, or only little of what it brings.
        """
        helpful = [
            item
            for item in self.remedies
            if item.gain_db >= LEAST_GAIN_DB
            and item.worst_gain_db > -max(LEAST_GAIN_DB, LOST_SHARE * item.gain_db)
        ]
        return max(helpful, key=lambda item: item.gain_db, default=None)

    @property
    def limit(self) -> str:
        """Says in a sentence whether weights or activations limit the network."""
        both = sum(self.heads_db.values()) / len(self.heads_db)
        weights = sum(self.weights_only_db.values()) / len(self.weights_only_db)
        what = "activations" if weights - both > WEIGHTS_LIMIT_DB else "weights"
        return (
            f"{what.capitalize()} limit it: {both:.1f} dB with both quantized, {weights:.1f} dB "
            "with weights alone"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the diagnosis as plain values, for `--json`."""
        recommended = self.recommended
        return asdict(self) | {
            "limit": self.limit,
            "recommended": recommended.command if recommended else None,
        }


LEAST_GAIN_DB = 0.5
LOST_SHARE = 0.1
"""A head may lose so much of what the heads gain on average: 0.7 dB of one for 9 dB in all."""
WEIGHTS_LIMIT_DB = 3.0
"""Where quantizing the activations too costs more, they make more than half of the noise."""
