"""What inference needs of a model, whatever front-end it was written in.

A model splits its log joint into a prior on unconstrained parameters z ∈ R^d (log-determinants of the bijections
included) and one term per record. Every term sees one record and z, never another record: that is what makes
clipping it a bound on one person's influence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

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


@runtime_checkable
class GenerativeModel(Model, Protocol):
    """A model that its front-end can run as a whole: on several records, on none, and forwards.

    Log densities are enough for a fit. What runs the model besides (the check that records are independent, posteriors
    that simulate what was released, synthetic records, predictions) asks for these capabilities, and not for the
    language that a model is written in. Batches have the structure of the data, with a leading axis of records.

    Attributes
    ----------
    structure
        The structure of one record.
    """

    structure: Any

    @property
    def sites(self) -> Sequence[Any]:
        """Latent sites that all records share, in the order of z: :class:`~dpvi.models.sites.Site`."""
        ...

    @property
    def record_plate(self) -> str:
        """What the model calls the axis of its records."""
        ...

    @property
    def responses(self) -> Mapping[int, str]:
        """``{index of a leaf: site}`` for leaves of the data that a site observes as they are."""
        ...

    @property
    def alone(self) -> bool:
        """Whether the responses are all that is random in a record: nothing is imputed or summed over."""
        ...

    def placeholder(self, num_records: int = 1) -> Any:
        """A batch of zeros, for what reads no record."""
        ...

    def outside(self, z: jax.Array, batch: Any) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """``{site: value}`` and ``{part of the log prior: scalar}``, as the model computes them beside ``batch``."""
        ...

    def record_terms(self, z: jax.Array, batch: Any) -> jax.Array:
        """The log-likelihood of each record as the model computes it on a whole batch, (n,)."""
        ...

    def supported(self, z: jax.Array, batch: Any) -> dict[str, jax.Array]:
        """By observed site, whether what it observes lies in its support."""
        ...

    def own_findings(self) -> list[str]:
        """What else speaks against the model, which only its front-end can see; one sentence each."""
        ...

    def drawing_findings(self) -> list[str]:
        """Why :meth:`draw_responses` does not draw records of this model, one sentence each; empty where it does."""
        ...

    def draw_prior(self, key: jax.Array) -> jax.Array:
        """A draw of z from the prior; ``NotImplementedError`` where it has no sampler."""
        ...

    def draw_responses(self, z: jax.Array, batch: Any, key: jax.Array) -> dict[int, jax.Array]:
        """A draw of each response given all other leaves of ``batch``; those that have no sampler are left out."""
        ...

    def values_of(self, site: str) -> np.ndarray | None:
        """All values that an observed scalar can take, where they are few and the same for all parameters."""
        ...
