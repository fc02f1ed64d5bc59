"""Mode ``"one_run"``: one fit of very many canaries, each there by the toss of a coin."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dpvi.auditing.bounds import smallest_refuted
from dpvi.auditing.canaries import derived_seed, step_scores
from dpvi.auditing.fits import steps_alone
from dpvi.auditing.one_run_bound import is_refuted
from dpvi.declared.plan import Plan
from dpvi.declared.validation import PrivacyWarning
from dpvi.models.functions import from_functions
from dpvi.privacy.trade_off import scaled, trade_off
from dpvi.run.fitting import fit

DEFAULT_CANARIES = 5_000
_GUESSED = 0.1  # share of canaries that are guessed; the others' scores say too little
_LENGTH = 1000.0
_SMALLEST_SHARE = 0.02


class Guesses(NamedTuple):
    """How many of the surest guesses were right, and the scores of canaries that were not there and that were."""

    num_canaries: int
    num_guesses: int
    num_right: int
    scores: tuple[np.ndarray, np.ndarray]


def run_once(plan: Plan, num_canaries: int, seed: int | None, fits: Callable[..., Any] = fit) -> Guesses:
    """Fit the canaries that were there, and guess from the trace which ones they were.

    Canary i has a release along coordinate i alone, far longer than the clip norm, so canaries do not disturb each
    other. A tenth of them is guessed: the highest scores as there, as many lowest ones as not. The coins come from
    the operating system, or from ``seed``.
    """
    if plan.adjacency != "add_remove":
        raise ValueError(
            "An audit in one run removes canaries, so it audits plans with add/remove adjacency alone, got "
            f"{plan.adjacency!r}. Use mode 'step' or 'fits'."
        )
    alone = steps_alone(plan)
    coins = np.random.default_rng(secrets.randbits(128) if seed is None else derived_seed(seed, "coins"))
    there = coins.random(num_canaries) < 0.5
    length = _LENGTH * plan.clip_norm
    model = from_functions(lambda z: -0.5 * jnp.sum(z**2), lambda z, canary: length * z[canary], num_canaries)
    records = np.flatnonzero(there).astype(np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        trace = fits(model, records, alone, seed=derived_seed(seed, "one run"), progress=False).trace
    by_canary = np.moveaxis(trace.noisy_sums, 0, 1)[..., None].astype(np.float64)
    scores = step_scores(plan, by_canary, 0, "orthogonal")["likelihood ratio"]
    half = max(1, round(_GUESSED * num_canaries / 2))
    order = np.argsort(scores)
    num_right = int(np.sum(~there[order[:half]]) + np.sum(there[order[-half:]]))
    return Guesses(num_canaries, 2 * half, num_right, (scores[~there], scores[there]))


def one_run_noise_share(plan: Plan, guesses: Guesses, confidence: float) -> float:
    """The smallest share of the planned noise that the guesses refute; see :mod:`dpvi.auditing.bounds`."""

    def refuted(share: float) -> bool:
        promise = trade_off(scaled([plan.gradients], share), plan.adjacency).symmetric
        return is_refuted(promise, *guesses[:3], 1 - confidence)

    return smallest_refuted(refuted, _SMALLEST_SHARE)
