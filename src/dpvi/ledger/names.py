"""Terms of a new ledger, and names of its runs, checked before a line is written."""

from __future__ import annotations

import datetime
import itertools
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpvi.declared import validation
from dpvi.declared.assumptions import RECORD
from dpvi.ledger.books import Books
from dpvi.ledger.gaussian_filter import MOST_SAMPLED, SMALLEST_SLACK
from dpvi.ledger.journal import LedgerError


def new_terms(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The terms of a new ledger, checked."""
    rows = validation.whole_number("rows_per_unit", given.get("rows_per_unit", 1))
    share = validation.number("share_for_sampling", given.get("share_for_sampling", 0.0))
    terms = {
        "identity": secrets.token_hex(16),
        "name": given.get("name", path.stem),
        "epsilon": validation.epsilon(given["epsilon"]),
        "delta": validation.delta(given["delta"]),
        "adjacency": validation.adjacency(given.get("adjacency", "add_remove")),
        "unit": given.get("unit", RECORD if rows == 1 else "one unit"),
        "rows_per_unit": rows,
        "share_for_sampling": share,
        "data": given.get("data"),
    }
    for name in ("name", "unit"):
        if not isinstance(terms[name], str) or not terms[name]:
            raise TypeError(f"{name} must be a text, got {terms[name]!r}.")
    if not isinstance(terms["data"], (str, type(None))):
        raise TypeError("data must be a fingerprint of the records, from dpvi.ledger.fingerprint, not the records.")
    smallest = MOST_SAMPLED * SMALLEST_SLACK / terms["delta"]
    if share != 0 and not smallest <= share < 1:
        raise ValueError(
            f"share_for_sampling must be 0, or at least {smallest:.2g} at this delta and below 1, got {share!r}: each "
            f"of {MOST_SAMPLED} plans that sample takes an equal part, which must stay above rounding."
        )
    return terms


def require(books: Books, name: str, state: str) -> None:
    if name not in books.entries:
        raise LedgerError(f"The ledger has no run {name!r}; it has {', '.join(books.entries) or 'none'}.")
    found = books.entries[name].state
    if found != state:
        raise LedgerError(f"The run {name!r} is {found}, and only one that is {state} can be changed.")


def free_name(books: Books, name: str | None, kind: str) -> str:
    """The name that was asked for, once it is known to be free, or the next number."""
    if name is None:
        numbers: Iterator[str] = (f"{kind}-{number}" for number in itertools.count(1))
        return next(each for each in numbers if each not in books.entries)
    if not isinstance(name, str) or not name or name in books.entries:
        raise LedgerError(f"A run needs a name that the ledger does not have yet, got {name!r}.")
    return name


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
