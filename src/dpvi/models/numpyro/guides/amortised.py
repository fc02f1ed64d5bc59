"""A guide written from the model: what a record says of its own latents is computed from that record.

Latents that all records share have independent normals on the unconstrained scale, as in NumPyro's ``AutoNormal``. A
latent l of record x has, given the shared latents g, a prior with mean μ(g) and variance τ²(g) on that scale, and

    q(l | g, x) = Normal(mean, 1/P),    P = 1/τ² + π(x),    mean = (μ/τ² + π(x) h(x)) / P,

so the record is taken as one normal observation h(x) of l with precision π(x), both learned as functions of the record:
affine ones, or small networks. For a normal l observed with normal noise this family holds the exact posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import digamma, polygamma
from numpyro.distributions import biject_to, constraints
from numpyro.primitives import Messenger

from dpvi.models.base import ModelError
from dpvi.models.failures import failure_findings
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.discovery import BATCH_SIZES, any_value, batched, record_plate_of
from dpvi.models.numpyro.implied import RecordPlate, lacking, spans_of, with_plate
from dpvi.models.numpyro.rows import from_rows
from dpvi.models.sites import is_real

_LINEAR = 3.0  # up to where a number of a record enters as it is; beyond, its logarithm grows
_VAGUE = 4.0  # prior variance on the unconstrained scale of laws without a formula
_INITIAL_SCALE = 0.1
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)


class _Site(NamedTuple):
    """A latent site: its unconstrained shape with one record, and the axis of the records, None if they share it."""

    shape: tuple[int, ...]
    axis: int | None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class _Plan(NamedTuple):
    """What was found in a model."""

    sites: dict[str, _Site]
    implied: RecordPlate | None
    leaves: tuple[Any, ...]  # paths of the records among the arguments
    num_features: int


class AutoAmortised:
    """A guide for models with latents of each record that have no closed form.

    Parameters
    ----------
    model
        The NumPyro model that the fit is given, too.
    hidden
        Sizes of hidden layers of the functions of a record; by default they are affine.
    features
        ``features(*args, **kwargs)``, the model's arguments to an array with one row per record, which the functions
        read. By default all numbers of a record: as they are up to 3 in absolute value, and growing with their
        logarithm beyond, so standardise with public constants where you can.

    Examples
    --------
    >>> import dpvi, numpyro, numpyro.distributions as dist
    >>> def model(trials, hits):
    ...     centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("players", trials.shape[0]):
    ...         skill = numpyro.sample("skill", dist.Normal(centre, 1.0))
    ...         numpyro.sample("hits", dist.Binomial(trials, logits=skill), obs=hits)
    >>> ready = dpvi.check(model, (np.full(9, 20), np.arange(9)), guide=AutoAmortised(model))
    >>> [site.name for site in ready.parameters.sites]  # doctest: +NORMALIZE_WHITESPACE
    ['centre_auto_loc', 'centre_auto_scale', 'skill_auto_weights', 'skill_auto_bias', 'skill_auto_precision_weights',
     'skill_auto_precision_bias']
    """

    def __init__(self, model: Callable, hidden: Sequence[int] = (), features: Callable | None = None):
        if not callable(model):
            raise TypeError(f"AutoAmortised needs a NumPyro model, a function, got {type(model).__name__}.")
        self.model, self.hidden, self.features = model, tuple(hidden), features
        self._plan: _Plan | None = None
        self._looking: list[tuple] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._looking is not None:
            self._looking.append((args, kwargs))
            self.model(*args, **kwargs)
            return
        if self._plan is None:
            raise ModelError("AutoAmortised does not know its records yet: pass it to dpvi.fit or dpvi.check first.")
        plan = self._plan
        features = self._rows(plan, args, kwargs)
        outputs = {name: self._declared(name, site, features) for name, site in plan.sites.items()}
        model = self.model if plan.implied is None else with_plate(self.model, plan.implied)
        with _Replaced(plan, outputs):
            model(*args, **kwargs)

    def set_up(self, bound: Callable, structure: Any) -> None:
        """Look at the model on shapes; ``bound`` is this guide as a function of the records alone."""
        self._looking, spans, traces = [], [], []
        try:
            for size in BATCH_SIZES:
                traces.append(_looked_at(bound, structure, size))
                spans.append(spans_of(traces[-1]))
            implied = lacking(spans[0], spans[1], BATCH_SIZES)
            if implied is not None:
                traces = [_looked_at(with_plate(bound, implied), structure, size) for size in BATCH_SIZES]
            calls = (self._looking[0], self._looking[1])
        finally:
            self._looking = None
        plate = record_plate_of(*traces)
        leaves = _record_leaves(*calls)
        num_features = sum(math.prod(shape[1:]) for _, shape in leaves)
        if self.features is not None:
            args, kwargs = calls[0]
            num_features = jax.eval_shape(lambda a, k: _two_axes(self.features(*a, **k)), args, kwargs).shape[1]  # pyright: ignore[reportOptionalCall]
        sites = {name: _site(message, plate) for name, message in traces[0].items() if _is_latent(message)}
        self._plan = _Plan(sites, implied, tuple(path for path, _ in leaves), num_features)

    def _rows(self, plan: _Plan, args: tuple, kwargs: Mapping[str, Any]) -> jax.Array:
        """(records, features)"""
        if self.features is not None:
            return _two_axes(self.features(*args, **kwargs))
        found = dict(_leaves((args, dict(kwargs))))
        missing = [path for path in plan.leaves if path not in found]
        if missing:
            raise ValueError(
                "AutoAmortised computes the latents of a record from all that it was fitted with, but some arguments "
                "are missing; latents of new records without a response are draws from their prior."
            )
        return _squashed(jnp.concatenate([_two_axes(found[path]) for path in plan.leaves], axis=1))

    def _declared(self, name: str, site: _Site, features: jax.Array) -> tuple[Any, Any]:
        """Location and scale of a shared latent; h(x) and π(x) of a record's own."""
        if site.axis is None:
            location = numpyro.param(f"{name}_auto_loc", lambda key: 0.1 * jax.random.normal(key, site.shape))
            scale = numpyro.param(
                f"{name}_auto_scale", jnp.full(site.shape, _INITIAL_SCALE), constraint=constraints.positive
            )
            return location, scale
        outputs = site.size
        for layer, width in enumerate(self.hidden):
            features = jnp.tanh(_affine(f"{name}_auto_hidden{layer}", features, width, random=True))
        pull = _affine(f"{name}_auto", features, outputs)
        log_precision = _affine(f"{name}_auto_precision", jnp.tanh(features), outputs)
        return pull, jnp.exp(jnp.clip(log_precision, -12.0, 12.0))


