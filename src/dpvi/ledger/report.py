"""What a ledger says of itself: spent, reserved, asked and left, in words and numbers."""

from __future__ import annotations

from dpvi.declared.guarantee import Guarantee
from dpvi.ledger.books import RELEASED, RESERVED, SPENT, Books, Entry
from dpvi.ledger.gaussian_filter import MOST_SAMPLED, Charge
from dpvi.privacy.gaussian import gaussian_epsilon


def refusal(books: Books, asked: Charge, alone: float) -> str:
    """Why a run is refused, and what would not be."""
    terms, limit = books.terms, books.terms.limit
    spent, reserved = books.used(SPENT), books.used(RESERVED)
    text = (
        f"The ledger {terms.name!r} does not hold this run, and nothing was reserved. Of its budget (epsilon = "
        f"{terms.epsilon:g} at delta = {terms.delta:g}) are spent {_share(spent, books)}, reserved "
        f"{_share(reserved, books)}, asked {_share(asked, books)} (epsilon = {alone:.4g} by itself), left "
        f"{_share(_left(books), books)}."
    )
    if asked.slack > 0 and spent.slack + reserved.slack + asked.slack > limit.slack * (1 + 1e-9):
        text += f" It has room for {MOST_SAMPLED} plans that sample records, which are used up."
    if reserved.signal_squared > 0:
        names = [entry.name for entry in books.entries.values() if entry.state == RESERVED and entry.of is None]
        text += (
            f" Reserved are {', '.join(names)}: what was killed and published nothing can be given back by its name."
        )
    left = epsilon_of(_left(books), books)
    return text + f" A plan without steps may have epsilon = {left:.4g}."


def summary(books: Books, last_check: str) -> str:
    """The whole ledger, for people."""
    terms = books.terms
    change = Guarantee(0.0, 0.0, terms.adjacency, terms.unit, "", rows_per_unit=terms.rows_per_unit).change
    lines = [
        f"Ledger {terms.name!r}: epsilon = {terms.epsilon:g} at delta = {terms.delta:g}, for {change}.",
        *([f"Fingerprint of the records (keyed): {terms.data}"] if terms.data else []),
        "",
        f"spent     {_share(books.used(SPENT), books):>7}",
        f"reserved  {_share(books.used(RESERVED), books):>7}",
        f"left      {_share(_left(books), books):>7}  "
        f"(a plan without steps may have epsilon = {epsilon_of(_left(books), books):.4g})",
    ]
    if terms.share_for_sampling:
        sampled = round(books.used(SPENT, RESERVED).slack / terms.limit.slack_of_one)
        lines.append(f"sampled   {sampled:>3} of {MOST_SAMPLED} plans")
    if books.entries:
        rows = [("name", "state", "of the budget", "epsilon by itself", "time")]
        lines += ["", *_aligned([*rows, *(_row(entry, books) for entry in books.entries.values())])]
    for entry in books.entries.values():
        if entry.declared and entry.state != RELEASED:
            number, free = len(entry.releases), len(books.free_members(entry.name))
            lines += [
                "",
                f"{entry.name}: {number} runs fixed beforehand, {free} of them not made yet. If nothing else is ever "
                f"run, they spend epsilon = {entry.epsilon:.4g} at delta = {terms.delta:g} together, by the tight "
                "accountant.",
            ]
    return "\n".join([*lines, "", f"Checksum of all lines: {last_check}"])


def epsilon_of(charge: Charge, books: Books) -> float:
    """ε at the ledger's δ of one plan without steps that takes so much."""
    return gaussian_epsilon(charge.signal_squared**0.5, books.terms.delta) if charge.signal_squared > 0 else 0.0


def _row(entry: Entry, books: Books) -> tuple[str, ...]:
    share = f"in {entry.of}" if entry.of else _share(entry.charge, books)
    state = f"{entry.state} ({entry.because})" if entry.because else entry.state
    return entry.name, state, share, f"{entry.epsilon:.4g}", entry.time


def _left(books: Books) -> Charge:
    used = books.used(SPENT, RESERVED).signal_squared
    return Charge(max(0.0, books.terms.limit.signal_squared - used), 0.0)


def _share(charge: Charge, books: Books) -> str:
    return f"{100 * charge.signal_squared / books.terms.limit.signal_squared:.1f} %"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
