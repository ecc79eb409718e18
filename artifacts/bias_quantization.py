"""The onnxruntime optimization that every session on a Q/DQ network has to switch off."""

BIAS_QUANTIZATION = "WeightBiasQuantization"
"""It rounds the float biases of Q/DQ networks to int32 on its own account.

That changes the outputs (by as much as int8 itself on FastestDet) and destroys FP16 Q/DQ networks,
whose tiny scale products underflow. A reference computes what the file says.
"""
