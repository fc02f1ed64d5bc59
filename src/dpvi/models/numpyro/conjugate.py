"""Continuous latents of a record that are integrated out in closed form.

For latents l of record x_i whose posterior p(l | x_i, z) has a formula,

    log p(x_i | z) = log p(x_i, l | z) − log p(l | x_i, z)

at any l (Chib 1995); here at the posterior's mean. These have one:

===========================  =======================================================  ===========================
latents                      what is observed of them                                 the record's term is
===========================  =======================================================  ===========================
Normal, MultivariateNormal   Normal, MultivariateNormal, with means affine in them    a normal with summed variance
Beta, Uniform(0, 1)          Bernoulli, Binomial, Geometric with this probability     a Beta-Binomial and its like
Gamma, Exponential           Poisson, Exponential with a multiple of it as rate       a Gamma-Poisson and its like
===========================  =======================================================  ===========================

Which latents reach which sites, and that means and rates are affine in them, is read off the operations of the model.
That the posterior is right is tried as well: the check compares the term at two values of l.

References
----------
Chib (1995), Marginal likelihood from the Gibbs output, JASA 90.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer

from dpvi.models.affine import affine
from dpvi.models.dependence import depends
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.rows import from_rows, rows_of
from dpvi.models.numpyro.solve import factored, quadratic

_NORMAL, _BETA, _GAMMA = "normal", "beta", "gamma"
_REFERENCE = {_NORMAL: 0.0, _BETA: 0.5, _GAMMA: 1.0}
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
_OBSERVED: dict[str, tuple[type, ...]] = {
    _NORMAL: (dist.Normal, dist.MultivariateNormal),
    _BETA: (dist.BernoulliProbs, dist.BinomialProbs, dist.GeometricProbs),
    _GAMMA: (dist.Poisson, dist.Exponential),
}
_SAYS = {
    _NORMAL: "a normal law with summed variance",
    _BETA: "a Beta-Binomial law or one like it",
    _GAMMA: "a Gamma-Poisson law or one like it",
}

Run = Callable[[Mapping[str, Any]], dict[str, dict]]


class Latent(NamedTuple):
    """A latent of a record that is integrated out.

    Attributes
    ----------
    kind
        Of its law.
    shape
        Of its value, events included, with one record.
    axis
        The (negative) axis of the records among these.
    sites
        Sites whose laws it enters; of normal latents, all that are normal given any of them.
    """

    kind: str
    shape: tuple[int, ...]
    axis: int
    sites: tuple[str, ...]

    @property
    def reference(self) -> np.ndarray:
        """A value inside the support."""
        return np.asarray(_REFERENCE[self.kind])


def described(latents: Mapping[str, Latent]) -> str:
    """What is integrated, in a sentence."""
    kinds = {latent.kind: [n for n, each in latents.items() if each.kind == latent.kind] for latent in latents.values()}
    return "; ".join(f"latents {', '.join(map(repr, names))} by {_SAYS[kind]}" for kind, names in kinds.items())


def integrable(
    run: Callable, given: Mapping[str, Any], others: tuple, plate: str, left_out: Container[str]
) -> dict[str, Latent]:
    """How the continuous latents of a record are integrated out together; empty unless all can be.

    Parameters
    ----------
    run
        The model on some records, ``run(given, *others)``; nothing is computed.
    given
        ``{latent: something with the shape and dtype of its value}``.
    others
        The same for what else it takes.
    plate
        The plate over the records.
    left_out
        Sites that enter no term.
    """
    seen: dict[str, Any] = {}
    names = sorted(given)  # as a dict is flattened

    def look(values: Mapping[str, Any], *others: Any) -> list[Any]:
        trace = run(values, *others)
        sites = {n: each for n, each in trace.items() if each["type"] == "sample" and n not in left_out}
        seen.update(trace=sites, counts=[])
        outputs = []
        for message in sites.values():
            moving, fixed = _parts(message, message["name"] in names)
            seen["counts"].append((len(moving), len(fixed)))
            outputs += moving + fixed
        return outputs

    flow = jax.make_jaxpr(look)(given, *others)
    trace = seen["trace"]
    kinds = {name: _kind(trace[name]) for name in names}
    if None in kinds.values() or not all(_is_plain(message, trace, plate) for message in trace.values()):
        return {}
    reached: dict[str, set[str]] = {}
    rest = [False] * (len(flow.in_avals) - len(names))
    for latent in names:
        flags = iter(depends(flow, [name == latent for name in names] + rest))
        for site, (moving, fixed) in zip(trace, seen["counts"], strict=True):
            here = [next(flags) for _ in range(moving + fixed)]
            if any(here[moving:]):
                return {}
            if any(here) and site != latent:
                reached.setdefault(site, set()).add(latent)
    if not _fit(flow, seen["counts"], trace, kinds, reached, plate):
        return {}
    return _latents(trace, kinds, reached, plate)


def _fit(flow: Any, counts: Any, trace: Any, kinds: Any, reached: Any, plate: str) -> bool:
    """Whether every site that latents reach has a law that fits theirs, with an affine parameter."""
    flat = iter(affine(flow, [index < len(kinds) for index in range(len(flow.in_avals))]))
    are_affine = {
        site: all([next(flat) for _ in range(moving + fixed)][:moving])
        for site, (moving, fixed) in zip(trace, counts, strict=True)
    }
    for site, latents in reached.items():
        message, of = trace[site], {kinds[latent] for latent in latents}
        kind = of.pop()
        alone = kind == _NORMAL or (len(latents) == 1 and message["is_observed"])
        law = isinstance(_innermost(message["fn"]), _OBSERVED[kind])
        inside = execution.membership(message, plate) is not None
        if of or not (alone and law and inside and are_affine[site] and kinds.get(site, kind) == kind):
            return False
    return True


def _latents(trace: Any, kinds: Any, reached: Any, plate: str) -> dict[str, Latent]:
    found, normals = {}, [name for name, kind in kinds.items() if kind == _NORMAL]
    together = tuple(n for n in trace if n in normals or any(each in normals for each in reached.get(n, ())))
    for name, kind in kinds.items():
        message = trace[name]
        axis = execution.membership(message, plate).dim - message["fn"].event_dim
        shape = list(jnp.shape(message["value"]))
        shape[axis] = 1
        sites = together if kind == _NORMAL else tuple(site for site, latents in reached.items() if name in latents)
        found[name] = Latent(kind, tuple(shape), axis, sites)
    return found


def posterior_at(run: Run, latents: Mapping[str, Latent], num_records: int, plate: str, offset: Any = 0.0) -> Any:
    """Values of the latents and the log-density of their posterior there, one number per record.

    Parameters
    ----------
    run
        The model on ``num_records`` records, at values for the latents.
    latents
        From :func:`integrable`.
    num_records
        How many records there are.
    plate
        The plate over them.
    offset
        How far from the mean, in about standard deviations, up for every other record and down for those between: the
        record's term is the same for all, unless the model lets latents of several records meet.
    """
    if offset:
        offset = offset * jnp.where(jnp.arange(num_records) % 2 == 0, 1.0, -1.0)
    reference = {name: _filled(each, num_records) for name, each in latents.items()}
    values: dict[str, jax.Array] = {}
    density = jnp.zeros((num_records,), jnp.result_type(float))
    normals = {name: each for name, each in latents.items() if each.kind == _NORMAL}
    with jax.numpy_dtype_promotion("standard"):
        if normals:
            others = {name: value for name, value in reference.items() if name not in normals}
            values, density = _normal(lambda at: run({**others, **at}), normals, reference, plate, offset)
        trace = run(reference) if len(normals) < len(latents) else {}
        for name, latent in latents.items():
            if latent.kind == _NORMAL:
                continue
            law = _beta(trace, name, latent) if latent.kind == _BETA else _gamma(trace, name, latent)
            beside = _along(offset, latent)
            if latent.kind == _BETA:
                spread = jnp.minimum(jnp.sqrt(law.variance), jnp.minimum(law.mean, 1 - law.mean))
                at = law.mean + 0.5 * beside * spread
                at = jnp.clip(at, jnp.finfo(at.dtype).tiny, 1 - jnp.finfo(at.dtype).eps)
            else:
                at = law.mean * jnp.exp(0.5 * beside / jnp.sqrt(law.concentration))
            values[name] = at
            density = density + jnp.sum(rows_of(law.log_prob(at), latent.axis), axis=1)
    return values, density


def _filled(latent: Latent, num_records: int) -> jax.Array:
    shape = list(latent.shape)
    shape[latent.axis] = num_records
    return jnp.full(shape, latent.reference, jnp.result_type(float))


def _along(offset: Any, latent: Latent) -> Any:
    """One number per record, beside values of a latent; or the same for all as it is."""
    shape = [1] * len(latent.shape)
    shape[latent.axis] = -1
    return jnp.reshape(offset, shape) if jnp.ndim(offset) else offset


def _normal(run: Run, latents: Mapping[str, Latent], reference: Any, plate: str, offset: Any) -> Any:
    """The mean of jointly normal latents (or a point beside it), and the log-density of their posterior there.

    With whitened residuals r(l) = r + W l of all sites, the precision is P = WᵀW and the mean −P⁻¹ Wᵀ r.
    """
    start = {name: reference[name] for name in latents}
    sites = next(iter(latents.values())).sites

    def residuals(at: Mapping[str, jax.Array]) -> jax.Array:
        trace = run(at)
        return jnp.concatenate([_whitened(trace[name], plate) for name in sites], axis=1)

    residual, along = jax.linearize(residuals, start)
    columns = [along(direction) for direction in _directions(latents, start)]
    precision = [[jnp.sum(a * b, axis=1) for b in columns[: k + 1]] for k, a in enumerate(columns)]
    pull = [-jnp.sum(column * residual, axis=1) for column in columns]
    factors = factored(precision)
    point = factors.solve(pull)
    density = 0.5 * factors.log_determinant() - 0.5 * len(columns) * math.log(2 * math.pi)
    if jnp.ndim(offset):
        beside = [offset / jnp.sqrt(row[-1]) for row in precision]
        density = density - 0.5 * quadratic(precision, beside)
        point = [mean + step for mean, step in zip(point, beside, strict=True)]
    rows = jnp.stack(point, axis=1)
    values, first = {}, 0
    for name, latent in latents.items():
        size = math.prod(latent.shape)
        values[name] = from_rows(rows[:, first : first + size], latent.shape, latent.axis)
        first += size
    return values, density


def _directions(latents: Mapping[str, Latent], start: Mapping[str, jax.Array]) -> list[dict[str, jax.Array]]:
    """One for each entry of a record's latents, in all records at once: no record's residual reads another's."""
    directions = []
    for name, latent in latents.items():
        for entry in range(math.prod(latent.shape)):
            unit = np.zeros(math.prod(latent.shape))
            unit[entry] = 1.0
            one = jnp.broadcast_to(jnp.asarray(unit.reshape(latent.shape), start[name].dtype), start[name].shape)
            directions.append({other: one if other == name else jnp.zeros_like(start[other]) for other in latents})
    return directions


