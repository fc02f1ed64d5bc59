"""The divergence of a record's own latents in closed form, where NumPyro knows one.

At a draw l_i from the guide, log q(l_i | x_i, g) − log p(l_i | g) has the mean KL(q ‖ p), gradients too,
but noise of its own. That noise is in a record's gradient before it is clipped, so less of the bound is left for what
the record has to say. For normals and a few other laws KL(q ‖ p) is a formula, and then it takes the place of the draw,
as in NumPyro's ``TraceMeanField_ELBO``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import kl_divergence

from dpvi.models import execution


def closed_divergences(
    guide_trace: Mapping[str, dict], model_trace: Mapping[str, dict], plates: tuple[str, str]
) -> dict[str, tuple[jax.Array, int]]:
    """``{site: (KL(q ‖ p), axis of the records)}`` for latent sites under the record plates that have a closed form.

    A closed form is a mean over a site's own draw alone, so neither law may read a later draw. That holds where guide
    and model draw their sites in the same order; elsewhere nothing is found. Nor is a site whose density is scaled.

    Parameters
    ----------
    guide_trace, model_trace
        Messages of both on the same batch.
    plates
        The record plates of guide and model.
    """
    guided, modelled = (_latents(trace) for trace in (guide_trace, model_trace))
    shared = [name for name in modelled if name in guided]
    if shared != [name for name in guided if name in modelled]:
        return {}
    found = {}
    for name in shared:
        messages, frame = (guide_trace[name], model_trace[name]), execution.membership(model_trace[name], plates[1])
        if frame is None or not all(map(execution.is_unscaled, messages, (guide_trace, model_trace), plates)):
            continue
        laws = [message["fn"] for message in messages]
        try:
            with jax.numpy_dtype_promotion("standard"):
                divergence = kl_divergence(*laws)
        except NotImplementedError:
            continue
        shape = jnp.broadcast_shapes(*(law.batch_shape for law in laws))
        found[name] = jnp.broadcast_to(divergence, shape), frame.dim
    return found


def _latents(trace: Mapping[str, dict]) -> list[str]:
    return [name for name, message in trace.items() if _is_latent(message)]


def _is_latent(message: Mapping[str, Any]) -> bool:
    return message["type"] == "sample" and not message["is_observed"]
