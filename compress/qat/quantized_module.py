"""A Q/DQ graph as a torch module whose weights, scales and biases learn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from artifacts.errors import InputError
from compress.qat.learned_scale import LearnedScale, Limit, quantize_through, round_through
from compress.qat.onnx_module import QUANTIZERS, OnnxModule
from compress.qat.pair_limits import find_pair_limits
from compress.qat.rescaling import rescale_alike
from compress.qat.settings import QatSettings
from compress.quantize.qparams import WEIGHT_GRIDS

BIASED = frozenset({"Conv", "ConvTranspose", "Gemm"})
INSIDE = 0.8
"""How far into its step a latent value starts, as a share of the way to the float weight."""
ALIKE = 0.9
"""A layer counts as rescaled where factors bring half of its weights that much closer."""
_LIMITS = {
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT32: (-(2**31), 2**31 - 1),
}


@dataclass(frozen=True, kw_only=True)
class _Weight:
    """A constant that is stored as integers.

    Attributes:
        key: of its latent values in the module.
        scale: name of its scale's initializer.
        zero_point: the integer that stands for 0.0.
        low: the smallest integer it may take.
        high: the largest.
        is_paired: whether each value has limits of its own instead, in buffers of the module.
    """

    key: str
    scale: str
    zero_point: int
    low: int
    high: int
    is_paired: bool = False


class QuantizedModule(OnnxModule):
    """Runs a Q/DQ graph with rounding that lets gradients through.

    A weight's latent values count in steps of its first scale and start at its integers, so the
    first step computes exactly what the graph does. `write_model` gives the same graph with the
    integers, scales and biases that `forward` uses.

    Args:
        model: with QuantizeLinear and DequantizeLinear nodes on constant scales.
        settings: what is learned.

    Raises:
        InputError: it is no such graph.
    """

    own_operators = QUANTIZERS

    def __init__(self, model: onnx.ModelProto, settings: QatSettings | None = None) -> None:
        super().__init__(model)
        self.settings = settings or QatSettings()
        self._is_rounding = True
        self._types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        self.scales = nn.ModuleDict()
        self.latents = nn.ParameterDict()
        self.biases = nn.ParameterDict()
        self._scale_keys: dict[str, str] = {}
        self._weights: dict[str, _Weight] = {}
        self._bias_keys: dict[str, str] = {}
        self._grids: dict[str, tuple[int, int, int]] = {}
        self._pair_limits = find_pair_limits(model.graph)
        self._bias_scales: dict[str, tuple[str, str]] = {}
        makers = {output: node for node in model.graph.node for output in node.output}
        for node in model.graph.node:
            if node.op_type in QUANTIZERS:
                self._add_quantizer(node)
        for node in model.graph.node:
            if node.op_type in BIASED and len(node.input) > 2 and node.input[2]:
                self._add_bias(node, makers)
        if not self._scale_keys:
            raise InputError("the network has no Q/DQ pairs", "a quantized network")

    def _add_quantizer(self, node: onnx.NodeProto) -> None:
        scale = self._require(node.input[1])
        stored = self._types.get(node.input[0])
        is_weight = stored is not None
        if stored == TensorProto.INT32:
            return
        if is_weight:
            self._add_weight(node, stored or 0)
        if node.input[1] in self._scale_keys:
            return
        is_learned = is_weight or self.settings.learns_activations
        key = self._scale_key(node, scale, is_weight)
        self._scale_keys[node.input[1]] = key
        if key not in self.scales:
            rate = self.settings.scale_rate
            self.scales[key] = LearnedScale(scale, rate, is_learned=is_learned)

    def _scale_key(self, node: onnx.NodeProto, scale: Tensor, is_weight: bool) -> str:
        """Activations with equal qparams share one scale, so that integers pass between them."""
        if is_weight or scale.ndim:
            return f"weight_{len(self.scales)}"
        zero_point = self.constant(node.input[2]) if len(node.input) > 2 else None
        stands = 0 if zero_point is None else int(zero_point)
        return f"{float(scale).hex()}_{stands}".replace(".", "_")

    def _add_weight(self, node: onnx.NodeProto, stored: int) -> None:
        name = node.input[0]
        integers = self._require(name)
        low, high = _LIMITS[stored]
        if stored == TensorProto.INT8:
            low, high = _weight_limits(integers)
        zero_points = self.constant(node.input[2]) if len(node.input) > 2 else None
        if zero_points is not None and len(zero_points.unique()) > 1:
            raise InputError(
                f"the zero_points of node '{node.name}' differ", "one for all channels"
            )
        zero_point = 0 if zero_points is None else int(zero_points.reshape(-1)[0])
        key = str(len(self.latents))
        latent = integers.float() - zero_point
        self.latents[key] = nn.Parameter(latent, requires_grad=self.settings.learns_weights)
        limits = self._pair_limits.get(name)
        for end, limit in zip(("low", "high"), limits or (), strict=False):
            self.register_buffer(f"{end}_{key}", torch.from_numpy(limit), persistent=False)
        self._weights[name] = _Weight(
            key=key,
            scale=node.input[1],
            zero_point=zero_point,
            low=low,
            high=high,
            is_paired=limits is not None,
        )

    def _add_bias(self, node: onnx.NodeProto, makers: dict[str, onnx.NodeProto]) -> None:
        name = node.input[2]
        maker = makers.get(name)
        if maker is not None and maker.op_type == "DequantizeLinear":
            ends = [makers.get(tensor) for tensor in node.input[:2]]
            if any(end is None or end.op_type != "DequantizeLinear" for end in ends):
                raise InputError(
                    f"the bias of node '{node.name}' is int32, its input is not", "both"
                )
            name = maker.input[0]
            self._bias_scales[name] = tuple(end.input[1] for end in ends if end is not None)  # type: ignore[assignment]
            bias = self._require(name).float() * self._require(maker.input[1])
        else:
            found = self.constant(name)
            if found is None or found.dtype != torch.float32:
                return
            bias = found
        if name not in self._bias_keys and self.settings.bias_rate > 0:
            key = str(len(self.biases))
            self._bias_keys[name] = key
            self.register_buffer(f"bias_start_{key}", bias.clone(), persistent=False)
            self.biases[key] = nn.Parameter(torch.zeros_like(bias))

    def allow_batches(self, *samples: Tensor) -> bool:
        """Compares without rounding, so that no integer is next to another by the order of sums."""
        self._is_rounding = False
        try:
            return super().allow_batches(*samples)
        finally:
            self._is_rounding = True

    def run_node(self, index: int, node: onnx.NodeProto, inputs: list[Any]) -> Any:
        """Runs Q and DQ with learned scales, the rest as it is."""
        if node.op_type == "QuantizeLinear":
            return self._quantize(node, inputs[0])
        if node.op_type == "DequantizeLinear":
            return self._dequantize(index, node, inputs[0])
        if node.op_type in BIASED and len(node.input) > 2 and node.input[2] in self._bias_keys:
            inputs = [*inputs[:2], self._bias(node.input[2])]
        return super().run_node(index, node, inputs)

    def _quantize(self, node: onnx.NodeProto, x: Tensor) -> Tensor:
        low, high, zero_point = self._grid(node)
        scale = self._scale(node.input[1])()
        steps = x / scale
        if not self._is_rounding:
            return torch.clamp(steps + zero_point, low, high)
        return quantize_through(steps, low - zero_point, high - zero_point) + zero_point

    def _dequantize(self, index: int, node: onnx.NodeProto, x: Tensor) -> Tensor:
        if self._types.get(node.input[0]) == TensorProto.INT32:
            return self._dequantize_bias(node)
        if node.input[0] not in self._weights:
            scale: Tensor = self._scale(node.input[1])()
            return (x - self._grid(node)[2]) * scale
        weight = self._weights[node.input[0]]
        latent = self.latents[weight.key]
        module = self._scale(weight.scale)
        attributes = self._attributes[index]
        growth = _spread(module.growth(), latent, attributes)
        return self._integers(weight, growth) * _spread(module(), latent, attributes)

    def _integers(self, weight: _Weight, growth: Tensor) -> Tensor:
        """Returns a weight's integers less its zero_point; latents count in first scales."""
        latent = self.latents[weight.key]
        low, high = self._limits(weight)
        return quantize_through(latent / growth, low - weight.zero_point, high - weight.zero_point)

    def _limits(self, weight: _Weight) -> tuple[Limit, Limit]:
        if not weight.is_paired:
            return weight.low, weight.high
        return self.get_buffer(f"low_{weight.key}"), self.get_buffer(f"high_{weight.key}")

    def _dequantize_bias(self, node: onnx.NodeProto) -> Tensor:
        """A bias counts in products of steps of its layer's input and weight."""
        name = node.input[0]
        if name not in self._bias_keys:
            return self._require(name).float() * self._require(node.input[1])
        unit = self._bias_unit(name)
        return round_through(self._bias(name) / unit) * unit

    def _bias_unit(self, name: str) -> Tensor:
        activation, weight = self._bias_scales[name]
        unit: Tensor = self._scale(activation)() * self._scale(weight)()
        return unit

    def _bias(self, name: str) -> Tensor:
        key = self._bias_keys[name]
        start: Tensor = self.get_buffer(f"bias_start_{key}")
        unit = self.settings.bias_rate * start.abs().mean().clamp(min=1e-6)
        moved: Tensor = start + unit * self.biases[key]
        return moved

    def _grid(self, node: onnx.NodeProto) -> tuple[int, int, int]:
        """Returns the lowest and highest integer and the zero point, read once for a GPU."""
        if len(node.input) < 3 or not node.input[2]:
            return 0, 255, 0
        name = node.input[2]
        if name not in self._grids:
            zero_point = self.constant(name)
            low, high = _LIMITS[self._types[name]]
            zero = 0 if zero_point is None else int(zero_point.reshape(-1)[0])
            self._grids[name] = low, high, zero
        return self._grids[name]

    def _scale(self, name: str) -> LearnedScale:
        module = self.scales[self._scale_keys[name]]
        if not isinstance(module, LearnedScale):
            raise TypeError(f"'{name}' has no learned scale")
        return module

    def _require(self, name: str) -> Tensor:
        constant = self.constant(name)
        if constant is None:
            raise InputError(f"'{name}' of a Q/DQ node is computed", "a constant")
        return constant

    @torch.no_grad()
    def recall_weights(self, weights: dict[str, Tensor]) -> int:
        """Starts latent values where the float weights were, without changing any integer.

        A weight that was close to a rounding threshold then needs a small step to cross it, one in
        the middle of its step a large one. Where the quantizer did not take the nearest integer
        (GPTQ pays one weight's error with another's) the value starts in the middle: at the
        threshold, the first steps would take the quantizer's choice back. A layer whose channels
        the quantizer rescaled has its float weights rescaled alike.

        Args:
            weights: float weights by the name of their layer.

        Returns:
            how many layers have got theirs; others were changed by the quantizer in other ways,
            are of another size (a pruned network's), or are unknown.
        """
        found = 0
        makers = {output: node for node in self.model.graph.node for output in node.output}
        numbers = {id(node): index for index, node in enumerate(self.model.graph.node)}
        for node in self.model.graph.node:
            maker = makers.get(node.input[1]) if len(node.input) > 1 else None
            if maker is None or maker.input[0] not in self._weights or node.name not in weights:
                continue
            weight = self._weights[maker.input[0]]
            latent = self.latents[weight.key]
            attributes = self._attributes[numbers[id(maker)]]
            if weights[node.name].shape != latent.shape:
                continue
            start = weights[node.name] / _spread(self._scale(weight.scale)(), latent, attributes)
            groups = next((item.i for item in node.attribute if item.name == "group"), 1)
            rescaled = rescale_alike(start, latent, groups)
            places = [start - latent, rescaled - latent]
            medians = [float(place.abs().median()) for place in places]
            place = places[medians[1] < ALIKE * medians[0]]
            if place.abs().median() > 0.5:
                continue
            latent.add_(torch.where(place.abs() <= 0.5, INSIDE * place, torch.zeros_like(place)))
            found += 1
        return found

    @torch.no_grad()
    def write_model(self, whole: onnx.ModelProto | None = None) -> onnx.ModelProto:
        """Returns the graph with the integers, scales and biases that `forward` computes with.

        Args:
            whole: a graph of which the module's is a part, to be returned so; None for its own.
        """
        new = {name: self._scale(name)().cpu().numpy() for name in self._scale_keys}
        for index, node in enumerate(self.model.graph.node):
            if node.op_type != "DequantizeLinear":
                continue
            name = node.input[0]
            if name in self._weights:
                weight = self._weights[name]
                latent = self.latents[weight.key]
                growth = _spread(
                    self._scale(weight.scale).growth(), latent, self._attributes[index]
                )
                integers = self._integers(weight, growth) + weight.zero_point
                new[name] = integers.cpu().numpy()
            elif name in self._bias_scales and name in self._bias_keys:
                unit = self._bias_unit(name)
                new[name] = round_through(self._bias(name) / unit).cpu().numpy()
                new[node.input[1]] = unit.cpu().numpy()
        for name in self._bias_keys:
            if name not in self._bias_scales:
                new[name] = self._bias(name).cpu().numpy()
        model = onnx.ModelProto()
        model.CopyFrom(self.model if whole is None else whole)
        for tensor in model.graph.initializer:
            if tensor.name in new:
                dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
                values = np.asarray(new[tensor.name]).astype(dtype)
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        return model


def _spread(scale: Tensor, values: Tensor, attributes: dict[str, Any]) -> Tensor:
    """Returns a scale in a shape that multiplies `values`: per tensor, per channel, per block."""
    block = attributes.get("block_size", 0)
    if block:
        return scale.repeat_interleave(block, attributes.get("axis", 1))
    if scale.ndim == 0 or scale.numel() == 1:
        return scale.reshape(())
    shape = [1] * values.ndim
    shape[attributes.get("axis", 1)] = -1
    return scale.reshape(shape)


def _weight_limits(integers: Tensor) -> tuple[int, int]:
    """Returns the limits that a weight in INT8 keeps: symmetric ones of 7 or 8 bits, if any."""
    widest = int(integers.abs().max())
    ends = (WEIGHT_GRIDS[name].highest for name in ("int7", "int8"))
    end = next((end for end in ends if widest <= end), None)
    return _LIMITS[TensorProto.INT8] if end is None else (-end, end)
