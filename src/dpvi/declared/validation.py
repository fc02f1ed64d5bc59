"""Checks of public settings, each with one sentence that says what to change."""

from __future__ import annotations

import math
import operator
from typing import Any

ADJACENCIES = ("add_remove", "substitute")


class CompilerError(RuntimeError):
    """A compiled program does not keep records apart; see :mod:`dpvi.run.program.program_check`."""


class PrivacyWarning(UserWarning):
    """A setting is legal but its guarantee says little; the message says why."""


class ConvergenceWarning(UserWarning):
    """A run ended before its parameters had settled; the message says what to change."""


class IntervalWarning(UserWarning):
    """Intervals of a posterior that may not hold what they say, and what to do about it."""


class FallbackWarning(UserWarning):
    """What was planned cannot be done for this model; the message says why, and what was done instead."""


class ModelNotice(UserWarning):
    """How a model was read where it leaves something open; the message says what to write to settle it."""


def keep(settings: Any, **checked: Any) -> None:
    """Put checked values into a frozen dataclass, from its ``__post_init__``: what was checked is what is stored."""
    for name, value in checked.items():
        object.__setattr__(settings, name, value)


def number(name: str, value: Any) -> float:
    """Return ``value`` as a float: Python and array scalars, but no strings, booleans or None."""
    scalar: Any = value
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        return float(scalar if plain else scalar.item())  # 0-d arrays of any library
    except (AttributeError, TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}.") from None
    except OverflowError:
        raise ValueError(f"{name} must fit a floating-point number, got an integer that does not.") from None


def positive(name: str, value: Any, why: str = "") -> float:
    """Return ``value`` as a finite, positive float, or say what is wrong with it."""
    checked = number(name, value)
    if not (math.isfinite(checked) and checked > 0):
        raise ValueError(f"{name} must be finite and greater than 0, got {value!r}.{' ' + why if why else ''}")
    return checked


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` as an int of at least ``least``: integers of Python and of arrays, but no floats or booleans."""
    try:
        checked = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        checked = None
    if checked is None or checked < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return checked


def epsilon(value: Any) -> float:
    return positive("epsilon", value, "Smaller is more private; 1.0 is a common choice.")


def delta(value: Any) -> float:
    checked = number("delta", value)
    if not 0 < checked < 1:
        raise ValueError(
            f"delta must lie strictly between 0 and 1, got {value!r}. "
            "Choose it well below one over the number of records, for example 1e-5."
        )
    return checked


def sampling_rate(value: Any) -> float:
    checked = number("sampling_rate", value)
    if not 0 < checked <= 1:
        raise ValueError(
            f"sampling_rate must lie in (0, 1], got {value!r}. "
            "It is the probability with which each record enters a step."
        )
    return checked


def num_steps(value: Any) -> int:
    checked = number("num_steps", value)
    if not checked.is_integer():
        raise ValueError(f"num_steps must be a whole number, got {value!r}.")
    if checked < 1:
        raise ValueError(f"num_steps must be at least 1, got {value!r}.")
    return int(checked)


def num_records(value: Any) -> int:
    """Check a declared, public number of records."""
    checked = number("num_records", value)
    if not (checked.is_integer() and checked >= 1):
        raise ValueError(
            f"num_records must be a whole number of at least 1, or None when it is not public, got {value!r}."
        )
    return int(checked)


def clip_norm(value: Any) -> float:
    checked = positive("clip_norm", value, "It bounds what one record may contribute to a step.")
    if not 1e-20 <= checked <= 1e20:
        raise ValueError(
            f"clip_norm must lie between 1e-20 and 1e20, where sums of squares stay finite, got {value!r}."
        )
    return checked


def noise_multiplier(value: Any) -> float:
    return positive(
        "noise_multiplier",
        value,
        "For a run without privacy use dpvi.plan_nonprivate(...), which says so in its guarantee.",
    )


def adjacency(value: Any) -> str:
    if value not in ADJACENCIES:
        raise ValueError(
            f"adjacency must be 'add_remove' or 'substitute', got {value!r}. "
            "Both are for Poisson sampling; fixed-size and shuffled batches have no tight accountant and are refused."
        )
    return value
