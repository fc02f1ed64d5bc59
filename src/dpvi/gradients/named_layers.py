"""From patterns of a plan to layers of a release: which coordinates belong to which clip norm."""

from __future__ import annotations

from typing import Any

from dpvi.declared.clipping import Clipping, PerLayer
from dpvi.families.base import Family
from dpvi.gradients.base import Estimator, NamedRelease
from dpvi.mechanism.layers import Layers


def release_layers(clipping: Clipping | None, model: Any, family: Family, estimator: Estimator) -> Layers | None:
    """The layers that ``clipping`` cuts a release into; None where it is clipped to one norm.

    Raises
    ------
    ValueError
        Where the estimator or the model has no names for the parts of a release, or names and patterns do not fit.
    """
    if not isinstance(clipping, PerLayer):
        return None
    size = estimator.release_size(family, model.dimension)
    if not isinstance(estimator, NamedRelease):
        raise ValueError(
            f"PerLayer clips the parts of a release by the parameters they belong to, and {type(estimator).__name__}() "
            "releases gradients of variational parameters, which belong to none alone. Use Aligned(), a guide, or "
            "Preconditioned(), which balances scales against locations, with one clip norm."
        )
    parts = estimator.release_names(model)
    if sum(count for _, count in parts) != size:
        raise ValueError(
            "PerLayer needs a model that names its parameters (attribute sites), and this one does not. Plan with one "
            "clip_norm."
        )
    parts = [part for part in parts if part[1]]  # an empty array has nothing to clip
    owners = clipping.layers_of([name for name, _ in parts])
    return Layers(tuple(count for _, count in parts), clipping.norms, owners)
