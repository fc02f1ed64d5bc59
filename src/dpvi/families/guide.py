"""A guide as a variational family: ξ holds the parameters of guide and model, η seeds a draw of the global latents.

The guide's own program decides what z = h(ξ, η) is; nothing here knows NumPyro.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import jax


class GuideProgram(Protocol):
    """A guide and its model as functions of flat vectors; see :class:`dpvi.models.numpyro.guides.GuidedModel`."""

    @property
    def num_parameters(self) -> int: ...

    @property
    def num_base(self) -> int: ...

    def draw(self, xi: jax.Array, eta: jax.Array) -> jax.Array: ...


@dataclass(frozen=True)
class GuideFamily:
    """The distributions of z that a guide can express.

    Unlike the Gaussian families it has no closed entropy, covariance or density: the ELBO is estimated from draws, and
    methods that need more refuse it.

    Parameters
    ----------
    parameters
        Names and shapes of the ``param`` sites, as they are stored with a result.
    program
        The guide; None for a result that was loaded without it.
    """

    parameters: tuple[Any, ...]
    program: GuideProgram | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple(self.parameters))

    def num_parameters(self, dimension: int) -> int:
        """p; a guide knows it without d."""
        return self.bound.num_parameters

    def num_base(self, dimension: int) -> int:
        """The length of η, whatever d: it is a seed."""
        return self.bound.num_base

    def initial(self, location: jax.Array) -> jax.Array:
        """ξ itself: a guide brings its own start."""
        return location

    def transform(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        """z = h(ξ, η), the guide's draw of the global latents."""
        return self.bound.draw(xi, eta)

    @property
    def bound(self) -> GuideProgram:
        """The guide, or a sentence that says how to get it back."""
        if self.program is None:
            raise ValueError(
                "This result was fitted with a guide, which is a program and not in the file; load it with "
                "Result.load(path, model=model, guide=guide)."
            )
        return self.program
