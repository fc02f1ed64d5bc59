"""A warning for models whose records count by a constant factor: ``handlers.scale(model, 1 / N)`` and its like.

Where a loss is a mean over records, such a factor keeps it of size one. Here a term is clipped and noise is added to
the sum of all terms, so the factor shrinks what the records say and leaves the noise as it is.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dpvi.declared.validation import IntervalWarning
from dpvi.models.base import Model, ModelError
from dpvi.models.numpyro import NumPyroModel, execution
from dpvi.models.numpyro.discovery import batched
from dpvi.models.numpyro.guides import GuidedModel


def warn_of_scales(model: Model | GuidedModel) -> None:
    """Warn where a constant other than one multiplies the log-density of a record; a weight per record is meant so."""
    found = {name: factor for name, factor in _factors(model).items() if factor != 1}
    if found and isinstance(model, NumPyroModel) and (model.layout.enumerated or model.layout.integrated):
        raise ModelError(
            f"Sites {', '.join(map(repr, found))} are scaled, and latents of a record are summed or integrated out: "
            "the sum of scaled terms is not the scaled sum. Leave handlers.scale out."
        )
    for factor in dict.fromkeys(found.values()):
        names = ", ".join(repr(name) for name, each in found.items() if each == factor)
        meaning = (
            "what the records say shrinks by that factor, while the noise stays as it is and drowns the answer"
            if factor < 1
            else "the posterior is as narrow as if there were that many times as many records"
        )
        warnings.warn(
            f"Every record counts {factor:.3g} times at {names}, because of handlers.scale: {meaning}. Losses here are "
            "sums over records and not means; leave the scale out.",
            IntervalWarning,
            stacklevel=5,  # the line that called fit
        )


def _factors(model: Model | GuidedModel) -> dict[str, float]:
    """The constant factors of sites inside the record plate, found without a number being computed."""
    factors: dict[str, float] = {}

    def keep(trace: dict[str, dict], plate: str) -> None:
        for name, message in trace.items():
            inside = message["type"] == "sample" and execution.membership(message, plate) is not None
            scale = execution.scale_of(message, trace, plate) if inside else None
            if scale is not None and not isinstance(scale, Tracer) and np.size(scale) == 1:
                factors[name] = float(np.asarray(scale).reshape(()))

    if isinstance(model, GuidedModel):
        guided = model

        def run_guided(xi: jax.Array, eta: jax.Array, batch: Any) -> None:
            keep(guided.run(xi, eta, jax.random.key(0), batch)[1], guided.record_plate)

        vectors = map(_vector, (guided.num_parameters, guided.num_base))
        jax.eval_shape(run_guided, *vectors, batched(guided.structure, 1))
    elif isinstance(model, NumPyroModel):
        alone = model

        def run_alone(z: jax.Array, batch: Any) -> None:
            keep(alone.run(z, batch), alone.record_plate)

        jax.eval_shape(run_alone, _vector(alone.dimension), batched(alone.structure, 1))
    return factors


def _vector(size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size,), jnp.result_type(float))
