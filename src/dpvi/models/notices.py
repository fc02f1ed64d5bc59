"""What a user should know and need not act on, said where the user's own code called."""

from __future__ import annotations

import sys
import warnings

from dpvi.declared.validation import ModelNotice

_PACKAGE = __name__.partition(".")[0]


def tell(sentence: str) -> None:
    """Say ``sentence`` as a :class:`~dpvi.declared.validation.ModelNotice`, once for every line that called."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, ModelNotice, stacklevel=level)
