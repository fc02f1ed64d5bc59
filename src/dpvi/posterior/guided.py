"""The posterior of a run with a guide: averaged parameters, and draws through the guide.

A guide's distribution is whatever its program draws, so no method here can widen it by the privacy noise: intervals are
those of the guide at the averaged parameters, and do not include that noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.guarantee import Guarantee
from dpvi.declared.validation import IntervalWarning
from dpvi.families.guide import GuideFamily
from dpvi.models.numpyro.deterministic import deterministic_sites
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.posterior.posterior import Posterior, Summary, check_options, given_or_fresh_key, predictive_draws
from dpvi.posterior.settled import NETWORK, note_if_unsettled
from dpvi.posterior.tail import converged_tail
from dpvi.release.trace import Trace

_NUM_DRAWS = 32
_MAX_JACOBIAN = 2**22  # entries


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

    @cached_property
    def _derived(self) -> Callable[[jax.Array], dict[str, jax.Array]] | None:
        return deterministic_sites(self._model, cast(GuideDistribution, self.distribution).xi)

    def __repr__(self) -> str:
        what = "averaged parameters" if self.method == "average" else "parameters of the last step"
        text = (
            f"GuidePosterior(method={self.method!r}, {what} through the guide, {self._model.num_parameters} parameters,"
            f" dimension={self._model.dimension}; intervals do not include the privacy noise)"
        )
        return "\n".join(filter(None, (text, self.guarantee.warning, *self.notes)))

    def summary(
        self,
        probability: float = 0.95,
        num_samples: int = 10_000,
        key: jax.Array | None = None,
        *,
        names: Mapping[str, Any] | None = None,
    ) -> Summary:
        """As for any posterior, over the latents that all records share."""
        if self._model.dimension == 0:
            raise ValueError(
                "All latents of this model belong to a record, so there is nothing to summarise without one; use "
                "posterior.params with NumPyro's Predictive."
            )
        return super().summary(probability, num_samples, key, names=names)

    def predict(
        self, model: Any, *args: Any, num_samples: int = 1000, key: jax.Array | None = None, **kwargs: Any
    ) -> dict[str, jax.Array]:
        """Draws from the posterior predictive of ``model`` at new arguments, latents drawn by the guide there."""
        settings = {"guide": self._model.guide, "params": self.params, "num_samples": num_samples}
        return predictive_draws(model, given_or_fresh_key(key), args, kwargs, **settings)


def guided_posterior(
    trace: Trace,
    family: GuideFamily,
    guarantee: Guarantee,
    method: str,
    options: dict[str, Any],
    *,
    sampling_rate: float,
) -> GuidePosterior:
    """The guide at the averaged parameters, or at those of the last step; warns where the run had not settled.

    Parameters
    ----------
    trace, family, guarantee, sampling_rate
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
    found = GuidePosterior(GuideDistribution(family, point), program, method, guarantee)
    if len(point) < NETWORK and np.all(np.isfinite(point)):
        z = np.asarray(found.sample_unconstrained(_NUM_DRAWS, jax.random.key(0)), np.float64)
        inverse = _inverse_fisher(family, point, z)
        unsettled = note_if_unsettled(trace, inverse, np.sqrt(inverse), sampling_rate, "Guided")
        found.notes = tuple(filter(None, (unsettled, _note_if_pointlike(program, z))))
    return found


def _note_if_pointlike(program: GuidedModel, z: np.ndarray) -> str:
    """A warning where every draw of a site is the same, and the same sentence to keep."""
    wide = _has_width(z)
    points = [site.name for site in program.sites if not wide[site.offset : site.offset + site.size].all()]
    if not points:
        return ""
    sentence = (
        f"The guide draws the same value of {', '.join(map(repr, points))} every time, as AutoDelta does, so that an "
        "interval has no width and says nothing of what is unknown. Use a guide with a width, such as AutoNormal, or "
        "leave the guide out."
    )
    warnings.warn(sentence, IntervalWarning, stacklevel=4)
    return sentence


def _has_width(z: np.ndarray) -> np.ndarray:
    """Which columns vary by more than rounding."""
    return z.std(axis=0) > 1e-5 * np.abs(z).max(axis=0, initial=1e-30)


def _inverse_fisher(family: GuideFamily, xi: jax.Array, z: np.ndarray) -> np.ndarray:
    """1 / E‖∂z/∂ξ_j / sd(z)‖²: 1/F for the mean of a Gaussian, 2/F for the logarithm of its width.

    NaN where no draw moves with ξ_j, or where the guide is too large for its derivatives.
    """
    unknown = np.full(len(xi), np.nan)
    if z.shape[1] == 0 or z.shape[1] * len(xi) > _MAX_JACOBIAN:
        return unknown
    precision = np.divide(1, z.var(axis=0), out=np.zeros(z.shape[1]), where=_has_width(z))

    def squares(eta: jax.Array) -> jax.Array:
        return jnp.asarray(precision, xi.dtype) @ jax.jacrev(family.transform)(xi, eta) ** 2

    eta = jax.random.normal(jax.random.key(0), (_NUM_DRAWS, family.bound.num_base), xi.dtype)
    metric = np.asarray(jax.jit(lambda every: jnp.mean(jax.lax.map(squares, every), axis=0))(eta), np.float64)
    return np.divide(1, metric, out=unknown, where=metric > 0)


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
    if trace.final.size < NETWORK:
        return converged_tail(trace, slope_threshold, relative=True).mean
    # What a network learns is a drift of many weights, each of them small beside its own noise: tails that look flat,
    # taken one by one, reach back to where it knew less. So all take the last blocks with an eighth of the steps.
    blocks = trace.blocks
    until_the_end = blocks.count[::-1].cumsum()[::-1]
    start = int(np.flatnonzero(until_the_end >= until_the_end[0] / 8)[-1])
    return blocks.phi[start:].sum(axis=0) / until_the_end[start]


METHODS: Mapping[str, Callable[..., np.ndarray]] = {"average": averaged_parameters, "last": last_parameters}
