"""Where the parameters of a guide and its model start, found on made-up records.

NumPyro's SVI runs guide and model on the data to initialise them. A start that was computed from the records would be
released without noise, so here both run on simulated records of the same shapes: a network is initialised from the
shapes alone, and an autoguide, which looks for a point of finite density, looks for it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from numpyro.distributions import constraints
from numpyro.infer.autoguide import (
    AutoDAIS,
    AutoGuide,
    AutoLaplaceApproximation,
    AutoSemiDAIS,
    AutoSurrogateLikelihoodDAIS,
)

from dpvi.models.base import ModelError
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.guides.execution import drawn, stand_in
from dpvi.models.numpyro.guides.parameters import merged
from dpvi.models.simulate import simulate

_BATCH = 3


def starting_values(
    function: Callable, guide: Callable, structure: Any, key: jax.Array
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run guide and model once on simulated records, with a seed, and collect their ``param`` sites.

    Parameters
    ----------
    function, guide
        The model and the guide. An autoguide is set up anew, whatever records it was set up on before.
    structure
        The structure of one record.
    key
        Seeds random starts.

    Returns
    -------
    values, constraints
        ``{site: starting value}`` and ``{site: constraint}``, the guide's sites first.
    """
    failure: Exception | None = None
    for batch in _batches(function, structure, key, bool(autoguides(guide))):
        _forget_prototypes(guide)
        try:
            return _run(function, guide, batch, key)
        except (RuntimeError, ValueError) as error:  # what NumPyro raises where it finds no finite density
            failure = failure or error
        except Exception as error:
            raise ModelError(_failure(error)) from error
    _forget_prototypes(guide)
    assert failure is not None
    raise ModelError(_failure(failure)) from failure


class Starts:
    """The start of every parameter as a function of a key, in one program where that is possible.

    Run operation by operation, guide and model compile a small program for each, which took seconds for a network of
    five layers. An autoguide looks for its start by trial and keeps what it finds, a constraint may have bounds that
    are computed on the way, and a function that fails has to say why: these are run as they stand, by
    :func:`starting_values`, whose parameters these are.

    Attributes
    ----------
    shapes
        ``{site: something with the shape and dtype of its value}``, the guide's sites first.
    constraints
        ``{site: constraint}``.
    compiled
        key -> ``{site: starting value}``, where it can be traced, else None.
    """

    def __init__(self, function: Callable, guide: Callable, structure: Any):
        self._arguments = (function, guide, structure)
        self.compiled = None if autoguides(guide) else self._traced()
        if self.compiled is None:
            self.shapes, self.constraints = starting_values(*self._arguments, jax.random.key(0))

    def __call__(self, key: jax.Array) -> dict[str, Any]:
        return starting_values(*self._arguments, key)[0] if self.compiled is None else self.compiled(key)

    def _traced(self) -> Callable[[jax.Array], dict[str, Any]] | None:
        function, guide, structure = self._arguments
        batch = next(_batches(function, structure, jax.random.key(0), in_support=False))

        def values(key: jax.Array) -> dict[str, Any]:
            starts, self.constraints = _run(function, guide, batch, key)
            return starts

        compiled = jax.jit(values)
        try:
            shapes = jax.eval_shape(compiled, jax.random.key(0))
        except Exception:  # of any kind, because it is somebody else's code; running it as it stands says which
            return None
        self.shapes = {name: shapes[name] for name in self.constraints}  # a program gives them back in another order
        return None if any(map(_is_traced, self.constraints.values())) else compiled


def _is_traced(constraint: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(getattr(constraint, "__dict__", {})))


def autoguides(guide: Any) -> list[AutoGuide]:
    """The autoguides in a guide: itself or the parts of a list, through ``functools.partial`` and wrappers."""
    inner = getattr(guide, "func", None) or getattr(guide, "__wrapped__", None)
    if not isinstance(guide, AutoGuide):
        return autoguides(inner) if inner is not None else []
    parts = getattr(guide, "_guides", ())
    return [guide, *(found for part in parts for found in autoguides(part))]


def _forget_prototypes(guide: Any) -> None:
    for each in autoguides(guide):
        if isinstance(each, AutoLaplaceApproximation):
            raise ModelError(
                "AutoLaplaceApproximation takes its covariance from the curvature at all records, which no noise "
                "covers; use AutoNormal, AutoDiagonalNormal or AutoMultivariateNormal."
            )
        if isinstance(each, (AutoDAIS, AutoSemiDAIS)) and not isinstance(each, AutoSurrogateLikelihoodDAIS):
            raise ModelError(
                f"{type(each).__name__} moves its draws along the density of the records it was set up on: real ones "
                "no noise would cover, and made-up ones say nothing; use AutoMultivariateNormal or AutoIAFNormal, or "
                "AutoSurrogateLikelihoodDAIS with public records."
            )
        each.prototype_trace = None


def _run(function: Callable, guide: Callable, batch: Any, key: jax.Array) -> tuple[dict[str, Any], dict[str, Any]]:
    guide_key, model_key = jax.random.split(key)
    guide_trace = execution.execute(guide, batch, _whole_batch, key=guide_key)
    values = drawn(guide_trace)

    def fill(message: dict) -> Any:
        if message["type"] == "sample" and not message["is_observed"]:
            return stand_in(message, values.get(message["name"]))
        return _whole_batch(message)

    traces = (guide_trace, execution.execute(function, batch, fill, key=model_key))
    sites = [{name: each for name, each in trace.items() if each["type"] == "param"} for trace in traces]
    met = merged(sites)
    starts = {name: each["value"] for name, each in met.items()}
    return starts, {name: each["kwargs"].get("constraint", constraints.real) for name, each in met.items()}


def _whole_batch(message: dict) -> Any:
    return execution.whole_batch(message, _BATCH) if message["type"] == "plate" else None


def _batches(function: Callable, structure: Any, key: jax.Array, in_support: bool) -> Iterator[Any]:
    """Simulated records of each kind; where asked, first with responses drawn from the model, inside their support."""
    plain = [jax.tree.map(jnp.asarray, simulated.first) for simulated in simulate(structure, _BATCH)]
    if in_support:  # only autoguides look at densities, and drawing costs a second
        yield from (each for each in (_with_responses(function, batch, key) for batch in plain) if each is not None)
    yield from plain


def _with_responses(function: Callable, batch: Any, key: jax.Array) -> Any:
    leaves, tree = jax.tree.flatten(batch)
    try:
        trace = execution.execute(function, batch, _whole_batch, key=key)
    except Exception:  # a model that cannot be drawn from, such as one with an improper prior: plain kinds remain
        return None
    with jax.numpy_dtype_promotion("standard"):
        for message in trace.values():
            if message["type"] != "sample" or not message["is_observed"]:
                continue
            for index, leaf in enumerate(leaves):
                if message["value"] is leaf:
                    draw = message["fn"].sample(jax.random.fold_in(key, index))
                    leaves[index] = draw.astype(leaf.dtype) if draw.shape == leaf.shape else leaf
    return jax.tree.unflatten(tree, leaves)


def _failure(error: Exception) -> list[str]:
    if isinstance(error, ModelError):
        return list(error.findings)
    if isinstance(error, AssertionError) and "unique names" in str(error):  # NumPyro's words
        return ["In guide or model two sites have one name; give every numpyro.sample and numpyro.param its own."]
    return [
        f"Guide and model must run on simulated records, where their parameters start, but fail with "
        f"{type(error).__name__}: check that both take the same arguments and run on any number of records; "
        "an autoguide needs a model whose density is finite there, or init_loc_fn=init_to_median."
    ]
