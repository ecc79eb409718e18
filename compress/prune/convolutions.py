"""The functions of PyTorch that convolve."""

import torch

CONVOLUTIONS = frozenset(
    {
        *(torch.conv1d, torch.conv2d, torch.conv3d),
        *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    }
)
