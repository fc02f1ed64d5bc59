"""An ordinary NumPyro model, split into a prior on z and one term per record.

For unconstrained z with sites z_s and bijections b_s to their supports,

    log_prior(z)         = Σ_{sites outside the record plate} log p(site) + Σ_s log|det ∂b_s/∂z_s|
    log_likelihood(z, x) = Σ_{sites inside the record plate} log p(site), the model run on a batch holding x alone

so the sum over records is NumPyro's own log joint, and no term ever sees two records. Where a record has discrete
latents, its term is the logarithm of the sum over their values (:mod:`dpvi.models.numpyro.enumeration`); where it has
continuous ones with a posterior in closed form, of their integral (:mod:`dpvi.models.numpyro.conjugate`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from dpvi.models.base import Model, Record
from dpvi.models.numpyro import drawing, execution
from dpvi.models.numpyro.conjugate import posterior_at
from dpvi.models.numpyro.discovery import Layout, discover
from dpvi.models.numpyro.enumeration import combinations
from dpvi.models.numpyro.implied import with_plate
from dpvi.models.numpyro.plated import PlatedModel
from dpvi.models.sites import (
    StaticBijections,
    check_values,
    check_vector,
    is_real,
    join,
    needs_model,
)


class NumPyroModel(PlatedModel):
    """A NumPyro callable as a :class:`~dpvi.models.base.GenerativeModel`.

    Parameters
    ----------
    function
        The model. A tuple of data becomes positional arguments, a dict keyword arguments, anything else one argument.
    structure
        The structure of one record, from :func:`dpvi.records.arrays.structure_of`; no record is needed.

    Raises
    ------
    ModelError
        Where nothing spans the records, or with continuous latents of a record's own or ``param`` sites.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("records", y.shape[0]):
    ...         numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    >>> ready = NumPyroModel(model, jax.ShapeDtypeStruct((), jnp.dtype("float32")))
    >>> ready.dimension, ready.record_plate, [site.name for site in ready.sites]
    (1, 'records', ['mean'])
    """

    def __init__(self, function: Callable, structure: Any):
        self.structure = structure
        self.layout: Layout = discover(function, structure)
        self.function = function if self.layout.implied is None else with_plate(function, self.layout.implied)
        self._combinations = combinations(self.layout.enumerated) if self.layout.enumerated else {}
        anyone = {name: values[0] for name, values in self._combinations.items()}  # for what does not depend on it
        anyone |= {name: latent.reference for name, latent in self.layout.integrated.items()}
        self.given: dict[str, Any] = {**self.layout.imputed, **self.layout.unread, **anyone}
        self._by_name = {site.name: site for site in self.sites}
        # What runs on a placeholder is traced even when called eagerly: NumPyro checks the parameters of concrete
        # distributions, and a column of zeros may be a scale.
        self._prior = jax.jit(self._evaluate_prior, inline=True)
        self._values = jax.jit(self._evaluate_sites, inline=True)
        self._inverse = jax.jit(self._evaluate_inverse, inline=True)

    def log_prior(self, z: jax.Array) -> jax.Array:
        """log p(z) on the unconstrained scale, a scalar; the model runs on a record of zeros, so none is read."""
        return self._prior(z)

    def log_likelihood(self, z: jax.Array, record: Record) -> jax.Array:
        """log p(x_i | z) for one record, a scalar."""
        batch = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), record)
        if self._combinations or self.layout.integrated:
            return jnp.reshape(self.record_terms(z, batch), ())
        inside = execution.record_log_probs(self.run(z, batch), self.record_plate, self.layout.imputed)
        return _sum([execution.total(log_prob) for log_prob, _ in inside])

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]:
        """Map one unconstrained vector to ``{site: value on its own support}``, latent sites only."""
        if not needs_model(self.sites):
            return StaticBijections(self.sites).constrain(z)
        values = self._values(z)
        return {site.name: values[site.name] for site in self.sites}

    def unconstrain(self, values: Mapping[str, Any]) -> jax.Array:
        """The inverse of :meth:`constrain`."""
        if not needs_model(self.sites):
            return StaticBijections(self.sites).unconstrain(values)
        check_values(values, self.sites)
        return self._inverse({site.name: values[site.name] for site in self.sites})

    def run(self, z: jax.Array, batch: Any, given: Mapping[str, Any] | None = None) -> dict[str, dict]:
        """NumPyro's messages with the latent sites at z and the records of ``batch``, which has a leading axis.

        ``given`` are values of sites that enter no term, in place of the model's own, ``self.given``.
        """
        check_vector(z, self.dimension)
        num_records = jax.tree.leaves(batch)[0].shape[0]
        fill = execution.fill_from(z, self._by_name, given or self.given, num_records)
        return execution.execute(self.function, batch, fill)

    def prior_terms(self, z: jax.Array, batch: Any, given: Mapping[str, Any] | None = None) -> dict[str, jax.Array]:
        """The parts of the log prior by site, as the model computes them on ``batch``; for the model check."""
        return execution.prior_terms(self.run(z, batch, given), self.record_plate)

    def record_terms(
        self, z: jax.Array, batch: Any, given: Mapping[str, Any] | None = None, offset: float = 0.0
    ) -> jax.Array:
        """The log-likelihood of each record as the model computes it on a whole batch; for the model check.

        ``offset`` says at which values of integrated latents, see :func:`~dpvi.models.numpyro.conjugate.posterior_at`.
        """
        if not self._combinations:
            return self._terms(z, batch, given or self.given, {}, offset)
        return jax.nn.logsumexp(self._by_combination(z, batch, given or self.given, offset), axis=0)

    def draw_discrete(self, z: jax.Array, batch: Any, key: jax.Array) -> dict[str, jax.Array]:
        """A draw of each record's discrete latents given all else in it, ``{site: (records, …)}``.

        A record's combination c of values has probability p(c | x_i, z) ∝ p(x_i, c | z).
        """
        num_records = jax.tree.leaves(batch)[0].shape[0]
        drawn = jax.random.categorical(key, self._by_combination(z, batch, self.given), axis=0)
        values = {name: jnp.asarray(table)[drawn] for name, table in self._combinations.items()}
        shapes = {name: latent.shape for name, latent in self.layout.enumerated.items()}
        # one record's own axis has length 1; which of several such axes goes makes no difference
        return {name: jnp.reshape(value, (num_records, *_without_one(shapes[name]))) for name, value in values.items()}

    def _by_combination(self, z: jax.Array, batch: Any, given: Mapping[str, Any], offset: float = 0.0) -> jax.Array:
        """log p(x_i, c | z) for every combination c of discrete values, (combinations, records)."""
        tables = jax.tree.map(jnp.asarray, self._combinations)
        return jax.vmap(lambda discrete: self._terms(z, batch, given, discrete, offset))(tables)

    def _terms(
        self, z: jax.Array, batch: Any, given: Mapping[str, Any], discrete: Mapping[str, Any], offset: float
    ) -> jax.Array:
        """The log-likelihood of each record with its discrete latents at given values."""
        num_records = jax.tree.leaves(batch)[0].shape[0]
        fixed: dict[str, Any] = {**given, **discrete}
        subtracted: list[Any] = []
        if self.layout.integrated:
            values, density = posterior_at(
                lambda at: self.run(z, batch, {**fixed, **at}),
                self.layout.integrated,
                num_records,
                self.record_plate,
                offset,
            )
            fixed, subtracted = {**fixed, **values}, [-density]
        inside = execution.record_log_probs(self.run(z, batch, fixed), self.record_plate, self.layout.imputed)
        return _sum([*(_per_record(log_prob, axis, num_records) for log_prob, axis in inside), *subtracted])

    def outside(self, z: jax.Array, batch: Any) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Values of the latent sites and parts of the log prior, as the model computes them on ``batch``."""
        trace = self.run(z, batch)
        values = {site.name: trace[site.name]["value"] for site in self.sites}
        return values, execution.prior_terms(trace, self.record_plate)

    @property
    def responses(self) -> Mapping[int, str]:
        """``{index of a leaf: site}`` for leaves that a site observes as they are, ``obs=y``."""
        return self.layout.responses

    @property
    def alone(self) -> bool:
        """Whether nothing but responses is random in a record."""
        return not self.layout.imputed and not self.layout.enumerated and not self.layout.integrated

    def supported(self, z: jax.Array, batch: Any) -> dict[str, jax.Array]:
        """By observed site, whether what it observes lies in its support."""
        return drawing.in_support(self, z, batch)

    def own_findings(self) -> list[str]:
        """Values that nothing should read, and that are read."""
        return drawing.unread_findings(self)

    def drawing_findings(self) -> list[str]:
        """Sites of a record that observe something else than a leaf of the data."""
        return drawing.undrawable(self)

    def draw_prior(self, key: jax.Array) -> jax.Array:
        """A draw of z from the prior; ``NotImplementedError`` where it has no sampler."""
        return drawing.prior_draw(self, key)

    def draw_responses(self, z: jax.Array, batch: Any, key: jax.Array) -> dict[int, jax.Array]:
        """A draw of each response given all other leaves of ``batch``."""
        return drawing.response_draws(self, z, batch, key)

    def values_of(self, site: str) -> np.ndarray | None:
        """All values that an observed scalar can take, where they are few and the same for all parameters."""
        return drawing.finite_values(self, site)

    def drawn(self, z: jax.Array, batch: Any, key: jax.Array) -> dict[str, dict]:
        """As :meth:`run`, with the latents of every record drawn."""
        own = self._combinations.keys() | self.layout.integrated.keys()
        if not own:
            return self.run(z, batch)
        num_records = jax.tree.leaves(batch)[0].shape[0]
        given = {name: value for name, value in self.given.items() if name not in own}
        fill = execution.fill_from(z, self._by_name, given, num_records)
        return execution.execute(self.function, batch, fill, key=key)

    def _evaluate_prior(self, z: jax.Array) -> jax.Array:
        return _sum(list(self.prior_terms(z, self.placeholder()).values()))

    def _evaluate_sites(self, z: jax.Array) -> dict[str, jax.Array]:
        trace = self.run(z, self.placeholder())
        return {site.name: trace[site.name]["value"] for site in self.sites}

    def _evaluate_inverse(self, values: Mapping[str, Any]) -> jax.Array:
        parts: dict[str, jax.Array] = {}

        def fill(message: dict) -> Any:
            if message["type"] == "plate":
                return execution.whole_batch(message, 1)
            if message["type"] == "param":
                return self.given.get(message["name"])
            if message["type"] != "sample" or message["is_observed"]:
                return None
            name = message["name"]
            if name in self.given:
                return execution.given_value(self.given[name], message)
            value = jnp.asarray(values[name], dtype=jnp.result_type(float))
            support = message["fn"].support
            parts[name] = value if is_real(support) else biject_to(support).inv(value)
            return value

        execution.execute(self.function, self.placeholder(), fill)
        return join([parts[site.name] for site in self.sites])


def as_model(model: Model | Callable, structure: Any) -> Model:
    """``model`` itself where it is a :class:`~dpvi.models.base.Model`, or a NumPyro callable made into one.

    Parameters
    ----------
    model
        A NumPyro callable or a model.
    structure
        The structure of one record.
    """
    if isinstance(model, Model):
        fitted = getattr(model, "with_structure", None)  # of a front-end that knows its records without the data
        return model if fitted is None else fitted(structure)
    if callable(model):
        return NumPyroModel(model, structure)
    raise TypeError(
        "model must be a NumPyro function or a dpvi model such as from_pymc(...) or from_functions(...) returns, "
        f"got {type(model).__name__}."
    )


def _sum(terms: list[jax.Array]) -> jax.Array:
    return sum(terms[1:], terms[0])


def _without_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its first axis of length 1."""
    return shape[: shape.index(1)] + shape[shape.index(1) + 1 :]


def _per_record(log_prob: jax.Array, axis: int, num_records: int) -> jax.Array:
    rows = jnp.moveaxis(log_prob, axis, 0)
    return jnp.sum(jnp.reshape(rows, (num_records, -1)), axis=1)