def _whitened(message: dict, plate: str) -> jax.Array:
    """(records, entries): (value − mean) over the standard deviation, zero where the site is masked."""
    law: Any = _innermost(message["fn"])
    value = message["value"]
    shape = message["fn"].batch_shape + message["fn"].event_shape
    residual = jnp.broadcast_to(value - law.loc, shape)
    if isinstance(law, dist.Normal):
        residual = residual / jnp.asarray(law.scale)
    else:
        triangle = jnp.broadcast_to(law.scale_tril, (*shape, shape[-1]))
        residual = jax.scipy.linalg.solve_triangular(triangle, residual[..., None], lower=True)[..., 0]
    mask = _mask(message["fn"])
    if mask is not None:
        events = (1,) * message["fn"].event_dim
        residual = jnp.where(jnp.reshape(mask, jnp.shape(mask) + events), residual, 0.0)
    return rows_of(residual, execution.membership(message, plate).dim - message["fn"].event_dim)


def _beta(trace: Mapping[str, dict], name: str, latent: Latent) -> Any:
    prior = _innermost(trace[name]["fn"])
    ones = isinstance(prior, dist.Uniform)
    hits = 1.0 if ones else prior.concentration1
    misses = 1.0 if ones else prior.concentration0
    for site in latent.sites:
        law, value = _innermost(trace[site]["fn"]), trace[site]["value"]
        counts = (value, getattr(law, "total_count", 1) - value)
        if isinstance(law, dist.GeometricProbs):
            counts = (jnp.ones_like(value), value)
        seen, unseen = (_summed(trace[site]["fn"], each, trace[name]["value"]) for each in counts)
        hits, misses = hits + seen, misses + unseen
    shape = jnp.shape(trace[name]["value"])
    return dist.Beta(jnp.broadcast_to(hits, shape), jnp.broadcast_to(misses, shape))


