"""What the lines of a ledger say: its limit, and every run with what it costs and where it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dpvi.declared.assumptions import unit_of
from dpvi.declared.plan import GRADIENTS, HISTOGRAMS, GaussianRelease, Plan
from dpvi.ledger.gaussian_filter import Charge, Limit, limit_of
from dpvi.ledger.journal import LedgerError

FORMAT, VERSION = "dpvi ledger", 1
RESERVED, SPENT, RELEASED = "reserved", "spent", "released"
NOTHING = Charge(0.0, 0.0)
_OWN = (GRADIENTS, HISTOGRAMS)  # what the run of a plan makes itself


@dataclass(frozen=True)
class Terms:
    """What a ledger is about: fixed in its first line.

    Attributes
    ----------
    identity
        A random number, so that a ledger is not taken for another.
    name
        Of the data set, as its custodian calls it.
    epsilon, delta
        Of all runs together.
    adjacency, unit, rows_per_unit
        What is protected; the same for every plan.
    share_for_sampling
        The share of δ that is kept for plans that sample records.
    data
        A fingerprint of the records, or None.
    """

    identity: str
    name: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    rows_per_unit: int
    share_for_sampling: float
    data: str | None

    @property
    def limit(self) -> Limit:
        return limit_of(self.epsilon, self.delta, self.share_for_sampling)

    def check(self, plan: Plan) -> None:
        """Refuse a plan whose guarantee is about something else."""
        if not plan.private:
            raise LedgerError(
                "This plan adds no noise (NOT PRIVATE), so no budget covers it. Leave ledger= out for records that are "
                "not under protection; for these records make a plan with dpvi.plan(...)."
            )
        asked = {"adjacency": plan.adjacency, "unit": unit_of(plan), "rows_per_unit": plan.rows_per_unit}
        for name, value in asked.items():
            if value != getattr(self, name):
                raise LedgerError(
                    f"This ledger's {name} is {getattr(self, name)!r} and the plan's is {value!r}: what they spend "
                    f"protects against different changes of the records and cannot be added up. Make the plan with "
                    f"{name}={getattr(self, name)!r}."
                )


@dataclass(frozen=True)
class Entry:
    """A run, several runs of one call, or runs declared beforehand.

    Attributes
    ----------
    name
        By which it is committed or released.
    releases
        For each of its plans, what is released.
    charge
        What it takes of the limit; nothing for a run that was declared beforehand.
    epsilon
        What it would cost by itself, at the ledger's δ, by the tight accountant.
    fixed_size
        Whether one of its plans makes the number of records public.
    state
        ``"reserved"``, ``"spent"`` or ``"released"``.
    declared
        Whether it is a declaration, of which runs are made later.
    of, members
        The declaration that a run belongs to, and which of its plans it follows.
    time, because
        Notes: when it was written, by the clock of that machine; why it was released.
    """

    name: str
    releases: tuple[tuple[GaussianRelease, ...], ...]
    charge: Charge
    epsilon: float
    fixed_size: bool
    state: str = RESERVED
    declared: bool = False
    of: str | None = None
    members: tuple[int, ...] = ()
    time: str = ""
    because: str = ""

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self)
        content["charge"] = self.charge._asdict()
        del content["state"], content["because"]
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Entry:
        releases = tuple(tuple(GaussianRelease(**each) for each in one) for one in content.pop("releases"))
        charge, members = Charge(**content.pop("charge")), tuple(content.pop("members"))
        return cls(releases=releases, charge=charge, members=members, **content)


@dataclass
class Books:
    """Everything that the lines say, in their order."""

    terms: Terms
    entries: dict[str, Entry] = field(default_factory=dict)

    def used(self, *states: str) -> Charge:
        """What entries in these states take."""
        return sum((entry.charge for entry in self.entries.values() if entry.state in states), NOTHING)

    def free_members(self, declaration: str) -> list[int]:
        """Which plans of a declaration no run has been reserved for, or only one that was released."""
        taken = {
            number
            for entry in self.entries.values()
            if entry.of == declaration and entry.state != RELEASED
            for number in entry.members
        }
        return [number for number in range(len(self.entries[declaration].releases)) if number not in taken]

    def find_declared(self, asked: Sequence[tuple[GaussianRelease, ...]]) -> tuple[str, tuple[int, ...]] | None:
        """A declaration that holds all of these plans, and which of its plans they are."""
        for entry in self.entries.values():
            if not entry.declared or entry.state == RELEASED:
                continue
            free, found = self.free_members(entry.name), []
            for releases in asked:
                same = [number for number in free if entry.releases[number] == releases and number not in found]
                found += same[:1]
            if len(found) == len(asked):
                return entry.name, tuple(found)
        return None

    def add(self, line: dict[str, Any]) -> None:
        """Take in one line."""
        event, entry = line["event"], line["entry"]
        if event == "reserve":
            made = Entry.from_dict(dict(entry))
            if made.name in self.entries:
                raise KeyError(made.name)
            self.entries[made.name] = made
        else:
            state = {"commit": SPENT, "release": RELEASED}[event]
            self.entries[entry] = replace(self.entries[entry], state=state, because=line.get("because", ""))
        of = None if event == "reserve" else self.entries[entry].of
        if of is not None and event == "commit" and not self.free_members(of):
            runs = [each for each in self.entries.values() if each.of == of and each.state != RELEASED]
            if all(each.state == SPENT for each in runs):
                self.entries[of] = replace(self.entries[of], state=SPENT)


def books_of(path: Any, lines: Sequence[dict[str, Any]]) -> Books:
    """The books that the lines of a file make."""
    first = dict(lines[0])
    if first.pop("format", None) != FORMAT:
        raise LedgerError(f"{path} is not a ledger of dpvi.")
    version = first.pop("version", None)
    if version != VERSION:
        raise LedgerError(
            f"{path} is a ledger of version {version!r}, and this dpvi reads version {VERSION}. Use the dpvi that "
            "wrote it: what was spent must not be guessed."
        )
    try:
        books = Books(Terms(**{name: value for name, value in first.items() if name not in ("check", "time")}))
        for line in lines[1:]:
            books.add(line)
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{path} was not written by dpvi: its lines do not fit each other ({error!r}).") from None
    return books


def released_together(listings: Sequence[tuple[GaussianRelease, ...]]) -> tuple[GaussianRelease, ...]:
    """Everything that runs release whose plans list these releases, each thing once.

    A plan may list releases that others of these runs make (:func:`dpvi.plan_together`); what it lists besides is taken
    to be made for it.
    """
    made = [[release for release in listing if release.name in _OWN] for listing in listings]
    released = [release for own in made for release in own]
    for number, listing in enumerate(listings):
        by_others = Counter(_content(release) for k, own in enumerate(made) if k != number for release in own)
        for release in listing:
            if release.name in _OWN:
                continue
            if by_others[_content(release)] > 0:
                by_others[_content(release)] -= 1
            else:
                released.append(release)
    return tuple(released)


def _content(release: GaussianRelease) -> GaussianRelease:
    return replace(release, name="")
