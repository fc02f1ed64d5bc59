"""Records for audits: a canary in the worst place there is, a background beside it, and what the release says of it.

The canary's release is far longer than the clip norm C, so that clipping leaves it at C, along the first coordinate.
All other records are known to whoever guesses. A background that is

* ``"orthogonal"`` lies along another coordinate and tells nothing of the canary: the worst case of the accountant;
* ``"opposed"`` lies along the canary's coordinate with the other sign. Where a sum is divided by the number of records
  drawn, or where a canary takes the place of another record, the canary then counts twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from dpvi.declared.columns import Column, Constant, Levels, Numeric, OneHot
from dpvi.declared.plan import HISTOGRAMS, Plan
from dpvi.privacy.privacy_loss import loss_at

BACKGROUNDS = ("orthogonal", "opposed")
RELEASE_SIZE = 2
_LENGTH = 1000.0  # of a release before clipping, in clip norms


def neighbours(plan: Plan, num_background: int, background: str) -> tuple[np.ndarray, np.ndarray]:
    """Two data sets of releases, (records, 2): without the canary and with it (under substitution, with its mirror)."""
    canary = _LENGTH * plan.clip_norm * np.array([[1.0, 0.0]])
    direction = [-1.0, 0.0] if background == "opposed" else [0.0, 1.0]
    others = np.tile(plan.clip_norm * np.array(direction), (num_background, 1))
    mirror = -canary if plan.adjacency == "substitute" else canary[:0]
    return np.concatenate([others, mirror]), np.concatenate([others, canary])


def step_scores(plan: Plan, noisy_sums: np.ndarray, num_background: int, background: str) -> dict[str, np.ndarray]:
    """Statistics of steps, (trials, steps, r), each larger where the canary is there.

    The likelihood ratio is the most powerful statistic of the mechanism that is promised: the sum over steps of
    log((1 − κ) + κ exp((x − ½)/σ²)), with x the noisy sum along the canary's direction, in clip norms, less what the
    background is expected to add. The spread over steps finds noise that steps share.
    """
    expected = -plan.sampling_rate * num_background if background == "opposed" else 0.0
    x = noisy_sums[..., 0] / plan.clip_norm - expected
    direction = "substitute" if plan.adjacency == "substitute" else "remove"
    scores = {"likelihood ratio": loss_at(x, plan.noise_multiplier, plan.sampling_rate, direction).sum(axis=1)}
    if x.shape[1] > 1 and plan.sampling_rate < 1:
        scores["spread over steps"] = np.ptp(x, axis=1)
    return scores


def covariate_rows(columns: Sequence[Column], last: bool) -> np.ndarray:
    """One row whose columns count in their first bin, or in their last."""
    values: list[float] = []
    for column in columns:
        match column:
            case Numeric():
                values.append(column.upper if last else column.lower)
            case Levels():
                values.append(column.values[-1 if last else 0])
            case OneHot():
                indicators = np.eye(column.levels)[-1 if last else 0]
                values.extend(indicators[1:] if column.reference else indicators)
            case Constant():
                values.append(column.value)
    return np.array([values])


def count_score(plan: Plan, noisy_counts: np.ndarray, num_background: int) -> float:
    """The log likelihood ratio of noisy histograms, where the canary counts in the first bin of every column."""
    first, total, release = 0, 0.0, plan.release(HISTOGRAMS)
    bins = [column.bins for column in plan.covariates or () if column.bins] or [1]
    for size in bins:
        total += noisy_counts[first] - (num_background if size == 1 else 0)
        first += size
    x = np.array([total / len(bins)])
    return float(loss_at(x, release.noise_multiplier, 1.0, "remove")[0])


def derived_seed(seed: int | None, *names: object) -> int | None:
    """A seed of its own for every part of an audit, or none: then every part takes a key from the operating system."""
    if seed is None:
        return None
    digest = hashlib.sha256(" ".join(map(str, ("audit", seed, *names))).encode()).digest()
    return int.from_bytes(digest[:16], "big")