def _gamma(trace: Mapping[str, dict], name: str, latent: Latent) -> Any:
    prior = _innermost(trace[name]["fn"])
    shape, rate = getattr(prior, "concentration", 1.0), prior.rate
    for site in latent.sites:
        law, value = _innermost(trace[site]["fn"]), trace[site]["value"]
        # at the reference, one, the rate is what the latent is multiplied by
        counts = (value, law.rate) if isinstance(law, dist.Poisson) else (jnp.ones_like(value), law.rate * value)
        events, exposure = (_summed(trace[site]["fn"], each, trace[name]["value"]) for each in counts)
        shape, rate = shape + events, rate + exposure
    size = jnp.shape(trace[name]["value"])
    return dist.Gamma(jnp.broadcast_to(shape, size), jnp.broadcast_to(rate, size))


def _summed(law: Any, values: Any, latent: jax.Array) -> jax.Array:
    """The sum over observations that share one latent, zero where they are masked."""
    full = jnp.broadcast_to(values, law.batch_shape + law.event_shape)
    mask = _mask(law)
    if mask is not None:
        full = jnp.where(jnp.reshape(mask, jnp.shape(mask) + (1,) * law.event_dim), full, jnp.zeros_like(full))
    shape = (1,) * (jnp.ndim(full) - jnp.ndim(latent)) + jnp.shape(latent)
    shape = shape[len(shape) - jnp.ndim(full) :] if jnp.ndim(full) < len(shape) else shape
    axes = tuple(k for k, size in enumerate(shape) if size == 1 and full.shape[k] != 1)
    return jnp.reshape(jnp.sum(full, axis=axes, keepdims=True), jnp.shape(latent))


