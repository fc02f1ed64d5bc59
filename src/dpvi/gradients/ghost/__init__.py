"""Clipping without gradients of single records: norms from activations and back-propagated errors."""

from dpvi.gradients.ghost.choice import TermEstimator, uses_ghost_clipping
from dpvi.gradients.ghost.clipped_sum import clipped_gradient_sum
from dpvi.gradients.ghost.microbatch import in_microbatches

__all__ = [
    "TermEstimator",
    "clipped_gradient_sum",
    "in_microbatches",
    "uses_ghost_clipping",
]
