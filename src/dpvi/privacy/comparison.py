"""What other accountants would say, side by side: for teaching, never for a guarantee.

* **privacy loss distributions**: tight; what :func:`dpvi.plan` uses.
* **Rényi (moments accountant)**: a bound, typically 8 to 10 % more noise.
* **Gaussian limit (GDP)**: an estimate. It is often *below* the truth, so it proves nothing.
* **advanced composition with amplification**: the bound on the DP-ADVI poster. With δ' = δ/2, s the sensitivity in clip
  norms and σ the noise multiplier relative to the clip norm,

      δ_subs = (δ - δ') / (T κ)            ε_subs = s √(2 ln(1.25/δ_subs)) / σ
      ε_iter = ln(1 + κ (exp(ε_subs) - 1))  ε_tot  = √(2 T ln(1/δ')) ε_iter + T ε_iter (exp(ε_iter) - 1)

  The poster adds noise of variance 4 c² σ_δ² for sensitivity 2c (substitution): its σ_δ is our σ/2. Under add/remove
  the sensitivity is c and σ_δ = σ. The classical Gaussian bound behind ε_subs holds only for ε_subs ≤ 1; beyond, the
  figure is what the formula gives and no bound.

References
----------
Mironov, Talwar and Zhang (2019), Rényi differential privacy of the sampled Gaussian mechanism. Bu et al. (2020), Deep
learning with Gaussian differential privacy. Dwork and Roth (2014), theorems 3.20 and A.1. Jälkö, Dikmen and Honkela
(2017), Differentially private variational inference for non-conjugate models, and the DP-ADVI poster.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from dpvi.declared import validation
from dpvi.declared.plan import GaussianRelease
from dpvi.privacy import accounting
from dpvi.privacy.calibration import release_noise_multiplier, smallest_safe
from dpvi.privacy.gaussian import gaussian_epsilon, limit_signal, sensitivity

_LARGE = 1e300  # stands for infinity inside the root finder
_GROUP_NOTE = "Substitution as two add/remove changes (group privacy)."


class ComparisonRow(NamedTuple):
    """One accountant's figure. ``kind`` is ``"tight"``, ``"bound"`` or ``"estimate"``."""

    method: str
    epsilon: float
    noise_multiplier: float
    kind: str
    note: str


class _Figure(NamedTuple):
    epsilon: float
    kind: str
    note: str


_Method = Callable[[GaussianRelease, float, str], _Figure]


def compare(
    noise_multiplier: float, delta: float, sampling_rate: float, num_steps: int, adjacency: str = "add_remove"
) -> list[ComparisonRow]:
    """The ε that each accountant claims for the same noise.

    Parameters
    ----------
    noise_multiplier, delta, sampling_rate, num_steps, adjacency
        As in :func:`dpvi.privacy.epsilon`.

    Returns
    -------
    list of ComparisonRow
        Tightest first.

    Examples
    --------
    >>> [(row.method, row.kind) for row in compare(4.0, 1e-5, 0.01, 1000)][:2]
    [('privacy loss distributions', 'tight'), ('Rényi (moments accountant)', 'bound')]
    """
    release = accounting.single_release(noise_multiplier, sampling_rate, num_steps)
    delta, adjacency = validation.delta(delta), validation.adjacency(adjacency)
    rows = []
    for name, method in _METHODS.items():
        figure = method(release, delta, adjacency)
        rows.append(ComparisonRow(name, figure.epsilon, release.noise_multiplier, figure.kind, figure.note))
    return rows


def compare_noise(
    epsilon: float, delta: float, sampling_rate: float, num_steps: int, adjacency: str = "add_remove"
) -> list[ComparisonRow]:
    """The noise multiplier that each accountant would ask for to promise the same (``epsilon``, ``delta``).

    Examples
    --------
    >>> rows = compare_noise(1.0, 1e-5, 0.01, 1000)
    >>> rows[0].noise_multiplier < rows[1].noise_multiplier < rows[3].noise_multiplier
    True
    """
    exact = release_noise_multiplier(epsilon, delta, sampling_rate, num_steps, adjacency)
    epsilon, rows = validation.epsilon(epsilon), []
    for name, method in _METHODS.items():
        spent = partial(_spent, method, delta, sampling_rate, num_steps, adjacency)
        multiplier = exact if method is _loss_distribution else smallest_safe(spent, epsilon, exact)
        figure = method(accounting.single_release(multiplier, sampling_rate, num_steps), delta, adjacency)
        rows.append(ComparisonRow(name, epsilon, multiplier, figure.kind, figure.note))
    return rows


