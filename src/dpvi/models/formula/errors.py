"""What a formula that cannot be used is answered with."""

from __future__ import annotations


class FormulaError(ValueError):
    """A formula, a family or a prior that does not fit the declared columns; the message says what to change."""
