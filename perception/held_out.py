"""Which of a user's own pictures are held out."""

HELD_OUT_EVERY = 10
"""Of own pictures, each tenth is held out."""


def held_out_numbers(count: int) -> range:
    """Returns the numbers of the pictures held out of `count`; none of fewer than ten."""
    return range(HELD_OUT_EVERY - 1, count, HELD_OUT_EVERY)
