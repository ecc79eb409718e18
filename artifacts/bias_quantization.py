"""The onnxruntime optimizations that sessions on a Q/DQ network have to switch off."""

BIAS_QUANTIZATION = "WeightBiasQuantization"
"""It rounds the float biases of Q/DQ networks to int32 on its own account.

That changes the outputs (by as much as int8 itself on FastestDet) and destroys FP16 Q/DQ networks,
whose tiny scale products underflow. A reference computes what the file says.
"""

PRODUCT_FUSION = "MatMulAddFusion"
"""It makes a quantized MatMul and Add on three axes unopenable from opset 21 on.

The quantizer it writes for int8 has the zero point of uint8 (onnxruntime 1.31 and 1.32). It is
switched off where a network does not open with it.
"""
