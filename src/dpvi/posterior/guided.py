"""The posterior of a run with a guide: averaged parameters, and draws through the guide.

A guide's distribution is whatever its program draws, so no method here can widen it by the privacy noise: intervals are
those of the guide at the averaged parameters, and do not include that noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.core.guarantee import Guarantee
from dpvi.core.trace import Trace
from dpvi.families.guide import GuideFamily
from dpvi.models.guides import GuidedModel
from dpvi.posterior.posterior import Posterior, Summary, check_options, given_or_fresh_key, predictive_draws
from dpvi.posterior.tail import converged_tail

_NETWORK = 2**16  # parameters


class GuideDistribution:
    """The guide's distribution of unconstrained global latents z at fixed parameters ξ."""

    def __init__(self, family: GuideFamily, xi: jax.Array):
        self._family = family
        self.xi = xi

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array:
        """Draws of z, (num_samples, d)."""
        eta = jax.random.normal(key, (num_samples, self._family.bound.num_base), self.xi.dtype)
        return jax.vmap(self._family.transform, (None, 0))(self.xi, eta)

    def log_prob(self, z: jax.Array) -> jax.Array:
        raise ValueError(
            "The density of a guide at a given point is not known: it is a program that draws, with variables of its "
            "own that would have to be integrated out. Fit with a family for posterior.log_prob."
        )


class GuidePosterior(Posterior):
    """A guide at parameters computed from released quantities only.

    The intervals are those of the guide at these parameters; they do not include the privacy noise.

    Attributes
    ----------
    params
        ``{param site: value}`` of guide and model, as NumPyro's ``Predictive(model, guide=guide, params=params,
        num_samples=n)`` and ``guide.sample_posterior`` take them.
    """

    def __init__(self, distribution: GuideDistribution, model: GuidedModel, method: str, guarantee: Guarantee):
        super().__init__(distribution, model, method, guarantee)
        self._model = model
        self.params: dict[str, Any] = model.parameters.constrain(distribution.xi)

    def __repr__(self) -> str:
        what = "averaged parameters" if self.method == "average" else "parameters of the last step"
        text = (
            f"GuidePosterior(method={self.method!r}, {what} through the guide, {self._model.num_parameters} parameters,"
            f" dimension={self._model.dimension}; intervals do not include the privacy noise)"
        )
        return "\n".join(filter(None, (text, self.guarantee.warning)))

    def summary(self, probability: float = 0.95, num_samples: int = 10_000, key: jax.Array | None = None) -> Summary:
        """As for any posterior, over the latents that all records share."""
        if self._model.dimension == 0:
            raise ValueError(
                "All latents of this model belong to a record, so there is nothing to summarise without one; use "
                "posterior.params with NumPyro's Predictive."
            )
        return super().summary(probability, num_samples, key)

    def predict(
        self, model: Any, *args: Any, num_samples: int = 1000, key: jax.Array | None = None, **kwargs: Any
    ) -> dict[str, jax.Array]:
        """Draws from the posterior predictive of ``model`` at new arguments, latents drawn by the guide there."""
        settings = {"guide": self._model.guide, "params": self.params, "num_samples": num_samples}
        return predictive_draws(model, given_or_fresh_key(key), args, kwargs, **settings)


def guided_posterior(
    trace: Trace, family: GuideFamily, guarantee: Guarantee, method: str, options: dict[str, Any]
) -> GuidePosterior:
    """The guide at the averaged parameters, or at those of the last step.

    Parameters
    ----------
    trace, family, guarantee
        Of the run.
    method
        ``"average"`` or ``"last"``.
    options
        Of the method: :func:`averaged_parameters` has one.
    """
    if method not in METHODS:
        raise ValueError(
            f"method={method!r} needs a Gaussian family, and this run had a guide, whose intervals cannot be widened "
            "by the privacy noise; use method='average', the default, or 'last', or fit without a guide."
        )
    program = cast(GuidedModel, family.bound)
    check_options(method, METHODS[method], trace, **options)
    point = jnp.asarray(METHODS[method](trace, **options).astype(trace.final.dtype))
    return GuidePosterior(GuideDistribution(family, point), program, method, guarantee)


def last_parameters(trace: Trace) -> np.ndarray:
    """The last iterate as it is."""
    return np.asarray(trace.final)


def averaged_parameters(trace: Trace, slope_threshold: float = 1.0) -> np.ndarray:
    """Each entry of ξ averaged over its converged tail; of a network (65,536 or more), all over the run's same end.

    Parameters
    ----------
    trace
        Of the run.
    slope_threshold
        Largest drift over a tail, in standard deviations of the parameter over that tail: parameters of guides have
        no unit of their own. Those that drift more are averaged over the last twentieth of the run.
    """
    if trace.final.size < _NETWORK:
        return converged_tail(trace, slope_threshold, relative=True).mean
    # What a network learns is a drift of many weights, each of them small beside its own noise: tails that look flat,
    # taken one by one, reach back to where it knew less. So all take the last blocks with an eighth of the steps.
    blocks = trace.blocks
    until_the_end = blocks.count[::-1].cumsum()[::-1]
    start = int(np.flatnonzero(until_the_end >= until_the_end[0] / 8)[-1])
    return blocks.phi[start:].sum(axis=0) / until_the_end[start]


METHODS: Mapping[str, Callable[..., np.ndarray]] = {"average": averaged_parameters, "last": last_parameters}