class _Replaced(Messenger):
    """Gives every latent site the guide's law in place of its prior, and hides what the model observes."""

    def __init__(self, plan: _Plan, outputs: Mapping[str, tuple[jax.Array, jax.Array]]):
        self._plan, self._outputs = plan, outputs
        super().__init__(None)

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "deterministic" or (msg["type"] == "sample" and msg["is_observed"]):
            msg["stop"] = True
        elif msg["type"] == "sample" and msg["name"] in self._plan.sites:
            msg["fn"] = _law(msg["fn"], self._plan.sites[msg["name"]], *self._outputs[msg["name"]])


def _law(prior: Any, site: _Site, first: jax.Array, second: jax.Array) -> Any:
    """The guide's law of a site whose prior, given what was drawn before, is ``prior``."""
    bijection, real = biject_to(prior.support), is_real(prior.support)
    events = bijection.domain.event_dim
    inner: Any = _innermost(prior)
    if site.axis is None:
        law = dist.Normal(first, second).to_event(events)
        return law if real else dist.TransformedDistribution(law, bijection)
    shape = bijection.inverse_shape(prior.shape())
    pull, precision = (from_rows(each, shape, site.axis) for each in (first, second))
    if isinstance(inner, dist.MultivariateNormal):
        own = jnp.broadcast_to(jnp.asarray(inner.precision_matrix), (*shape, shape[-1]))
        mean = jnp.broadcast_to(inner.loc, shape)
        total = own + precision[..., None] * jnp.eye(shape[-1], dtype=precision.dtype)
        towards = jnp.matmul(own, mean[..., None])[..., 0] + precision * pull
        return dist.MultivariateNormal(jnp.linalg.solve(total, towards[..., None])[..., 0], precision_matrix=total)
    mean, variance = (jnp.broadcast_to(each, shape) for each in _moments(inner))
    total = 1 / variance + precision
    law = dist.Normal((mean / variance + precision * pull) / total, 1 / jnp.sqrt(total)).to_event(events)
    return law if real else dist.TransformedDistribution(law, bijection)


