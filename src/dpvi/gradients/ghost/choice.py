"""When gradients of single records are not worth forming."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax

from dpvi.families.base import Family
from dpvi.gradients.ghost.clipped_sum import Term
from dpvi.models.base import Model

# Numbers in the gradients of all records of a batch above which their memory traffic is what a step waits for
_LARGE = 2**22


@runtime_checkable
class TermEstimator(Protocol):
    """An estimator whose release is the gradient of one number per record.

    It may set ``ghost_clipping`` to True or False to decide for itself; None leaves the choice to the sizes.
    """

    def per_record_term(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array
    ) -> tuple[jax.Array, Term]:
        """A flat point and ``term(point, record)``: the release of a record is the gradient at that point."""
        ...


def uses_ghost_clipping(estimator: Any, release_size: int, slots: int) -> bool:
    """Whether to clip without forming gradients of single records; the same mechanism either way."""
    if not isinstance(estimator, TermEstimator):
        return False
    asked = getattr(estimator, "ghost_clipping", None)
    return release_size * slots > _LARGE if asked is None else bool(asked)
