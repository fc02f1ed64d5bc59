"""When gradients of single records are not worth forming."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax

from dpvi.families.base import Family
from dpvi.gradients.ghost.clipped_sum import Term
from dpvi.models.base import Model

# Parameters above which the memory traffic of all records' gradients is what a step of a few hundred records waits for
_LARGE = 2**13


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


def uses_ghost_clipping(estimator: Any, release_size: int) -> bool:
    """Whether to clip without forming gradients of single records.

    Guarantees
    ----------
    It follows from what is public alone. The two ways bound norms differently, by far where rows of a record cancel, so
    were the number of records to choose between them, one record more could change what all others add.
    """
    if not isinstance(estimator, TermEstimator):
        return False
    asked = getattr(estimator, "ghost_clipping", None)
    return release_size > _LARGE if asked is None else bool(asked)
