"""One posterior from runs that fitted different parameters of one model: blocks that share none are independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.posterior.guided import GuidePosterior
from dpvi.posterior.posterior import Bijections, Posterior, UnconstrainedDistribution
from dpvi.posterior.result import Result
from dpvi.privacy.together import joint_guarantee


class _Product:
    """Independent blocks of z, one after the other."""

    def __init__(self, parts: Sequence[UnconstrainedDistribution], sizes: Sequence[int]) -> None:
        self.parts = tuple(parts)
        self._ends = tuple(int(end) for end in np.cumsum(sizes)[:-1])

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array:
        keys = jax.random.split(key, len(self.parts))
        drawn = [part.sample(each, num_samples) for part, each in zip(self.parts, keys, strict=True)]
        return jnp.concatenate(drawn, axis=1)

    def log_prob(self, z: jax.Array) -> jax.Array:
        terms = [part.log_prob(block) for part, block in zip(self.parts, jnp.split(z, self._ends), strict=True)]
        return jnp.sum(jnp.stack(terms))


class _SideBySide:
    """The bijections of several blocks as one."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts: tuple[Bijections, ...] = tuple(parts)
        self.sites = tuple(site for part in parts for site in getattr(part, "sites", ()))
        self.dimension = sum(part.dimension for part in parts)

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]:
        ends = [int(end) for end in np.cumsum([part.dimension for part in self.parts])[:-1]]
        values: dict[str, jax.Array] = {}
        for part, block in zip(self.parts, jnp.split(z, ends), strict=True):
            values |= part.constrain(block)
        return values


def join(blocks: Mapping[str, tuple[Result, Posterior]]) -> Posterior:
    """The posterior of a model whose blocks were fitted apart, each with the posterior that suits it.

    Right where the likelihood is a product of one factor per block and the priors are independent; then so is the
    posterior. A :class:`~dpvi.models.table.TableModel` with a response is such a model: its regression is log-concave
    and has a score posterior, its mixture is multimodal and has the noise that its own iterates show.

    Parameters
    ----------
    blocks
        ``{name: (result, posterior of that result)}``; no site may be in two of them.

    Returns
    -------
    Posterior
        Draws hold the sites of all blocks; ``method`` names each block's.

    Guarantees
    ----------
    That of all runs together: one plan's where :func:`dpvi.plan_together` made the plans, the sums of ε and δ
    otherwise.
    """
    _check_pairs(blocks)
    results, posteriors = zip(*blocks.values(), strict=True)
    names = [site.name for result in results for site in result.sites]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"Blocks must share no parameter, but {', '.join(map(repr, twice))} is in several; fit such a model whole."
        )
    bijections = _SideBySide([posterior.bijections for posterior in posteriors])
    product = _Product([one.distribution for one in posteriors], [one.bijections.dimension for one in posteriors])
    method = ", ".join(f"{name}: {posterior.method}" for name, posterior in zip(blocks, posteriors, strict=True))
    guarantee = joint_guarantee([one.plan for one in results], [one.guarantee for one in posteriors])
    return Posterior(product, bijections, method, guarantee)


def _check_pairs(blocks: Any) -> None:
    pair = "(result, result.posterior())"
    if not isinstance(blocks, Mapping):
        raise TypeError(f"join needs {{name: {pair}}}, got {type(blocks).__name__}.")
    if len(blocks) < 2:
        raise ValueError(f"join needs the results of at least two blocks, got {len(blocks)}.")
    for name, block in blocks.items():
        parts = block if isinstance(block, Sequence) and len(block) == 2 else (None, None)
        if not isinstance(parts[0], Result) or not isinstance(parts[1], Posterior):
            raise TypeError(f"join needs {{name: {pair}}}, got {type(block).__name__} for {name!r}.")
        if isinstance(parts[1], GuidePosterior):
            raise TypeError(
                f"The posterior of {name!r} is a guide's: it draws its latents by a program of its own, and its "
                "intervals do not include the privacy noise. Fit that block with a family to join it."
            )
