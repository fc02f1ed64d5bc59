"""The privacy statement of a plan or a result, in words a data-protection officer can read.

What a plan promises, and what a run adds to it, are facts; every sentence follows from them. A file holds the facts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

SECRET_SEED = 2**128  # seeds below can be listed and tried, one after the other
_NO_SEED, _SECRET, _GUESSABLE = "none", "secret", "guessable"

_NEIGHBOURS = {
    ("add_remove", False): "adding or removing {unit}",
    ("add_remove", True): "blanking {unit} (putting an empty record, which contributes nothing, in its place)",
    ("substitute", False): "replacing {unit} by another",
    ("substitute", True): "replacing {unit} by another",
}
_BLANKED_ROWS = "blanking {unit} (putting empty records, which contribute nothing, in place of its rows)"
_NO_NOISE = "no noise was planned, so nothing computed from this run protects the records."
_FOUND_BY_TRYING = (
    "sampling and noise came from a seed below 2^128, which can be found by trying, and whoever has it can remove the "
    "noise."
)
_SEEDED = (
    "The explicit seed from which sampling and noise came was drawn at random and is kept secret: whoever knows it can "
    "remove the noise, and so does a second run with it. For research only."
)
_CAPTURED = "The model closes over or is given as constants these arrays, which the statement takes as public: {names}."


@dataclass(frozen=True)
class Captured:
    """An array that a model closes over or has as a constant argument: no record, as far as can be seen, so public."""

    name: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"


@dataclass(frozen=True)
class Together:
    """What all fits of the same records that one call made spend; ``epsilon`` is None where that is not bounded."""

    num_fits: int
    all_private: bool
    epsilon: float | None = None
    delta: float | None = None

    def __str__(self) -> str:
        these = f"This is one of {self.num_fits} fits of the same records that were made in one call"
        if not self.all_private:
            return f"{these}, not all of them private: published with those that are not, it protects nobody."
        if self.epsilon is None:
            return (
                f"{these}, by plans that protect against different changes of the records: of all, nothing is promised."
            )
        return (
            f"{these}; together these spend ε = {self.epsilon:.6g} at δ = {self.delta:.3g}, and further fits of the "
            "same people add to it."
        )


@dataclass(frozen=True)
class Circumstances:
    """What a run adds to the statement of its plan: facts, which a file can hold and from which sentences follow.

    Attributes
    ----------
    seed
        ``"none"`` (256 bits of the operating system), ``"secret"`` (an explicit seed of 2^128 or more) or
        ``"guessable"`` (a smaller one): see :func:`kind_of_seed`.
    captured
        Arrays that the model closes over.
    together
        Where the run is one of several fits of the same records.
    """

    seed: str
    captured: tuple[Captured, ...] = ()
    together: Together | None = None

    def __post_init__(self) -> None:
        if self.seed not in (_NO_SEED, _SECRET, _GUESSABLE):
            raise ValueError(f"seed must be {_NO_SEED!r}, {_SECRET!r} or {_GUESSABLE!r}, got {self.seed!r}.")

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the statement assumes on top of its plan."""
        names = ", ".join(map(str, self.captured))
        return (
            *([_SEEDED] if self.seed == _SECRET else []),
            *([_CAPTURED.format(names=names)] if names else []),
            *([str(self.together)] if self.together else []),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Circumstances:
        """The inverse of :meth:`to_dict`; a fact that is left out is an error."""
        together = content["together"]
        return cls(
            seed=content["seed"],
            captured=tuple(Captured(each["name"], tuple(each["shape"])) for each in content["captured"]),
            together=None if together is None else Together(**together),
        )


def kind_of_seed(seed: int | None) -> str:
    """Whether a run's seed is ``"none"``, ``"secret"`` or ``"guessable"``.

    Nobody can try 2^128 numbers. A larger one is secret where it was drawn at random, ``secrets.randbits(256)``; that
    it was cannot be seen from it.

    Examples
    --------
    >>> kind_of_seed(None), kind_of_seed(2024), kind_of_seed(2**200 + 1)
    ('none', 'guessable', 'secret')
    """
    if seed is None:
        return _NO_SEED
    return _SECRET if abs(int(seed)) >= SECRET_SEED else _GUESSABLE


@dataclass(frozen=True)
class Guarantee:
    """An (ε, δ) statement together with everything it rests on.

    Attributes
    ----------
    epsilon, delta
        The bound: for any two neighbouring data sets and any set of outputs S,
        ``P(output in S) <= exp(epsilon) P'(output in S) + delta``. Infinite where nothing is promised.
    adjacency
        What "neighbouring" means: ``"add_remove"`` or ``"substitute"``.
    unit
        Who is protected, as a noun phrase ("one record").
    accountant
        How the bound was computed.
    assumptions
        What must hold for the statement to be true, one sentence each.
    fixed_size
        Whether the number of records is public. Neighbours then have the same number: a record that is not there is an
        empty one that contributes nothing.
    weakness
        Why nothing is promised although noise was planned; empty where there is no such reason.
    planned
        With a weakness, the statement that would hold without it.
    rows_per_unit
        The most rows of the data that one unit has; they are added, removed or replaced together.
    """

    epsilon: float
    delta: float
    adjacency: str
    unit: str
    accountant: str
    assumptions: tuple[str, ...] = ()
    fixed_size: bool = False
    weakness: str = ""
    planned: Guarantee | None = None
    rows_per_unit: int = 1

    @property
    def private(self) -> bool:
        return math.isfinite(self.epsilon)

    def assuming(self, *sentences: str) -> Guarantee:
        """The same statement with further assumptions written down."""
        return replace(self, assumptions=(*self.assumptions, *sentences))

    def broken_by(self, weakness: str) -> Guarantee:
        """No statement at all, for this reason; what had been planned stays readable."""
        return replace(self, epsilon=math.inf, weakness=weakness, planned=self) if self.private else self

    def under(self, circumstances: Circumstances) -> Guarantee:
        """The plan's statement for a run in these circumstances."""
        if not self.private:
            return self
        stated = self.assuming(*circumstances.sentences)
        return stated.broken_by(_FOUND_BY_TRYING) if circumstances.seed == _GUESSABLE else stated

    @property
    def warning(self) -> str:
        """``"NOT PRIVATE: …"`` where nothing is promised, else empty: for whatever prints less than the statement."""
        return "" if self.private else f"NOT PRIVATE: {self.weakness or _NO_NOISE}"

    @property
    def change(self) -> str:
        """What one neighbour differs from the other by, as a phrase."""
        phrase, unit = _NEIGHBOURS[self.adjacency, self.fixed_size], self.unit
        if self.rows_per_unit > 1:
            unit = f"{unit} with at most {self.rows_per_unit} rows"
            phrase = _BLANKED_ROWS if "blanking" in phrase else phrase
        return phrase.format(unit=unit)

    def __str__(self) -> str:
        if self.planned is not None:
            return f"{self.warning} Without this weakness it would be {self.planned}"
        if not self.private:
            text = self.warning
        else:
            # Beyond this the number itself tells nobody anything, and soon it overflows.
            factor = f" = {math.exp(self.epsilon):.4g}" if self.epsilon <= 20 else ""
            text = (
                f"(ε = {self.epsilon:.6g}, δ = {self.delta:.3g})-differential privacy: {self.change} changes the "
                f"probability of any outcome by a factor of at most exp({self.epsilon:.6g}){factor}, "
                f"up to a further probability of {self.delta:.3g}. Computed by {self.accountant}."
            )
        if self.assumptions:
            text += " Assumes: " + " ".join(self.assumptions)
        return text
