"""How one column is distributed within a component of a mixture, and its priors.

==============  ============================================  ======================================================
column          law within component k                        priors
==============  ============================================  ======================================================
categorical     Categorical(θ_k)                              θ_k ~ Dirichlet(1)
boolean         Bernoulli(θ_k)                                θ_k ~ Beta(1, 1)
numeric, date   Normal(μ_k, s_k) on the scale [−1, 1]         μ_k ~ Normal(0, 1), s_k ~ LogNormal(−1, 1)
count           Poisson(λ_k)                                  λ_k ~ LogNormal(½ log u, ½ + ¼ log u), u the upper bound
ordinal         P(x ≤ l) = σ(c_l − a_k), c shared by all k    a_k ~ Normal(0, 2); P(x = l | a = 0) ~ Dirichlet(1)
==============  ============================================  ======================================================

The first two are those of appendix G.1 of Jälkö et al.; the scales of the others come from the declared bounds alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from dpvi.table import Boolean, Categorical, Column, Count, Date, Numeric, Ordinal, SchemaError

Parameters = Mapping[str, jax.Array]


def column_priors(name: str, column: Column, num_components: int) -> dict[str, Distribution]:
    """``{site: prior}`` of the parameters of column ``name`` in all components."""
    per_component = [num_components]
    if isinstance(column, Categorical):
        prior = dist.Dirichlet(jnp.ones((num_components, column.num_levels)))
        return {f"{name}_probabilities": prior.to_event(1)}
    if isinstance(column, Boolean):
        return {f"{name}_probability": dist.Beta(1.0, 1.0).expand(per_component).to_event(1)}
    if isinstance(column, (Numeric, Date)):
        return {
            f"{name}_mean": dist.Normal(0.0, 1.0).expand(per_component).to_event(1),
            f"{name}_scale": dist.LogNormal(-1.0, 1.0).expand(per_component).to_event(1),
        }
    if isinstance(column, Count):
        middle = math.log(column.upper) / 2
        return {f"{name}_rate": dist.LogNormal(middle, 0.5 + middle / 2).expand(per_component).to_event(1)}
    if isinstance(column, Ordinal):
        return {
            f"{name}_shares": dist.Dirichlet(jnp.ones(column.num_levels)),
            f"{name}_location": dist.Normal(0.0, 2.0).expand(per_component).to_event(1),
        }
    raise SchemaError(f"Column {name!r} is {column.kind}, for which a mixture has no component law.")


def component_law(
    name: str, column: Column, parameters: Parameters, component: jax.Array | None = None
) -> Distribution:
    """The law of column ``name`` in every component, batch shape (K,), or in the given ones.

    Parameters
    ----------
    name, column
        The column.
    parameters
        Values of the sites of :func:`column_priors`.
    component
        Components k to take, one for each record; by default all of them in order.
    """

    def of(site: str) -> jax.Array:
        value = parameters[f"{name}_{site}"]
        return value if component is None else value[component]

    if isinstance(column, Categorical):
        return dist.CategoricalProbs(of("probabilities"))
    if isinstance(column, Boolean):
        return dist.BernoulliProbs(of("probability"))
    if isinstance(column, (Numeric, Date)):
        return dist.Normal(of("mean"), of("scale"))
    if isinstance(column, Count):
        return dist.Poisson(of("rate"))
    return dist.CategoricalLogits(ordinal_logits(parameters[f"{name}_shares"], of("location")))


def ordinal_logits(shares: jax.Array, location: jax.Array) -> jax.Array:
    """Log-probabilities of ordered levels whose cumulative logits are shifted by ``location``.

    With cut points c_l = logit(Σ_{i ≤ l} shares_i), log P(x = l) = log(σ(c_l − a) − σ(c_{l−1} − a)), written as
    log σ(c_l − a) + log σ(a − c_{l−1}) + log(1 − exp(c_{l−1} − c_l)), which loses no digits in the tails.

    Parameters
    ----------
    shares
        Probabilities of the levels at a = 0, (L,).
    location
        a, any shape; larger means higher levels.

    Returns
    -------
    Array of shape ``(*location.shape, L)``.
    """
    tiny = jnp.finfo(shares.dtype).tiny
    below = jnp.cumsum(shares)[:-1]
    above = jnp.cumsum(shares[::-1])[::-1][1:]
    cuts = jnp.log(below + tiny) - jnp.log(above + tiny)
    reach = cuts - location[..., None]
    edge = jnp.zeros((*location.shape, 1), reach.dtype)
    at_most = jnp.concatenate([jax.nn.log_sigmoid(reach), edge], axis=-1)
    more_than = jnp.concatenate([edge, jax.nn.log_sigmoid(-reach)], axis=-1)
    between = jnp.log(jnp.maximum(-jnp.expm1(cuts[:-1] - cuts[1:]), tiny))
    inner = jnp.concatenate([jnp.zeros(1, reach.dtype), between, jnp.zeros(1, reach.dtype)])
    return at_most + more_than + inner
