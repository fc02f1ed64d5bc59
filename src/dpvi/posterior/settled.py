"""Had a run settled when it ended? What the released gradients of its last half say.

The learning rate of most runs falls, so the iterates stand still at the end wherever they are: their drift tells
nothing of what is left. The gradient does. With ḡ_j the mean of the noisy ELBO gradients over the last half of the
steps, and F_j the Fisher information of q_ξ, which is the curvature of the ELBO once q fits,

    left_j  = |ḡ_j| / √F_j                what is left to go, in standard deviations of q
    error_j = sd(g_j) / (√n √F_j)         what the noise of n steps hides, in the same units

A parameter drifts if ``left`` is large and ḡ differs from zero by more than its noise. It is hidden if the noise is
larger than the interval that is reported: then nobody knows whether it drifts. In a run that has settled, ḡ is much
smaller than independent noise would make it, because what one step overshoots the next ones take back.

The constants below were chosen on simulated runs of seven models, 100 to 3,000 steps, two clip norms, two noise levels
and three optimisers. Of these they find 97 % that ended more than a standard deviation from their answer and over 99 %
whose widths were off by a factor of two. They warn of 2 % of those that ended near their answer with the right widths.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.stats

from dpvi.declared.validation import ConvergenceWarning
from dpvi.families.base import Family
from dpvi.families.meanfield import MeanField
from dpvi.posterior.tail import converged_tail
from dpvi.release.trace import Trace

LEFT = 0.7  # standard deviations that are worth a warning
HIDDEN = 1.3  # times the reported standard deviation
_LEVEL = 0.1  # of the test that some gradient is not zero, over all parameters together
_NATURAL = ("Natural", "AlignedNatural")  # their steps are F⁻¹ times the gradient
NETWORK = 2**16  # parameters: a network learns to the end


class Settling(NamedTuple):
    """One entry per variational parameter."""

    left: np.ndarray  # standard deviations left to go; NaN where the parameter has no unit
    drifting: np.ndarray
    hidden: np.ndarray

    @property
    def sentence(self) -> str:
        """What a user is told, empty where the run had settled."""
        size = len(self.left)
        if self.drifting.any():
            left = np.nan_to_num(self.left[self.drifting]).max()
            far = f", the furthest by about {left:.2g} standard deviations" if left > LEFT else ""
            return (
                f"{int(self.drifting.sum())} of {size} variational parameters were still drifting when the run "
                f"ended{far}; intervals do not include that. Take more steps or a larger learning rate, and scale data "
                "with public constants so that parameters are of size one. A plan without num_steps takes no steps at "
                "all."
            )
        if self.hidden.any():
            return (
                f"The noise of the steps is larger than the intervals of {int(self.hidden.sum())} of {size} "
                "variational parameters, too large to tell whether they were still drifting when the run ended. Take "
                "more steps, a larger sampling rate or a larger epsilon."
            )
        return ""


def settling(
    trace: Trace, inverse_fisher: np.ndarray, widths: np.ndarray, sampling_rate: float, natural: bool = False
) -> Settling:
    """Which parameters had settled, from the block sums of a trace.

    Parameters
    ----------
    trace
        Of a run that moved.
    inverse_fisher
        1/F_j, NaN where it is not known: there the drift of the iterates themselves decides, once ḡ is not zero.
    widths
        The reported standard deviation of each entry of ξ, NaN where there is none.
    sampling_rate
        κ: the trace holds gradients at batch scale.
    natural
        Whether the gradients of the trace are F⁻¹∇.
    """
    start, count = _last_half(trace)
    mean = trace.blocks.gradient[start:].sum(axis=0) / count
    variance = np.maximum(trace.blocks.gradient_squared[start:].sum(axis=0) / count - mean**2, 0)
    error = np.sqrt(variance / count)
    unit = (inverse_fisher**-0.5 if natural else np.sqrt(inverse_fisher)) / sampling_rate
    critical = scipy.stats.t.isf(_LEVEL / (2 * len(mean)), max(count - 1, 1))
    significant = np.abs(mean) > critical * error
    left = np.abs(mean) * unit
    known = np.isfinite(inverse_fisher)
    material = left > LEFT
    if not known.all():
        material = np.where(known, material, ~converged_tail(trace, 1.0, relative=True).converged)
    hidden = error * unit * np.sqrt(inverse_fisher) > HIDDEN * widths
    return Settling(left, significant & material, hidden)


def note_if_unsettled(
    trace: Trace, inverse_fisher: np.ndarray, widths: np.ndarray, sampling_rate: float, estimator: str
) -> str:
    """A warning where a run had not settled, and the same sentence to keep; empty where it had, or for a network.

    Parameters are those of :func:`settling`, and the name of the run's gradient estimator.
    """
    if len(trace.final) >= NETWORK or not np.all(np.isfinite(trace.final)):
        return ""
    sentence = settling(trace, inverse_fisher, widths, sampling_rate, estimator in _NATURAL).sentence
    if sentence:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=4)
    return sentence


def units(trace: Trace, family: Family) -> tuple[np.ndarray, np.ndarray]:
    """1/F of every entry of ξ, and the standard deviation that is reported; NaN where there is none.

    Of a dense family only the locations have both.
    """
    start, count = _last_half(trace)
    parameters = jnp.asarray((trace.blocks.phi[start:].sum(axis=0) / count).astype(trace.final.dtype))
    size = len(np.asarray(family.location(parameters)))
    inverse, widths = np.full(len(parameters), np.nan), np.full(len(parameters), np.nan)
    inverse[:size] = np.asarray(family.variances(parameters), np.float64)
    widths[:size] = np.sqrt(inverse[:size] + converged_tail(trace).variance[:size])
    if isinstance(family, MeanField):
        inverse = np.asarray(family.inverse_fisher(parameters), np.float64)
    return inverse, widths


def _last_half(trace: Trace) -> tuple[int, float]:
    """The first block of the last half of the steps that moved, and how many steps there are from it on."""
    until_the_end = trace.blocks.count[::-1].cumsum()[::-1]
    start = int(np.flatnonzero(until_the_end >= until_the_end[0] / 2)[-1])
    return start, float(until_the_end[start])
