"""Gradient estimators: one file each, all (release, reconstruct) pairs."""

from dpvi.gradients.aligned import Aligned
from dpvi.gradients.aligned_natural import AlignedNatural
from dpvi.gradients.base import Estimator
from dpvi.gradients.guided import Guided
from dpvi.gradients.natural import Natural
from dpvi.gradients.preconditioned import Preconditioned
from dpvi.gradients.vanilla import Vanilla

__all__ = ["Aligned", "AlignedNatural", "Estimator", "Guided", "Natural", "Preconditioned", "Vanilla"]
