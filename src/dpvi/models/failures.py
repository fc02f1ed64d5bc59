"""What to say when a user's own function fails: its words and its line, as far as they are harmless.

A function is tried on shapes and on made-up records, so an error tells nothing of anybody's values. It may hold sizes
that the function keeps in a variable, and the number of records is private: numbers that are no size of one record are
left out.
"""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path
from typing import Any

import jax

from dpvi.models.base import ModelError
from dpvi.models.reachable import is_own

_QUOTED = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError, ValueError)
_LONGEST = 240  # characters of an error's text
_TRIED = 3  # records at a time
_DUPLICATE = re.compile(r"unique names but got `(.+)` duplicated")  # NumPyro's words
_CONVERTED = (jax.errors.TracerArrayConversionError, jax.errors.TracerIntegerConversionError)


def failure_findings(error: Exception, plates: list[str], structure: Any) -> list[str]:
    """What to say of a model that failed on two or three records, having met ``plates``."""
    if isinstance(error, ModelError):
        return list(error.findings)
    plain = _said_plainly(error)
    if plain:
        return [plain]
    what = explained(error, structure)
    if _is_a_slip(error):
        return [f"The model fails with {what}."]
    if plates:
        hint = (
            f"check that the size of {', '.join(map(repr, plates))} is taken from an argument, as in x.shape[0], "
            "and that further axes of a record are declared with to_event or a plate of their own"
        )
    else:
        hint = "check its arguments: a tuple of data is passed by position, a dict by name"
    return [f"The model must run on any number of records, but fails on two or three with {what}; {hint}."]


def explained(error: Exception, structure: Any) -> str:
    """``SomeError: its text (file, line 3: `the line`)`` for an error that was raised while a model ran."""
    text = _text(error, structure)
    return f"{type(error).__name__}{': ' + text if text else ''}{place(error)}"


def place(error: Exception) -> str:
    """The last line of the user's own on the way to an error, in brackets; empty where there is none."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_own(frame.f_globals.get("__name__"))
    ]
    if not frames:
        return ""
    file, number = frames[-1]
    line = linecache.getline(file, number).strip()
    return f" ({Path(file).name}, line {number}{': `' + line + '`' if line else ''})"


def _said_plainly(error: Exception) -> str | None:
    """One sentence for an error whose cause is known from its type or words alone; None for any other."""
    duplicate = _DUPLICATE.search(str(error)) if isinstance(error, AssertionError) else None
    if duplicate:
        name = duplicate.group(1)
        return f"Two sites of the model are called {name!r}; give every numpyro.sample a name of its own."
    if isinstance(error, _CONVERTED):
        return (
            "The model must be a JAX function of the records, but hands one of their arrays to NumPy or to Python"
            f"{place(error)}: write jnp.asarray(table)[index] for table[index], and jnp. for np. where a value of a "
            "record or a parameter enters; sizes are settings, static={...}, and where the model reads one from an "
            "argument, as in len(np.unique(group)), declare it, static={'group': dpvi.Levels(range(6))}."
        )
    if isinstance(error, jax.errors.ConcretizationTypeError):
        return (
            f"The model must be a JAX function of the records, but fails with {type(error).__name__}{place(error)}: "
            "sizes and branches must not depend on values of records; pass sizes as constants, static={...}, declare "
            "one that the model reads from an argument, as in np.max(label) + 1, by static={'label': "
            "dpvi.Levels(range(3))}, and branch with jnp.where."
        )
    return None


_NUMERAL = re.compile(r"(?P<type>\b(?:b?float|u?int|[fiu])(?:8|16|32|64)\b)|\d+(?:[.,_]\d+)*(?:[eE][+-]?\d+)?")


def _is_a_slip(error: Exception) -> bool:
    """Whether an error has nothing to do with numbers of records: a name or a key that is not there."""
    return isinstance(error, (NameError, ImportError, AttributeError, KeyError))


def _text(error: Exception, structure: Any) -> str:
    if not isinstance(error, _QUOTED) or isinstance(error, ModelError):
        return ""
    text = " ".join(str(error).split())
    known = {str(size) for leaf in jax.tree.leaves(structure) for size in leaf.shape}
    known |= {str(size) for size in range(_TRIED + 1)}
    text = _NUMERAL.sub(lambda found: found[0] if found[0] in known or found["type"] else "#", text)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return text.removesuffix(".")
