"""Discrete latents of a record, summed out of its term.

For latents c of record x_i with finite supports,

    log p(x_i | z) = log Σ_c p(x_i, c | z),

the sum over all their values together: the model runs on every combination side by side, and what does not depend on
them is computed once. Latents in the body of a scan count once for every turn. The number of combinations is the
product of the supports, so it has a limit; beyond it a chain needs its own recursion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

MOST = 4096  # combinations of a record, each of which is a run of the model


class Discrete(NamedTuple):
    """A discrete latent site inside the record plate.

    Attributes
    ----------
    support
        Its values, along the first axis; None where there is no finite number of them, or they move.
    shape
        Of its value, events included, with one record.
    event_dim
        How many of the last axes are one draw.
    in_loop
        Whether it is in the body of a scan.
    """

    support: np.ndarray | None
    shape: tuple[int, ...]
    event_dim: int
    in_loop: bool

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of its draws."""
        return self.shape[: len(self.shape) - self.event_dim]


def finite_support(distribution: Any) -> Any:
    """The values of a discrete distribution, one after the other; None where they are not finitely many."""
    if not getattr(distribution, "has_enumerate_support", False):
        return None
    try:
        values = distribution.enumerate_support(expand=False)
    except (NotImplementedError, TypeError, ValueError):
        return None
    return jnp.reshape(values, (jnp.shape(values)[0], *distribution.event_shape))


def enumeration_findings(latents: Mapping[str, Discrete]) -> list[str]:
    """Why the discrete latents of a record cannot be summed over, one sentence each."""
    findings = [
        f"Latent site {name!r} is discrete, and its values are not a fixed finite number, so its sum cannot be taken: "
        "choose a distribution with finite support, or marginalise it."
        for name, latent in latents.items()
        if latent.support is None
    ]
    if findings or num_combinations(latents) <= MOST:
        return findings
    names = ", ".join(map(repr, latents))
    chains = any(latent.in_loop for latent in latents.values())
    remedy = (
        "sum over the states of a chain one step at a time, by the forward algorithm in jax.lax.scan, and add the "
        "result with numpyro.factor under the record plate"
        if chains
        else "sum over some of them in the model, for example with numpyro's MixtureSameFamily"
    )
    return [
        f"The discrete latents of a record, {names}, have more than {MOST} combinations of values, each of which would "
        f"be a run of the model; {remedy}."
    ]


def num_combinations(latents: Mapping[str, Discrete]) -> int:
    """How many values the latents of a record have together."""
    return math.prod(
        len(latent.support) ** math.prod(latent.batch) for latent in latents.values() if latent.support is not None
    )


def combinations(latents: Mapping[str, Discrete]) -> dict[str, np.ndarray]:
    """``{site: (combination, …)}``, all values of the latents of a record together.

    Examples
    --------
    >>> coin = Discrete(np.array([0, 1]), (1,), 0, False)
    >>> {name: values[:, 0].tolist() for name, values in combinations({"a": coin, "b": coin}).items()}
    {'a': [0, 0, 1, 1], 'b': [0, 1, 0, 1]}
    """
    draws = [(name, latent) for name, latent in latents.items() for _ in range(math.prod(latent.batch))]
    sizes = [len(latent.support) for _, latent in draws if latent.support is not None]
    choices = np.indices(sizes).reshape(len(sizes), -1).T  # (combination, draw)
    tables, begin = {}, 0
    for name, latent in latents.items():
        assert latent.support is not None
        end = begin + math.prod(latent.batch)
        tables[name] = latent.support[choices[:, begin:end]].reshape(-1, *latent.shape)
        begin = end
    return tables
