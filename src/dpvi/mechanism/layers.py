"""Layers of a release: which coordinates are clipped together, and to what norm.

A release is cut into runs of coordinates, one after the other, and every run belongs to a layer. How layers are named
and accounted is in :mod:`dpvi.declared.clipping`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvi.declared import validation


@dataclass(frozen=True)
class Layers:
    """Layers of a release and their clip norms.

    Parameters
    ----------
    sizes
        Number of coordinates of each run, in the order of the release.
    clip_norms
        C_l, one per layer.
    owners
        The layer of each run; by default every run is a layer.

    Examples
    --------
    >>> Layers(sizes=(2, 1, 3), clip_norms=(3.0, 4.0), owners=(0, 1, 0)).labels(6)
    array([0, 0, 1, 0, 0, 0])
    """

    sizes: tuple[int, ...]
    clip_norms: tuple[float, ...]
    owners: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "clip_norms", tuple(validation.clip_norm(each) for each in self.clip_norms))
        owners = tuple(range(len(self.sizes)) if self.owners is None else self.owners)
        object.__setattr__(self, "owners", owners)
        if not owners or len(owners) != len(self.sizes) or set(owners) != set(range(len(self.clip_norms))):
            raise ValueError(
                f"Layers need one clip norm each and every run a layer, got {len(self.sizes)} runs in layers "
                f"{sorted(set(owners))} and {len(self.clip_norms)} clip norms."
            )
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in self.sizes):
            raise ValueError(f"sizes must be whole numbers of at least 1, got {self.sizes}.")

    def labels(self, size: int) -> np.ndarray:
        """Layer of each of the ``size`` coordinates of a release."""
        if sum(self.sizes) != size:
            raise ValueError(f"Layers cover {sum(self.sizes)} coordinates, but there are {size}.")
        return np.repeat(np.asarray(self.owners), self.sizes)
