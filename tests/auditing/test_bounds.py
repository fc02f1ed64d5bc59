"""Bounds from counts: right with the stated confidence, and sharp."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_rates

from dpvi.auditing.bounds import (
    Counts,
    choose_test,
    clopper_pearson,
    count,
    epsilon_of_any_mechanism,
    judged,
    noise_share,
)
from dpvi.auditing.one_run_bound import is_refuted
from dpvi.privacy.accounting import single_release
from dpvi.privacy.trade_off import gaussian_false_negative_rate, trade_off

CONFIDENCE = 0.9


def test_clopper_pearson_is_that_of_scipy():
    for successes in (0, 3, 50, 99, 100):
        exact = scipy.stats.binomtest(successes, 100).proportion_ci(0.9, "exact").high
        assert clopper_pearson(np.array(successes), 100, 0.95) == pytest.approx(exact)


@pytest.mark.parametrize(("sigma", "rate", "count"), [(2.0, 1.0, 4), (1.5, 0.5, 6), (6.0, 0.2, 100)])
def test_a_point_on_a_curve_needs_exactly_its_noise(sigma, rate, count):
    """The noise share is found again from a point of the curve, whatever the share was."""
    for share in (0.6, 1.0, 1.7):
        curve = trade_off([single_release(share * sigma, rate, count)])
        alpha = 0.2
        found = noise_share(
            [single_release(sigma, rate, count)], "add_remove", alpha, float(curve.false_negative_rate(alpha))
        )
        assert share * (1 - 1e-6) <= found <= share * 1.002


def test_nothing_is_refuted_by_guessing():
    assert noise_share([single_release(1.0, 1.0, 1)], "add_remove", 0.5, 0.5) == math.inf


def test_no_noise_at_all_is_refuted_down_to_what_is_looked_for():
    assert noise_share([single_release(1.0, 1.0, 1)], "add_remove", 1e-9, 1e-9) < 0.1


def test_epsilon_of_any_mechanism_takes_the_better_side():
    assert epsilon_of_any_mechanism(0.1, 0.5, 0.0) == pytest.approx(math.log(5))
    assert epsilon_of_any_mechanism(0.5, 0.1, 0.0) == pytest.approx(math.log(5))
    assert epsilon_of_any_mechanism(0.6, 0.6, 0.0) == 0.0


def accusations(noise: float, repeats: int, trials: int) -> int:
    """How often a Gaussian mechanism with ``noise`` times the promised noise is accused, signal 1 being promised."""
    rng, releases = np.random.default_rng(2), [single_release(1.0, 1.0, 1)]
    curve, accused = trade_off(releases), 0
    for _ in range(repeats):
        scores = {"output": (rng.normal(0, noise, trials), rng.normal(1, noise, trials))}
        choosing, judging = judged(scores)
        name, threshold = choose_test(choosing, {"output": curve}, CONFIDENCE)
        alpha, beta = count(judging[name], threshold).upper_rates(CONFIDENCE)
        accused += bool(curve.false_negative_rate(alpha) > beta)
    return accused


def test_honest_mechanisms_are_rarely_accused_and_others_nearly_always():
    """Of 300 honest audits at most a tenth may accuse; 20 % less noise is found nearly always."""
    assert accusations(1.0, 300, 2_000) <= scipy.stats.binom.isf(1e-4, 300, 1 - CONFIDENCE)
    assert accusations(0.8, 60, 2_000) >= 55


def test_the_bounds_hold_together():
    """Both rates lie below their bounds with the stated confidence; without halving the error they would not."""
    rng, alpha, beta, trials, repeats = np.random.default_rng(3), 0.3, 0.4, 500, 20_000
    wrong = rng.binomial(trials, [alpha, beta], (repeats, 2))
    pairs = {tuple(each): Counts(*map(int, each), trials) for each in np.unique(wrong, axis=0)}
    bounds = np.array([pairs[tuple(each)].upper_rates(CONFIDENCE) for each in wrong])
    held = np.mean(np.all(bounds >= [alpha, beta], axis=1))
    assert held >= CONFIDENCE
    each = clopper_pearson(wrong, trials, CONFIDENCE)
    assert np.mean(np.all(each >= [alpha, beta], axis=1)) < CONFIDENCE


def guesses(signal: float, rng: np.random.Generator, canaries: int = 1000, share: float = 0.1) -> tuple[int, int, int]:
    there = rng.random(canaries) < 0.5
    scores = rng.normal(signal * there, 1.0)
    order, half = np.argsort(scores), int(share * canaries / 2)
    return canaries, 2 * half, int(np.sum(~there[order[:half]]) + np.sum(there[order[-half:]]))


def test_one_run_rarely_accuses_the_honest_and_finds_twice_the_signal():
    promise, rng = trade_off([single_release(1.0, 1.0, 1)]).symmetric, np.random.default_rng(5)
    honest = sum(is_refuted(promise, *guesses(1.0, rng), 0.05) for _ in range(200))
    assert honest <= scipy.stats.binom.isf(1e-4, 200, 0.05)
    assert sum(is_refuted(promise, *guesses(2.2, rng), 0.05) for _ in range(40)) >= 36


def test_one_run_of_randomised_response_is_the_binomial_bound_at_least():
    """Of a mechanism that is ε-private and no better, right guesses are binomial; the bound may not be below that."""
    epsilon, canaries = 1.0, 400
    promise = trade_off([single_release(1.0, 1.0, 1)]).symmetric._replace(
        epsilons=np.array([epsilon]), forward=np.zeros(1), backward=np.zeros(1)
    )
    probability = math.exp(epsilon) / (1 + math.exp(epsilon))
    for right in range(280, 340, 10):
        exact = scipy.stats.binom.sf(right - 1, canaries, probability)
        if is_refuted(promise, canaries, canaries, right, 0.05):
            assert exact < 0.05
    assert is_refuted(promise, canaries, canaries, 340, 0.05)


def test_curves_of_simulated_releases_agree_with_the_accountant():
    """The whole chain on numbers from NumPy: sampled Gaussian steps, their likelihood ratio, the promised curve."""
    from dpvi.privacy.privacy_loss import loss_at

    sigma, rate, steps, trials = 1.5, 0.5, 4, 40_000
    rng = np.random.default_rng(7)
    noise = sigma * rng.normal(size=(2, trials, steps))
    noise[1] += rng.random((trials, steps)) < rate
    scores = loss_at(noise, sigma, rate, "remove").sum(axis=-1)
    curve = trade_off([single_release(sigma, rate, steps)])
    for threshold in (-0.5, 0.3, 1.2):
        alpha = np.mean(scores[0] > threshold)
        beta = float(curve.false_negative_rate(alpha))
        # the rate at which the curve is read is itself measured: its slope there is exp(threshold)
        spread = np.sqrt(beta * (1 - beta) + math.exp(2 * threshold) * alpha * (1 - alpha)) / math.sqrt(trials)
        assert abs(np.mean(scores[1] <= threshold) - beta) < 4 * spread
    assert_rates(np.sum(scores[0] > 0.3), trials, np.mean(scores[0] > 0.3))


def test_signals_and_curves_speak_of_the_same_thing():
    curve = trade_off([single_release(1.0, 1.0, 1)])
    np.testing.assert_allclose(curve.false_negative_rate(0.3), gaussian_false_negative_rate(0.3, 1.0), atol=1e-5)
