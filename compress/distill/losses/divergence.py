"""Kullback-Leibler divergence between softened distributions."""

from torch import Tensor


def soft_divergence(student: Tensor, teacher: Tensor, axis: int, temperature: float) -> Tensor:
    """Returns T² KL(teacher ‖ student) of softmax(logits / T) along `axis` (Hinton et al., 2015).

    Args:
        student: logits.
        teacher: logits of the same shape.
        axis: of the classes.
        temperature: T.

    Returns:
        the logits' shape without `axis`; T² keeps the gradient's size whatever T is. Never below 0,
        where rounding alone would take equal distributions.
    """
    wanted = (teacher / temperature).log_softmax(axis)
    got = (student / temperature).log_softmax(axis)
    return temperature**2 * (wanted.exp() * (wanted - got)).sum(axis).clamp(min=0)


def channel_wise_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Returns how differently two feature maps spread each channel over its pixels.

    Channel-wise knowledge distillation (Shu et al., 2021, equation 4): each channel, softened by a
    softmax over its pixels, is a distribution of where the network looks.

    Args:
        student: [N, C, H, W].
        teacher: [N, C, H, W].
        temperature: softens each channel.

    Returns:
        the mean over channels and samples.
    """
    return soft_divergence(student.flatten(2), teacher.flatten(2), 2, temperature).mean()
