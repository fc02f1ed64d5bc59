"""What a NumPyro model draws: its parameters from their prior, and the responses of records.

A NumPyro model generates whole records when every data leaf is handed to an observed site as it is, ``obs=leaf``.
Everything here works from the structure of one record and reads none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, Unit

from dpvi.models.dependence import depends
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.discovery import batched

_BATCH = 3
_MAX_SUPPORT = 256
_LATENTS = 0x6C617465  # keeps the draws of discrete latents apart from those of responses


def prior_draw(model: Any, key: jax.Array) -> jax.Array:
    """A draw of z from the prior of a NumPyro model; ``NotImplementedError`` where it has no sampler."""
    trace = execution.execute(model.function, model.placeholder(), _plates_of_one, key=key)
    with jax.numpy_dtype_promotion("standard"):
        return model.unconstrain({site.name: trace[site.name]["value"] for site in model.sites})


def response_draws(model: Any, z: jax.Array, batch: Any, key: jax.Array) -> dict[int, jax.Array]:
    """A draw of each response, given the others as they stand in ``batch``; a density without a sampler has none."""
    trace, draws = model.drawn(z, batch, jax.random.fold_in(key, _LATENTS)), {}
    with jax.numpy_dtype_promotion("standard"):
        for index, name in model.responses.items():
            try:
                draws[index] = jnp.asarray(trace[name]["fn"].sample(jax.random.fold_in(key, index)))
            except NotImplementedError:
                continue
    return draws


def finite_values(model: Any, name: str) -> np.ndarray | None:
    """The support of a scalar site, where it is small, finite and moves with neither parameters nor covariates."""

    def support(z: jax.Array) -> jax.Array:
        distribution: Distribution = model.run(z, model.placeholder())[name]["fn"]
        if not distribution.has_enumerate_support or distribution.event_shape or distribution.batch_shape != (1,):
            raise NotImplementedError
        with jax.numpy_dtype_promotion("standard"):
            return jnp.ravel(distribution.enumerate_support(expand=False))

    try:
        values = np.asarray(jax.jit(support)(jnp.zeros(model.dimension)))
    except (NotImplementedError, jax.errors.JAXTypeError):
        return None
    return values if 0 < values.size <= _MAX_SUPPORT else None


def in_support(model: Any, z: jax.Array, batch: Any) -> dict[str, jax.Array]:
    """By observed site of the record plate, whether all values lie in the distribution's support."""
    masked = {name.removesuffix("_unobserved") + "_observed" for name in model.layout.imputed}
    observed = {
        name: message
        for name, message in model.run(z, batch).items()
        if message["type"] == "sample" and message["is_observed"] and name not in masked
    }
    with jax.numpy_dtype_promotion("standard"):
        return {
            name: jnp.all(message["fn"].support(message["value"]))
            for name, message in observed.items()
            if execution.membership(message, model.record_plate) is not None and message["fn"].support is not None
        }


def undrawable(model: Any) -> list[str]:
    """Sites of the record plate whose term is not the density of a data leaf, one sentence each."""
    found: list[str] = []

    def look(z: jax.Array, batch: Any, key: jax.Array) -> None:
        found.extend(_site_findings(model, model.drawn(z, batch, key), jax.tree.leaves(batch)))

    key = jax.eval_shape(lambda: jax.random.key(0))
    jax.eval_shape(look, _vector(model), batched(model.structure, _BATCH), key)
    return found


def unread_findings(model: Any) -> list[str]:
    """Sites that are given a value because nothing should read it, and are read, by data flow."""
    names = [*model.layout.imputed, *model.layout.unread]
    if not names:
        return []

    def terms(given: Any, z: jax.Array, batch: Any) -> Any:
        return model.record_terms(z, batch, given), model.prior_terms(z, batch, given)

    jaxpr = jax.make_jaxpr(terms)(model.given, _vector(model), batched(model.structure, _BATCH))
    num_inputs, first, findings = len(jaxpr.in_avals), 0, []
    for name in sorted(model.given):  # the order in which a dict is flattened
        here = range(first, first := first + len(jax.tree.leaves(model.given[name])))
        if name not in names or not any(depends(jaxpr, [index in here for index in range(num_inputs)])):
            continue
        findings.append(
            f"Some parameters of the network {name.removesuffix('$params')!r} have no prior; give all of them one in "
            "random_flax_module, or pass a guide, which learns the others."
            if name in model.layout.unread
            else f"The missing values of {name.removesuffix('_unobserved')!r} are used again in the model and need a "
            "guide with local variables: pass one with guide=, or marginalise them."
        )
    return findings


def _site_findings(model: Any, trace: Mapping[str, dict], leaves: list[Any]) -> list[str]:
    findings, seen = [], set()
    plate = trace[model.record_plate]
    subsample = plate["args"][0] / plate["value"].shape[0]
    for name, message in trace.items():
        if message["type"] != "sample" or name in model.given:
            continue
        if execution.membership(message, model.record_plate) is None:
            continue
        leaf = next((index for index, leaf in enumerate(leaves) if message["value"] is leaf), None)
        if isinstance(message["fn"], Unit):
            findings.append(f"Factor {name!r} changes the density of a record in a way that cannot be simulated.")
        elif leaf is None:
            findings.append(
                f"Site {name!r} observes a transformed leaf, so drawing from it does not give the data back; pass the "
                "data as the site observes it."
            )
        elif leaf in seen:
            findings.append(f"Site {name!r} observes a leaf that another site observes too; one density has to do.")
        elif not _is_one(message["scale"], subsample):
            findings.append(f"Site {name!r} is scaled: its term is a power of a density, which nothing draws from.")
        seen.add(leaf)
    return findings


def _is_one(scale: Any, subsample: float) -> bool:
    return scale is None or (isinstance(scale, (int, float)) and scale == subsample)


def _plates_of_one(message: dict) -> Any:
    return execution.whole_batch(message, 1) if message["type"] == "plate" else None


def _vector(model: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((model.dimension,), jnp.result_type(float))
