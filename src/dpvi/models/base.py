"""What inference needs of a model, whatever front-end it was written in.

A model splits its log joint into a prior on unconstrained parameters z ∈ R^d (log-determinants of the bijections
included) and one term per record. Every term sees one record and z, never another record: that is what makes
clipping it a bound on one person's influence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax

Record = Any  # a pytree of arrays without the leading record axis


class ModelError(ValueError):
    """A model that cannot be fitted privately as it is written; each finding is one sentence that says what to change.

    Attributes
    ----------
    findings
        The sentences, one per finding. They name sites, plates and paths, never a value or the number of records.
    """

    def __init__(self, findings: str | Sequence[str]):
        self.findings = (findings,) if isinstance(findings, str) else tuple(findings)
        super().__init__("\n".join(self.findings))


@runtime_checkable
class Model(Protocol):
    """A probabilistic model with independent records given global parameters."""

    @property
    def dimension(self) -> int:
        """d, the number of unconstrained parameters."""
        ...

    def log_prior(self, z: jax.Array) -> jax.Array:
        """log p(z) on the unconstrained scale, a scalar; reads no record."""
        ...

    def log_likelihood(self, z: jax.Array, record: Record) -> jax.Array:
        """log p(x_i | z) for one record, a scalar."""
        ...

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]:
        """Map one unconstrained vector to ``{site: value on its own support}``."""
        ...

    def unconstrain(self, values: dict[str, Any]) -> jax.Array:
        """The inverse of :meth:`constrain`."""
        ...
