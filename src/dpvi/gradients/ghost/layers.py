"""Per-layer clipping: every layer's part of a gradient is clipped to a norm of its own.

A record's clipped gradient then has norm at most √(Σ_l C_l²), which is the sensitivity of the sum and the clip norm a
plan has to state. Nothing else is released, so it costs no privacy beyond that; what it changes is that a layer with
large gradients no longer shrinks the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dpvi.core import validation


@dataclass(frozen=True)
class Layers:
    """Layers of a parameter vector and their clip norms.

    Parameters
    ----------
    sizes
        Number of parameters of each layer, in the order of the flat vector.
    clip_norms
        C_l, one per layer.

    Examples
    --------
    >>> layers = Layers(sizes=(12, 4), clip_norms=(3.0, 4.0))
    >>> layers.sensitivity
    5.0
    """

    sizes: tuple[int, ...]
    clip_norms: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "clip_norms", tuple(validation.clip_norm(each) for each in self.clip_norms))
        if not self.sizes or len(self.sizes) != len(self.clip_norms):
            raise ValueError(
                f"Layers need one clip norm each, got {len(self.sizes)} sizes and {len(self.clip_norms)} clip norms."
            )
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in self.sizes):
            raise ValueError(f"sizes must be whole numbers of at least 1, got {self.sizes}.")

    @classmethod
    def of_tree(cls, params: Any, clip_norm: float) -> Layers:
        """One layer per leaf of ``params``, which share ``clip_norm`` equally: C_l = C/√L."""
        sizes = tuple(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
        share = validation.clip_norm(clip_norm) / math.sqrt(len(sizes))
        layers = cls(sizes, (share,) * len(sizes))
        while layers.sensitivity > clip_norm:  # the root may have rounded up
            share = math.nextafter(share, 0.0)
            layers = cls(sizes, (share,) * len(sizes))
        return layers

    @property
    def sensitivity(self) -> float:
        """√(Σ_l C_l²), the clip norm that a plan with these layers states."""
        return math.hypot(*self.clip_norms)

    def labels(self, num_parameters: int) -> np.ndarray:
        """Layer of each parameter."""
        if sum(self.sizes) != num_parameters:
            raise ValueError(f"Layers cover {sum(self.sizes)} parameters, but there are {num_parameters}.")
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def check_clip_norm(layers: Layers, clip_norm: float) -> None:
    """Refuse layers whose clip norms are together larger than what the plan states."""
    if layers.sensitivity > clip_norm:
        raise ValueError(
            f"The layers' clip norms combine to {layers.sensitivity:.6g}, more than the plan's clip norm "
            f"{clip_norm:.6g}: noise for that would be too little. Scale the layers down or plan a larger clip norm."
        )