def _moments(prior: Any) -> tuple[Any, Any]:
    """Mean and variance of a prior on the unconstrained scale."""
    law: Any = prior  # NumPyro gives parameters of laws the type of a lazy property
    if isinstance(prior, (dist.Normal, dist.LogNormal)):
        return law.loc, jnp.square(law.scale)
    if isinstance(prior, dist.Beta):
        a, b = law.concentration1, law.concentration0
        return digamma(a) - digamma(b), polygamma(1, a) + polygamma(1, b)
    if isinstance(prior, dist.Gamma):
        return digamma(law.concentration) - jnp.log(law.rate), polygamma(1, law.concentration)
    if isinstance(prior, dist.Exponential):
        return -np.euler_gamma - jnp.log(law.rate), jnp.asarray(np.pi**2 / 6)
    if isinstance(prior, dist.HalfNormal):
        return jnp.log(law.scale) - 0.5 * (np.euler_gamma + np.log(2.0)), jnp.asarray(np.pi**2 / 8)
    return jnp.zeros(()), jnp.asarray(_VAGUE)


def _affine(name: str, features: jax.Array, width: int, random: bool = False) -> jax.Array:
    shape = (features.shape[1], width)
    start: Any = jnp.zeros(shape)
    if random:
        start = lambda key: jax.random.normal(key, shape) / np.sqrt(shape[0])  # noqa: E731
    weights: Any = numpyro.param(f"{name}_weights", start)
    bias: Any = numpyro.param(f"{name}_bias", jnp.zeros(width))
    return features @ weights + bias


def _squashed(values: jax.Array) -> jax.Array:
    finite = jnp.where(jnp.isfinite(values), values, 0.0)
    size = jnp.abs(finite)
    beyond = _LINEAR * (1 + jnp.log(jnp.maximum(size, _LINEAR) / _LINEAR))
    return jnp.where(size <= _LINEAR, finite, jnp.sign(finite) * beyond)


def amortised(guide: Any) -> AutoAmortised | None:
    """The :class:`AutoAmortised` behind ``functools.partial`` and wrappers, None where there is none."""
    while guide is not None and not isinstance(guide, AutoAmortised):
        guide = getattr(guide, "func", None) or getattr(guide, "__wrapped__", None)
    return guide


def _looked_at(function: Callable, structure: Any, size: int) -> dict[str, dict]:
    kept: dict[str, dict] = {}

    def run(key: jax.Array, noise: jax.Array, batch: Any) -> None:
        def fill(message: dict) -> Any:
            if message["type"] == "plate":
                return execution.whole_batch(message, size)
            return any_value(message, noise)

        kept.update(execution.execute(function, batch, fill, key=key))

    try:
        jax.eval_shape(run, *jax.eval_shape(lambda: (jax.random.key(0), jnp.zeros(()))), batched(structure, size))
    except Exception as error:
        raise ModelError(failure_findings(error, [], structure)) from error
    return kept


def _is_latent(message: dict) -> bool:
    return message["type"] == "sample" and not message["is_observed"]


def _site(message: dict, plate: str) -> _Site:
    name, support = message["name"], message["fn"].support
    if support is None or support.is_discrete:
        raise ModelError(
            f"AutoAmortised writes guides for continuous latents, and {name!r} is discrete: sum over it in the model, "
            "for example with numpyro's MixtureSameFamily."
        )
    if "_scan_current_index" in message["infer"]:
        raise ModelError(
            f"AutoAmortised writes no guide for {name!r} in the body of a loop: draw it before the loop, or pass a "
            "guide of your own."
        )
    bijection = biject_to(support)
    shape = list(bijection.inverse_shape(message["fn"].shape()))
    frame = execution.membership(message, plate)
    if frame is None:
        return _Site(tuple(shape), None)
    axis = frame.dim - bijection.domain.event_dim
    shape[axis] = 1
    return _Site(tuple(shape), axis)


def _leaves(arguments: Any) -> list[tuple[str, Any]]:
    found, _ = jax.tree.flatten_with_path(arguments)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in found if jnp.ndim(leaf) > 0]


def _record_leaves(small: tuple, large: tuple) -> list[tuple[str, tuple[int, ...]]]:
    """(path, shape) of arguments that have one row per record."""
    others = {path: jnp.shape(leaf) for path, leaf in _leaves(large)}
    sizes = [(path, jnp.shape(leaf)) for path, leaf in _leaves(small)]
    return [(path, shape) for path, shape in sizes if (shape[0], others[path][0]) == BATCH_SIZES]


def _two_axes(values: Any) -> jax.Array:
    rows = jnp.asarray(values, jnp.result_type(float))
    return jnp.reshape(rows, (rows.shape[0], -1))


def _innermost(law: Any) -> Any:
    while isinstance(law, _WRAPPERS):
        law = law.base_dist
    return law
