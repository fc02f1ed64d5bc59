"""Trade-off curves: below the truth, and nearly it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from dpvi.privacy.accounting import plan_delta, single_release
from dpvi.privacy.trade_off import gaussian_false_negative_rate, gaussian_signal_of, scaled, trade_off

RATES = np.array([1e-4, 0.003, 0.02, 0.1, 0.3, 0.5, 0.8, 0.97])


def one_step(sigma: float, rate: float, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both error rates of the test that looks for outputs above a threshold, exactly."""
    false_positives = ndtr(-thresholds / sigma)
    return false_positives, (1 - rate) * ndtr(thresholds / sigma) + rate * ndtr((thresholds - 1) / sigma)


def test_without_sampling_it_is_that_of_a_gaussian():
    curve = trade_off([single_release(2.0, 1.0, 3), single_release(5.0, 1.0, 7)])
    exact = gaussian_false_negative_rate(RATES, (3 / 4 + 7 / 25) ** 0.5)
    assert np.all(curve.false_negative_rate(RATES) <= exact + 1e-12)
    np.testing.assert_allclose(curve.false_negative_rate(RATES), exact, atol=2e-5)


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.5), (2.5, 0.5), (0.7, 0.01), (3.0, 0.9)])
def test_with_sampling_it_is_that_of_the_best_test_in_its_own_direction(sigma, rate):
    """The likelihood ratio grows with the output, so thresholds on it are the best tests there are."""
    curve = trade_off([single_release(sigma, rate, 1)])
    alpha, beta = one_step(sigma, rate, np.linspace(-2 * sigma, 1 + 3 * sigma, 30))
    bound = curve.false_negative_rate(alpha)
    assert np.all(bound <= beta + 1e-12)
    np.testing.assert_allclose(bound, beta, atol=1e-4)
    swapped = trade_off([single_release(sigma, rate, 1)])._replace(forward=curve.backward, backward=curve.forward)
    assert np.any(swapped.false_negative_rate(alpha) > beta + 1e-4)  # the other direction is no bound here
    assert np.all(curve.symmetric.false_negative_rate(alpha) <= bound + 1e-12)


def test_the_two_readings_of_a_curve_are_inverse():
    curve = trade_off([single_release(1.5, 0.3, 5)])
    for alpha in RATES:
        beta = float(curve.false_negative_rate(alpha))
        assert curve.false_positive_rate(1 - beta) == pytest.approx(alpha, rel=1e-6)


def test_it_holds_what_the_accountant_says_of_every_epsilon():
    releases = [single_release(1.2, 0.2, 20)]
    curve = trade_off(releases)
    for epsilon in (0.1, 1.0, 3.0):
        delta = max(float(np.interp(epsilon, curve.epsilons, side)) for side in (curve.forward, curve.backward))
        assert delta == pytest.approx(plan_delta(releases, epsilon), rel=2e-3)


def test_more_noise_never_lowers_the_curve():
    releases = [single_release(1.2, 0.2, 20)]
    curves = [trade_off(scaled(releases, share)).false_negative_rate(RATES) for share in (0.5, 0.8, 1.0, 1.5, 4.0)]
    assert np.all(np.diff(curves, axis=0) > 0)


def test_signals_of_points():
    assert gaussian_signal_of(0.2, gaussian_false_negative_rate(0.2, 0.7)) == pytest.approx(0.7)
    with pytest.raises(ValueError, match="share must be finite"):
        scaled([single_release(1.0, 1.0, 1)], 0.0)
