"""The privacy statement of a plan or a result, in words a data-protection officer can read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_NEIGHBOURS = {
    "add_remove": "adding or removing {unit}",
    "substitute": "replacing {unit} by another",
}


@dataclass(frozen=True)
class Captured:
    """An array or number that a model, guide, law or driver holds beside the records."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Guarantee:
    """An (ε, δ) statement together with everything it rests on.

    Attributes
    ----------
    epsilon, delta
        The bound: for any two neighbouring data sets and any set of outputs S,
        ``P(output in S) <= exp(epsilon) P'(output in S) + delta``.
    adjacency
        What "neighbouring" means: ``"add_remove"`` or ``"substitute"``.
    unit
        Who is protected, as a noun phrase ("one record").
    accountant
        How the bound was computed.
    assumptions
        What must hold for the statement to be true, one sentence each.
    """

    epsilon: float
    delta: float
    adjacency: str
    unit: str
    accountant: str
    assumptions: tuple[str, ...] = ()

    @property
    def private(self) -> bool:
        return math.isfinite(self.epsilon)

    def assuming(self, *sentences: str) -> Guarantee:
        """The same statement with further assumptions written down."""
        return replace(self, assumptions=(*self.assumptions, *sentences))

    def __str__(self) -> str:
        if not self.private:
            text = "NOT PRIVATE: no noise was planned, so nothing computed from this run protects the records."
        else:
            # Beyond this the number itself tells nobody anything, and soon it overflows.
            factor = f" = {math.exp(self.epsilon):.4g}" if self.epsilon <= 20 else ""
            change = _NEIGHBOURS[self.adjacency].format(unit=self.unit)
            text = (
                f"(ε = {self.epsilon:.6g}, δ = {self.delta:.3g})-differential privacy: {change} changes the "
                f"probability of any outcome by a factor of at most exp({self.epsilon:.6g}){factor}, "
                f"up to a further probability of {self.delta:.3g}. Computed by {self.accountant}."
            )
        if self.assumptions:
            text += " Assumes: " + " ".join(self.assumptions)
        return text
