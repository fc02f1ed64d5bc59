"""The divergence of a record's own latents in closed form, where NumPyro knows one.

At a draw l_i from the guide, log q(l_i | x_i, g) − log p(l_i | g) has the mean KL(q ‖ p), gradients too, but noise of
its own. That noise is in a record's gradient before it is clipped, so less of the bound is left for what the record has
to say. For normals and a few other laws KL(q ‖ p) is a formula, and then it takes the place of the draw, as in
NumPyro's ``TraceMeanField_ELBO``.

A formula is a mean over a site's own draw alone, so neither law may read that draw, nor anything that was drawn from
it. NumPyro asks for sites in the same order, which is not enough where a loop draws several of them; here it is read
off the flow of data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
from numpyro.distributions import (
    Beta,
    Dirichlet,
    Gamma,
    Independent,
    MultivariateNormal,
    Normal,
    kl_divergence,
)
from numpyro.distributions.distribution import ExpandedDistribution

from dpvi.models.dependence import depends
from dpvi.models.numpyro import execution

Traces = tuple[Mapping[str, dict], Mapping[str, dict]]  # of guide and model
_EXACT = (Beta, Dirichlet, Gamma, MultivariateNormal, Normal)  # others NumPyro has are cut series, or of other laws


def closed_sites(
    run: Callable[[Mapping[str, Any]], Traces], names: Iterable[str], plates: tuple[str, str]
) -> tuple[str, ...]:
    """Which of the latent sites ``names`` have a divergence in closed form; abstractly, nothing is computed.

    Parameters
    ----------
    run
        Guide and model on a batch, with the values given for some sites.
    names
        Latent sites inside the record plates.
    plates
        The record plates of guide and model.
    """
    found = []
    for name in names:
        seen: dict[str, Any] = {}

        def laws(value: Any, name: str = name, seen: dict[str, Any] = seen) -> list[Any]:
            traces = run({} if value is None else {name: value})
            messages = [trace[name] for trace in traces]
            unscaled = all(map(execution.is_unscaled, messages, traces, plates))
            seen.update(
                value=messages[0]["value"], has_formula=unscaled and _have_formula(*(m["fn"] for m in messages))
            )
            return jax.tree.leaves([message["fn"] for message in messages])

        drawn = jax.eval_shape(lambda laws=laws, seen=seen: (laws(None), seen["value"])[1])
        if seen["has_formula"] and not any(depends(jax.make_jaxpr(laws)(drawn), [True])):
            found.append(name)
    return tuple(found)


def closed_divergences(traces: Traces, names: Iterable[str], plate: str) -> dict[str, tuple[jax.Array, int]]:
    """``{site: (KL(q ‖ p), axis of the records)}`` for the sites of :func:`closed_sites`; ``plate`` is the model's."""
    found = {}
    for name in names:
        guided, modelled = (trace[name] for trace in traces)
        with jax.numpy_dtype_promotion("standard"):
            divergence = kl_divergence(guided["fn"], modelled["fn"])
        found[name] = divergence, execution.membership(modelled, plate).dim
    return found


def _have_formula(guided: Any, modelled: Any) -> bool:
    """Whether KL(q ‖ p) is exact, entry by entry of the same batch and event."""
    if (guided.batch_shape, guided.event_shape) != (modelled.batch_shape, modelled.event_shape):
        return False
    kinds = {type(_innermost(law)) for law in (guided, modelled)}
    return len(kinds) == 1 and kinds <= set(_EXACT)


def _innermost(law: Any) -> Any:
    while isinstance(law, (Independent, ExpandedDistribution)):
        law = law.base_dist
    return law
