"""Which way a head's metric counts: an error is better where it is lower, a score where higher."""

import re

_ERRORS = (
    "rel absrel sqrel mae mse rmse irmse epe err error errors loss ade fde minade minfde silog "
    "nll ece chamfer miss"
)
_SCORES = (
    "ap ar map mar iou miou acc accuracy precision recall f pq nds mota hota idf auc auroc dice "
    "delta psnr ssim sqnr score agreement top"
)


def is_lower_better(metric: str) -> bool | None:
    """Returns True for errors (abs_rel, val_RMSE …), False for scores (mAP50, bbox_mIoU …).

    The words of a name decide; one that holds both is an error (IoU loss). None where no word is
    known: taking a worse network's rise for a gain would let it pass.
    """
    words = set(re.findall("[a-z]+", metric.lower()))
    if words & set(_ERRORS.split()):
        return True
    return False if words & set(_SCORES.split()) else None


_FIRST_ERRORS = ("abs_rel", "sq_rel", "rmse", "mae", "epe", "error", "loss")


def was_lower_better(metric: str) -> bool:
    """Returns how versions judged whose reports state no direction: all other names were scores."""
    return metric.lower() in _FIRST_ERRORS