def _kind(message: dict) -> str | None:
    law = _innermost(message["fn"])
    if isinstance(law, (dist.Normal, dist.MultivariateNormal)):
        return _NORMAL
    if isinstance(law, dist.Beta) or (isinstance(law, dist.Uniform) and _is_unit(law)):
        return _BETA
    return _GAMMA if isinstance(law, (dist.Gamma, dist.Exponential)) else None


def _is_unit(law: Any) -> bool:
    bounds = (law.low, law.high)
    if any(isinstance(bound, Tracer) for bound in bounds):
        return False
    return bool(np.all(np.asarray(law.low) == 0) and np.all(np.asarray(law.high) == 1))


def _is_plain(message: dict, trace: Mapping[str, dict], plate: str) -> bool:
    """Whether a site under the plate counts once, and is not in a loop."""
    if execution.membership(message, plate) is None:
        return True
    return "_scan_current_index" not in message["infer"] and execution.is_unscaled(message, trace, plate)


def _parts(message: dict, is_latent: bool) -> tuple[list[Any], list[Any]]:
    """What may move with a latent, and what may not."""
    law, value = _innermost(message["fn"]), [] if is_latent else [message["value"]]
    mask = _mask(message["fn"])
    masks = [] if mask is None else [mask]
    if isinstance(law, dist.Normal):
        return [law.loc, *value], [law.scale, *masks]
    if isinstance(law, dist.MultivariateNormal):
        return [law.loc, *value], [law.scale_tril, *masks]
    if isinstance(law, _OBSERVED[_BETA]):
        return [law.probs], [getattr(law, "total_count", 1), *value, *masks]
    if isinstance(law, _OBSERVED[_GAMMA]) and not is_latent:
        return [law.rate], [*value, *masks]
    return [], [*jax.tree.leaves(message["fn"]), *value]


def _mask(law: Any) -> Any:
    """All masks of a law together, None where it has none."""
    mask = None
    while isinstance(law, _WRAPPERS):
        if isinstance(law, dist.MaskedDistribution):
            mask = law._mask if mask is None else jnp.logical_and(mask, law._mask)
        law = law.base_dist
    return mask


def _innermost(law: Any) -> Any:
    while isinstance(law, _WRAPPERS):
        law = law.base_dist
    return law
