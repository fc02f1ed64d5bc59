"""``Ledger``: one budget for everything that is ever released of one data set."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpvi.declared.assumptions import rows_sentences
from dpvi.declared.guarantee import Guarantee, kind_of_seed
from dpvi.declared.plan import Plan
from dpvi.declared.validation import PrivacyWarning
from dpvi.ledger import journal
from dpvi.ledger.books import (
    FORMAT,
    NOTHING,
    RELEASED,
    RESERVED,
    SPENT,
    VERSION,
    Books,
    Entry,
    books_of,
    released_together,
)
from dpvi.ledger.gaussian_filter import Charge, charge
from dpvi.ledger.journal import LedgerError
from dpvi.ledger.names import free_name, new_terms, now, require
from dpvi.ledger.report import refusal, summary
from dpvi.privacy.accounting import plan_epsilon
from dpvi.privacy.gaussian import gaussian_epsilon

_FILTER = "a Gaussian privacy filter over all runs of a ledger"
_EACH = "Every run keeps what its own guarantee assumes, and was chosen from what was released before and nothing else."
_WHOLE = "What was released of the same records without this ledger is no part of the statement and comes on top."
_BELOW = 1 - 1e-9  # so that a plan with what is left still fits after rounding


class Ledger:
    """What all runs on one protected data set may spend together, kept in one file.

    A run reserves what it costs before anything is computed from a record, and commits when it is done. What would pass
    the limit is refused. A run that was killed stays reserved, because it may have shown something to somebody, until
    :meth:`release` says by its name that nothing of it was published. The same run made again is charged again.

    Parameters
    ----------
    path
        The file. It is opened where it is there, and must then fit whatever else is given; it is begun where it is not
        and ``epsilon`` and ``delta`` are given. Leave these out in scripts, so that a lost file is an error.
    epsilon, delta
        The limit of all runs together.
    name
        Of the data set; by default that of the file.
    adjacency, unit, rows_per_unit
        What is protected, as for :func:`dpvi.plan`, and the same for every plan: by default ``"add_remove"``, one
        record.
    share_for_sampling
        The share of δ that is kept for plans that sample records, by default 0: then none may run. With 0.1 up to 100
        may, and the whole budget is about half a per cent smaller. It cannot be changed later.
    data
        A fingerprint of the records, from :func:`dpvi.ledger.fingerprint`; never a plain hash.

    Guarantees
    ----------
    All that runs of the ledger release together is (``epsilon``, ``delta``)-differentially private, however each is
    chosen after seeing what the others released: :mod:`dpvi.ledger.gaussian_filter` has the argument. What was released
    of the same records without the ledger comes on top.

    Examples
    --------
    >>> import dpvi, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "patients.ledger"
    >>> ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    >>> run = ledger.reserve(dpvi.plan(epsilon=0.6, delta=1e-6))
    >>> ledger.commit(run)
    >>> run, round(ledger.epsilon_left, 3)
    ('run-1', 0.769)
    >>> ledger.reserve(dpvi.plan(epsilon=0.8, delta=1e-6))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpvi.ledger.journal.LedgerError: The ledger 'patients' does not hold this run...
    """

    def __init__(
        self,
        path: str | Path,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        name: str | None = None,
        adjacency: str | None = None,
        unit: str | None = None,
        rows_per_unit: int | None = None,
        share_for_sampling: float | None = None,
        data: str | None = None,
    ) -> None:
        self.path = Path(path)
        given = {
            "epsilon": epsilon,
            "delta": delta,
            "name": name,
            "adjacency": adjacency,
            "unit": unit,
            "rows_per_unit": rows_per_unit,
            "share_for_sampling": share_for_sampling,
            "data": data,
        }
        given = {key: value for key, value in given.items() if value is not None}
        if not self.path.exists() and epsilon is not None and delta is not None:
            first = {"format": FORMAT, "version": VERSION, "time": now(), **new_terms(self.path, given)}
            journal.create(self.path, first)  # or another process was here first, whose terms are compared below
        self._identity: str | None = None
        self.terms = self._books().terms
        self._identity = self.terms.identity
        for key, value in given.items():
            if getattr(self.terms, key) != value:
                raise LedgerError(
                    f"{self.path} is the ledger of {self.terms.name!r} with {key}={getattr(self.terms, key)!r}, and "
                    f"{value!r} was given. A ledger's terms never change; open it without them, or begin another one "
                    "for other records."
                )

    @property
    def epsilon(self) -> float:
        return self.terms.epsilon

    @property
    def delta(self) -> float:
        return self.terms.delta

    @property
    def entries(self) -> dict[str, Entry]:
        """Every run by its name, as the file says now."""
        return self._books().entries

    @property
    def epsilon_left(self) -> float:
        """ε at the ledger's δ of the largest plan without steps that is not refused now; 0 where nothing is left.

        It follows from plans alone while nothing is given back by name, so it may be published. What the file says
        besides is for the custodian: that a run stopped half-way can depend on a record.
        """
        used, limit = self._books().used(RESERVED, SPENT), self.terms.limit
        left = _BELOW * (limit.signal_squared - used.signal_squared)
        return gaussian_epsilon(left**0.5, self.delta) * _BELOW if left > 0 else 0.0

    @property
    def guarantee(self) -> Guarantee:
        """What holds of everything that runs of this ledger have released and will release."""
        fixed = any(entry.fixed_size for entry in self.entries.values())
        terms = self.terms
        return Guarantee(
            epsilon=terms.epsilon,
            delta=terms.delta,
            adjacency=terms.adjacency,
            unit=terms.unit,
            accountant=_FILTER,
            assumptions=(_EACH, _WHOLE, *rows_sentences(terms.rows_per_unit)),
            fixed_size=fixed,
            rows_per_unit=terms.rows_per_unit,
        )

    def check(self, plans: Plan | Sequence[Plan], seeds: Sequence[int | None] = ()) -> None:
        """Refuse what :meth:`reserve` would refuse now, and reserve nothing."""
        self._entry(self._books(), *self._asked(plans, seeds), None, declared=False)

    def reserve(
        self, plans: Plan | Sequence[Plan], name: str | None = None, *, seeds: Sequence[int | None] = ()
    ) -> str:
        """Take what the runs of ``plans`` cost, before they begin.

        Parameters
        ----------
        plans
            One plan, or the plans of several runs of one call, which are composed tightly.
        name
            Of the run; by default ``"run-1"`` and so on.
        seeds
            Of the runs, where they were given: a seed that can be guessed is refused.

        Returns
        -------
        str
            The name, for :meth:`commit`.

        Raises
        ------
        LedgerError
            With what is spent, reserved, asked and left. Then nothing was reserved.
        """
        return self._add(*self._asked(plans, seeds), name, declared=False)

    def declare(self, plans: Sequence[Plan], name: str | None = None) -> str:
        """Take, now, what all these plans cost together by the tight accountant; each may then run once, in any order.

        The plans stand fixed from here on, whatever is released of the records later. A run of one of them is charged
        nothing more; made once more, it is charged like any other.
        """
        return self._add(*self._asked(plans, ()), name, declared=True)

    def commit(self, name: str) -> None:
        """Say that a run is done. What it cost stays spent for ever."""
        with self._opened() as (file, books):
            require(books, name, RESERVED)
            if books.entries[name].declared:
                raise LedgerError(f"{name!r} is a declaration; it is spent when all its runs are.")
            file.append({"event": "commit", "entry": name, "time": now()})

    def release(self, name: str, because: str = "") -> None:
        """Give back what a run reserved: a deliberate act, which says that NOTHING OF IT WAS PUBLISHED OR SEEN.

        A run that was killed may have shown a result, saved a file or been watched. If so, or if nobody knows, leave it
        reserved. What is done is never given back.
        """
        with self._opened() as (file, books):
            require(books, name, RESERVED)
            entry = books.entries[name]
            if entry.declared and len(books.free_members(name)) < len(entry.releases):
                raise LedgerError(
                    f"Runs of the declaration {name!r} were made, and its cost is that of all of them together: it "
                    "cannot be given back."
                )
            file.append({"event": "release", "entry": name, "because": because, "time": now()})

    def state_of(self, name: str, plans: Plan | Sequence[Plan]) -> str | None:
        """``"reserved"``, ``"spent"`` or ``"released"`` for the run of ``plans`` under that name, None for no run.

        Raises
        ------
        LedgerError
            Where the run of that name has other plans.
        """
        entry = self.entries.get(name)
        if entry is None:
            return None
        plans = [plans] if isinstance(plans, Plan) else list(plans)
        if entry.releases != tuple(plan.releases for plan in plans):
            raise LedgerError(f"{name!r} is a run of other plans in this ledger; nothing of it can be resumed here.")
        return entry.state

    @contextmanager
    def charging(
        self, plans: Plan | Sequence[Plan], seeds: Sequence[int | None] = (), *, name: str | None = None
    ) -> Iterator[str]:
        """Reserve, run what is inside, commit; where it fails, what was reserved stays so, and the error says that.

        A run that has begun under ``name`` before goes on and is charged no more.
        """
        state = None if name is None else self.state_of(name, plans)
        resumed = name is not None
        if state is None:
            name = self.reserve(plans, name, seeds=seeds)
        elif state == RELEASED:
            raise LedgerError(f"{name!r} was given back; it must be reserved anew, under another name.")
        assert name is not None
        try:
            yield name
        except BaseException as error:
            go_on = " Go on with it by the same call, with its checkpoint." if resumed else ""
            error.add_note(
                f"The ledger keeps {name!r} reserved, because the run had begun.{go_on} If nothing of it was published "
                f"or seen, give it back: dpvi ledger release {self.path} {name}"
            )
            raise
        if state == SPENT:
            return
        try:
            self.commit(name)
        except LedgerError as error:  # what is released is released, and reserved counts as much as spent
            if resumed and self.state_of(name, plans) == SPENT:
                error.add_note(
                    f"Another run went on from a copy of the checkpoint of {name!r} and is done: steps were taken "
                    "twice and charged once. The result of this one is withheld; publish nothing of it."
                )
                raise
            if not self._counts(name):
                error.add_note(
                    f"The ledger does not count {name!r}: it was given back, or the file replaced, while the run went "
                    "on. Its result is withheld; publish nothing of it."
                )
                raise
            warnings.warn(
                f"The run {name!r} is done and stays reserved in its ledger, which counts as much as spent. {error}",
                PrivacyWarning,
                stacklevel=4,
            )

    def _counts(self, name: str) -> bool:
        try:
            return self.entries[name].state in (RESERVED, SPENT)
        except (LedgerError, KeyError):
            return False

    def verify(self) -> None:
        """Compute every charge again, and refuse a ledger that charged too little.

        Raises
        ------
        LedgerError
            With the name of the first entry that is charged less than it costs.
        """
        limit, books = self.terms.limit, self._books()
        for entry in books.entries.values():
            if entry.of is not None:
                declared = books.entries[entry.of].releases
                right = all(declared[k] == one for k, one in zip(entry.members, entry.releases, strict=True))
                found = NOTHING if right else Charge(float("inf"), 0.0)
            else:
                found = charge(released_together(entry.releases), self.terms.adjacency, limit.slack_of_one)
            enough = entry.charge.signal_squared >= found.signal_squared * (1 - 1e-6)
            if not (enough and entry.charge.slack >= found.slack * (1 - 1e-6)):
                raise LedgerError(f"{entry.name!r} is charged less than it costs; the ledger was not written by dpvi.")
        if not limit.holds(books.used(RESERVED, SPENT)):
            raise LedgerError("More is charged than the ledger holds; it was not written by dpvi.")

    def __str__(self) -> str:
        with journal.opened(self.path, to_write=False) as file:
            return summary(self._checked(file), file.last_check)

    def _asked(self, plans: Any, seeds: Sequence[int | None]) -> tuple[list[Plan], Charge, float]:
        """The plans, what they cost, and ε of them alone: all that takes time, before the file is locked."""
        plans = [plans] if isinstance(plans, Plan) else list(plans)
        if not plans or not all(isinstance(plan, Plan) for plan in plans):
            raise TypeError("A ledger reserves plans from dpvi.plan(...).")
        for plan in plans:
            self.terms.check(plan)
        if any(kind_of_seed(seed) == "guessable" for seed in seeds):
            raise LedgerError(
                "A run with a seed below 2^128 is NOT PRIVATE, so no budget covers it. Leave the seed out, or leave "
                "ledger= out for records that are not under protection."
            )
        releases, limit = released_together([plan.releases for plan in plans]), self.terms.limit
        if any(release.sampling_rate < 1 for release in releases) and limit.slack == 0:
            raise LedgerError(
                "This plan samples records, and this ledger keeps no part of delta for such plans. Use a plan without "
                "steps or with sampling_rate=1, or begin ledgers of new records with share_for_sampling=0.1."
            )
        found = charge(releases, self.terms.adjacency, limit.slack_of_one)
        return plans, found, plan_epsilon(releases, self.delta, self.terms.adjacency)

    def _entry(
        self, books: Books, plans: Sequence[Plan], cost: Charge, alone: float, name: str | None, *, declared: bool
    ) -> Entry:
        """The entry that these plans make, refused where the books do not hold it."""
        releases = tuple(plan.releases for plan in plans)
        member = None if declared else books.find_declared(releases)
        if declared or member is None:
            used = books.used(RESERVED, SPENT)
            if not books.terms.limit.holds(used + cost):
                raise LedgerError(refusal(books, cost, alone))
        return Entry(
            name=free_name(books, name, "declared" if declared else "run"),
            releases=releases,
            charge=cost if member is None else NOTHING,
            epsilon=alone,
            fixed_size=any(plan.num_records is not None for plan in plans),
            declared=declared,
            of=None if member is None else member[0],
            members=() if member is None else member[1],
            time=now(),
        )

    def _add(self, plans: list[Plan], cost: Charge, alone: float, name: str | None, *, declared: bool) -> str:
        with self._opened() as (file, books):
            entry = self._entry(books, plans, cost, alone, name, declared=declared)
            file.append({"event": "reserve", "entry": entry.to_dict()})
        return entry.name

    def _books(self) -> Books:
        with journal.opened(self.path, to_write=False) as file:
            return self._checked(file)

    @contextmanager
    def _opened(self) -> Iterator[tuple[journal.Journal, Books]]:
        with journal.opened(self.path, to_write=True) as file:
            yield file, self._checked(file)

    def _checked(self, file: journal.Journal) -> Books:
        """The books of the file, once it is known to be still this ledger's."""
        books = books_of(self.path, file.lines)
        if self._identity not in (None, books.terms.identity):
            raise LedgerError(
                f"{self.path} was this ledger's file and is now that of another one, {books.terms.name!r}. Put the "
                "file back; what was spent is not known without it."
            )
        return books