def _spent(
    method: _Method, delta: float, sampling_rate: float, num_steps: int, adjacency: str, multiplier: float
) -> float:
    release = accounting.single_release(multiplier, sampling_rate, num_steps)
    return min(method(release, delta, adjacency).epsilon, _LARGE)


def _loss_distribution(release: GaussianRelease, delta: float, adjacency: str) -> _Figure:
    return _Figure(accounting.plan_epsilon([release], delta, adjacency), "tight", "Used for every guarantee of dpvi.")


def _gaussian_limit(release: GaussianRelease, delta: float, adjacency: str) -> _Figure:
    signal = limit_signal([release], adjacency)
    figure = gaussian_epsilon(signal, delta) if signal < 1e6 else math.inf
    if release.sampling_rate == 1:
        return _Figure(figure, "tight", "Exact without sampling.")
    return _Figure(figure, "estimate", "Not a bound: it can lie below the true epsilon.")


def _renyi(release: GaussianRelease, delta: float, adjacency: str) -> _Figure:
    """Rényi accounting.

    dp-accounting's RDP ignores that substitution doubles the sensitivity (and refuses Poisson sampling with it), so
    substitution goes through group privacy here: twice ε₁ at a δ₁ with (1 + exp(ε₁)) δ₁ ≤ δ.
    """
    accountant = _renyi_accountant(release)
    if adjacency == "add_remove":
        return _Figure(float(accountant.get_epsilon(delta)), "bound", "Loses in the conversion to (epsilon, delta).")
    if release.sampling_rate == 1:
        doubled = GaussianRelease(release.name, 1.0, release.count, release.noise_multiplier / 2, 1.0)
        return _Figure(float(_renyi_accountant(doubled).get_epsilon(delta)), "bound", "With twice the sensitivity.")
    return _Figure(_group_epsilon(accountant.get_epsilon, delta), "bound", _GROUP_NOTE)


def _group_epsilon(single: Callable[[float], float], delta: float) -> float:
    """Smallest 2 ε₁ over δ₁ = δ / 2^k for which two changes together stay within δ."""
    for halvings in range(1, 200):
        part = math.ldexp(delta, -halvings)
        value = float(single(part))
        if value < 700 and (1 + math.exp(value)) * part <= delta:
            return 2 * value
    return math.inf


def _renyi_accountant(release: GaussianRelease) -> Any:
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise ImportError(
            "Comparing accountants needs the package dp-accounting; install it with "
            "pip install 'dp-accounting>=0.6,<0.7'."
        ) from None
    event = dp_accounting.GaussianDpEvent(release.noise_multiplier)
    if release.sampling_rate < 1:
        event = dp_accounting.PoissonSampledDpEvent(release.sampling_rate, event)
    return rdp.RdpAccountant().compose(event, release.count)


def _advanced_composition(release: GaussianRelease, delta: float, adjacency: str) -> _Figure:
    rate, count, extra = release.sampling_rate, release.count, delta / 2
    per_subset = (delta - extra) / (count * rate)
    log_term = math.log(1.25 / min(per_subset, 1.0))
    subset = sensitivity(adjacency) * math.sqrt(2 * log_term) / release.noise_multiplier
    each = subset + math.log(rate) if subset > 600 else math.log1p(rate * math.expm1(subset))
    if each > 600:
        return _Figure(math.inf, "bound", "Overflows: the noise is far too small for this bound.")
    total = math.sqrt(2 * count * math.log(1 / extra)) * each + count * each * math.expm1(each)
    if subset > 1:
        return _Figure(
            total, "estimate", f"Void: epsilon_subs = {subset:.3g} > 1 is outside the classical Gaussian bound."
        )
    return _Figure(total, "bound", "As on the DP-ADVI poster, with delta' = delta/2.")


_METHODS: dict[str, _Method] = {
    "privacy loss distributions": _loss_distribution,
    "Rényi (moments accountant)": _renyi,
    "Gaussian limit (GDP)": _gaussian_limit,
    "advanced composition": _advanced_composition,
}
