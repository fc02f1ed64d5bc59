"""What all models have in common that are NumPyro functions with a plate over the records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dpvi.models.numpyro.discovery import batched
from dpvi.models.sites import Site, dimension_of


class PlatedModel:
    """A NumPyro function, the structure of one record and where its sites lie.

    Attributes
    ----------
    function
        The model. A tuple of data becomes positional arguments, a dict keyword arguments, anything else one argument.
    structure
        The structure of one record.
    layout
        What was found in the function: ``sites`` and ``record_plate`` among it.
    """

    function: Callable
    structure: Any
    layout: Any

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the functions, and compiles again."""
        guide = getattr(self, "guide", None)
        functions = (self.function,) if guide is None else (self.function, guide)
        return type(self), (*functions, self.structure)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlatedModel:
        return self  # nothing in it changes

    @property
    def sites(self) -> tuple[Site, ...]:
        """Latent sites that all records share, in the order of z."""
        return self.layout.sites

    @property
    def record_plate(self) -> str:
        """Name of the model's plate that spans the records."""
        return self.layout.record_plate

    @property
    def dimension(self) -> int:
        """d, the number of unconstrained parameters that all records share."""
        return dimension_of(self.sites)

    def placeholder(self, num_records: int = 1) -> Any:
        """Records of zeros, for what reads no record."""
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), batched(self.structure, num_records))
