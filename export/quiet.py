"""Keeps a library's chatter away from the user."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Swallows what the block prints, warns and logs; exceptions pass.

    Yields:
        the text that was swallowed, for an error message.
    """
    heard = io.StringIO()
    disabled = logging.root.manager.disable
    with (
        contextlib.redirect_stdout(heard),
        contextlib.redirect_stderr(heard),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield heard
        finally:
            logging.disable(disabled)
