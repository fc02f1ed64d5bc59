"""A NumPyro model with a guide of its own, split into what reads no record and one term per record.

For parameters ξ of guide q and model p, global latents g drawn once per step and local latents l_i of record x_i,

    record_free(ξ, η)     = log p(g) − log q(g)
    term(ξ, η, key, x_i)  = log p(l_i, x_i | g) − log q(l_i | x_i, g)

so that their sum over records is NumPyro's own one-draw ELBO. Where log q(l_i) − log p(l_i) has a mean in closed form,
that takes its place (:mod:`dpvi.models.numpyro.guides.divergence`). η seeds g, ``key`` seeds l_i. What belongs to a
record is what lies inside the record plate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from dpvi.models.base import Record
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.guides.amortised import amortised
from dpvi.models.numpyro.guides.discovery import GuidedLayout, discover
from dpvi.models.numpyro.guides.divergence import closed_divergences, closed_sites
from dpvi.models.numpyro.guides.execution import NUM_SEED_NORMALS, record_key, run_guide, run_model, shared_key
from dpvi.models.numpyro.guides.parameters import Parameters
from dpvi.models.numpyro.guides.start import Starts
from dpvi.models.numpyro.implied import with_plate
from dpvi.models.numpyro.plated import PlatedModel
from dpvi.models.simulate import compiled_for_few_calls
from dpvi.models.sites import check_values, check_vector, is_real


class GuidedModel(PlatedModel):
    """A NumPyro model and its guide as functions of a flat ξ.

    Parameters
    ----------
    function
        The model. A tuple of data becomes positional arguments, a dict keyword arguments, anything else one argument.
    guide
        A NumPyro guide with the same arguments: a function or an autoguide. Networks enter through
        ``numpyro.contrib.module``.
    structure
        The structure of one record, from :func:`dpvi.records.arrays.structure_of`; no record is needed.

    Raises
    ------
    ModelError
        Where the pair cannot be split into a part without records and one term per record.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> def model(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("records", y.shape[0]):
    ...         numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    >>> ready = GuidedModel(model, AutoNormal(model), jax.ShapeDtypeStruct((), jnp.dtype("float32")))
    >>> ready.num_parameters, [site.name for site in ready.sites], ready.layout.local_sites
    (2, ['mean'], ())
    """

    num_base = NUM_SEED_NORMALS

    def __init__(self, function: Callable, guide: Callable, structure: Any):
        self.guide = guide
        self.structure = structure
        written = amortised(guide)
        if written is not None:
            written.set_up(guide, structure)
        self._starts = Starts(function, guide, structure)
        self.parameters = Parameters(self._starts.shapes, self._starts.constraints)
        self.layout: GuidedLayout = discover(function, guide, structure, self._starts.shapes)
        self.function = function if self.layout.implied is None else with_plate(function, self.layout.implied)
        # traced even when called eagerly: NumPyro checks concrete values, and a placeholder's need not be valid
        self._record_free = jax.jit(self._evaluate_record_free, inline=True)
        self._draw = jax.jit(self._evaluate_draw, inline=True)
        self._values = jax.jit(self._evaluate_sites, inline=True)
        self._inverse = jax.jit(self._evaluate_inverse, inline=True)
        self._started = self._evaluate_start
        if self._starts.compiled is not None:
            self._started = compiled_for_few_calls(self._evaluate_start, self.num_parameters)

    @property
    def num_parameters(self) -> int:
        """p, the length of ξ."""
        return self.parameters.size

    def initial(self, key: jax.Array, values: Mapping[str, Any] | None = None) -> jax.Array:
        """ξ where guide and model start, with ``values`` in place of some of the parameters."""
        names = [site.name for site in self.parameters.sites]
        unknown = sorted(set(values or {}) - set(names))
        if unknown:
            raise ValueError(f"initial_location names {unknown}, but the parameters are {names}.")
        return self._started(key, dict(values or {}))

    def run(
        self, xi: jax.Array, eta: jax.Array, key: jax.Array, batch: Any, values: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, dict], dict[str, dict]]:
        """NumPyro's messages of guide and model on a batch, with the guide's draws (or ``values``) in both."""
        parameters, keys = self.parameters.constrain(xi), (shared_key(eta), key)
        guide_trace = run_guide(self.guide, batch, parameters, keys, self.layout.guide_plate, values)
        model_trace = run_model(self.function, batch, parameters, keys, self.record_plate, guide_trace)
        return guide_trace, model_trace

    def term(
        self, xi: jax.Array, eta: jax.Array, key: jax.Array, record: Record, closed_form: bool = True
    ) -> jax.Array:
        """log p(l_i, x_i | g) − log q(l_i | x_i, g) for one record, a scalar; ``closed_form`` as in :meth:`inside`."""
        batch = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), record)
        inside = self.inside(*self.run(xi, eta, key, batch), closed_form)
        return _sum([sign * execution.total(log_prob) for sign, log_prob, _ in inside], xi.dtype)

    def own_key(self, eta: jax.Array, record: Record) -> jax.Array:
        """The key of a record's own draws: a hash of η and the record."""
        return record_key(eta, record)

    def record_free(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        """log p(g) − log q(g), a scalar; guide and model run on a record of zeros, so none is read."""
        return self._record_free(xi, eta)

    def draw(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        """z, the guide's draw of the global latents on the unconstrained scale."""
        return self._draw(xi, eta)

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]:
        """Map one unconstrained vector to ``{global site: value on its own support}``."""
        check_vector(z, self.dimension)
        return self._values(z)

    def unconstrain(self, values: Mapping[str, Any]) -> jax.Array:
        """The inverse of :meth:`constrain`."""
        check_values(values, self.sites)
        return self._inverse({site.name: values[site.name] for site in self.sites})

    def inside(
        self, guide_trace: Mapping[str, dict], model_trace: Mapping[str, dict], closed_form: bool = True
    ) -> list[tuple[int, jax.Array, int]]:
        """(sign, log-density, axis of the records) of every site inside the record plates.

        With ``closed_form`` a latent site has KL(q ‖ p) instead of its two log-densities, where there is a formula.
        """
        guide_plate = self.layout.guide_plate
        if guide_plate is None:
            return [(1, *each) for each in execution.record_log_probs(model_trace, self.record_plate, ())]
        names = self.closed_sites if closed_form else ()
        closed = closed_divergences((guide_trace, model_trace), names, self.record_plate)
        modelled = execution.record_log_probs(model_trace, self.record_plate, closed)
        guided = execution.record_log_probs(guide_trace, guide_plate, closed)
        return [(1, *each) for each in modelled] + [(-1, *each) for each in [*guided, *closed.values()]]

    def outside(self, guide_trace: Mapping[str, dict], model_trace: Mapping[str, dict]) -> dict[str, jax.Array]:
        """The global terms: log p under ``site``, −log q under ``guide of site``."""
        terms = dict(execution.prior_terms(model_trace, self.record_plate))
        guided = execution.prior_terms(guide_trace, self.layout.guide_plate or "")
        return terms | {f"guide of {name}": -term for name, term in guided.items()}

    def _evaluate_start(self, key: jax.Array, values: Mapping[str, Any]) -> jax.Array:
        with jax.numpy_dtype_promotion("standard"):
            return self.parameters.unconstrain({**self._starts(key), **values})

    @cached_property
    def closed_sites(self) -> tuple[str, ...]:
        """Latent sites of a record whose divergence is taken in closed form."""
        if self.layout.guide_plate is None:
            return ()
        xi, eta = (jnp.zeros(size) for size in (self.num_parameters, self.num_base))

        def run(values: Mapping[str, Any]) -> tuple[dict[str, dict], dict[str, dict]]:
            return self.run(xi, eta, shared_key(eta), self.placeholder(), values)

        return closed_sites(run, self.layout.local_sites, (self.layout.guide_plate, self.record_plate))

    def _on_placeholder(self, xi: jax.Array, eta: jax.Array) -> tuple[dict[str, dict], dict[str, dict]]:
        return self.run(xi, eta, shared_key(eta), self.placeholder())

    def _evaluate_record_free(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        return _sum(list(self.outside(*self._on_placeholder(xi, eta)).values()), xi.dtype)

    def _evaluate_draw(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        _, model_trace = self._on_placeholder(xi, eta)
        return self._flat({site.name: model_trace[site.name] for site in self.sites}, xi.dtype)

    def _flat(self, messages: Mapping[str, dict], dtype: Any) -> jax.Array:
        parts = []
        for message in messages.values():
            support, value = message["fn"].support, message["value"]
            parts.append(jnp.ravel(value if is_real(support) else biject_to(support).inv(value)).astype(dtype))
        return jnp.concatenate(parts) if parts else jnp.zeros((0,), dtype)

    def _evaluate_sites(self, z: jax.Array, xi: jax.Array | None = None) -> dict[str, jax.Array]:
        by_name = {site.name: site for site in self.sites}
        trace = self._model_alone(
            lambda message: (
                execution.to_support(message, by_name[message["name"]].of(z)) if message["name"] in by_name else None
            ),
            xi,
        )
        return {name: trace[name]["value"] for name in by_name}

    def _evaluate_inverse(self, values: Mapping[str, Any]) -> jax.Array:
        dtype = jnp.result_type(float)
        given = {name: jnp.asarray(value, dtype) for name, value in values.items()}
        trace = self._model_alone(lambda message: given.get(message["name"]))
        return self._flat({site.name: trace[site.name] for site in self.sites}, dtype)

    def _model_alone(self, value_of: Callable[[dict], Any], xi: jax.Array | None = None) -> dict[str, dict]:
        """The model on a placeholder. Any ξ will do, because supports that read parameters are refused."""
        anywhere = jnp.zeros((self.num_parameters,), jnp.result_type(float))
        parameters = self.parameters.constrain(anywhere if xi is None else xi)

        def fill(message: dict) -> Any:
            if message["type"] == "plate":
                return execution.whole_batch(message, 1) if message["name"] == self.record_plate else None
            if message["type"] == "param":
                return parameters.get(message["name"])
            return value_of(message) if message["type"] == "sample" and not message["is_observed"] else None

        return execution.execute(self.function, self.placeholder(), fill, key=jax.random.key(0))

    def moving_supports(self) -> Callable[[jax.Array, jax.Array], dict[str, jax.Array]]:
        """(ξ, z) -> global sites on their supports; for the check that none of them moves with ξ."""
        return lambda xi, z: self._evaluate_sites(z, xi)


def _sum(terms: list[jax.Array], dtype: Any) -> jax.Array:
    with jax.numpy_dtype_promotion("standard"):  # a network may compute in another precision than ξ has
        return jnp.asarray(sum(terms, start=jnp.zeros((), dtype)), dtype)
