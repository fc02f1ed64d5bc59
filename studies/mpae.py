"""Mean proportional absolute error (DPVIm, section 4.1, equation 23): how much of the way to the optimum is left."""

from __future__ import annotations

from typing import Any

import numpy as np


def mpae(iterates: Any, initial: Any, optimum: Any) -> np.ndarray:
    """Mean over parameters of the distance to the optimum, each in units of where it started.

    With ξ⁽ᵗ⁾ = ``iterates``, ξ⁽⁰⁾ = ``initial``, ξ* = ``optimum`` and D the length of the last axis:
    MPAE = (1/D) Σ_d |ξ_d⁽ᵗ⁾ − ξ_d*| / |ξ_d⁽⁰⁾ − ξ_d*|. It is 0 at the optimum and 1 at the start; nothing bounds it
    from above. The paper reports locations and scales (on their own, constrained scale) separately, takes ξ⁽⁰⁾ from
    each run's own start and ξ* from a non-private fit, and then the mean and its standard error over runs.

    Parameters
    ----------
    iterates
        Parameters, (…, D); leading axes are steps, runs or both.
    initial, optimum
        Start and optimum, (D,) or anything that broadcasts against ``iterates``.

    Returns
    -------
    numpy.ndarray
        One error for each leading index of ``iterates``.

    Notes
    -----
    ===========================  ==========================================================
    edge                         what happens
    ===========================  ==========================================================
    a parameter starts at ξ*     ``ValueError`` naming it: its proportion is not defined
    an iterate is NaN            its error is NaN: a run that diverged is not left out
    ===========================  ==========================================================

    References
    ----------
    Jälkö et al. (2023), equation 23.

    Examples
    --------
    >>> float(mpae([1.5, 3.0], initial=[2.0, 4.0], optimum=[1.0, 2.0]))
    0.5
    """
    position, start, end = (np.asarray(value, np.float64) for value in (iterates, initial, optimum))
    if position.ndim == 0 or 0 in position.shape[-1:]:
        raise ValueError(f"iterates must have parameters along their last axis, got shape {position.shape}.")
    if not (np.all(np.isfinite(start)) and np.all(np.isfinite(end))):
        raise ValueError("initial and optimum must be finite: every error is measured against them.")
    distance = np.abs(start - end)
    if np.any(distance == 0):
        where = sorted({int(index[-1]) for index in np.argwhere(np.broadcast_to(distance, position.shape) == 0)})
        raise ValueError(
            f"Parameters {where} start at the optimum, so their proportional error is not defined. Leave them out, or "
            "start elsewhere."
        )
    return np.mean(np.abs(position - end) / distance, axis=-1)
