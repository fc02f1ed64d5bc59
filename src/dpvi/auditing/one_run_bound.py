"""What guesses about many canaries of one run refute.

Each of m canaries is in the data with probability ½, independently. From the one release somebody guesses of some of
them whether they were there. If the mechanism keeps the trade-off curve f, with f̄(x) = 1 − f(x), then the probabilities
p_i of exactly i right guesses among k obey, for every c,

    Σ_{i ≥ c} (i/m) p_i  ≤  f̄( Σ_{i ≥ c−1} ((k − i)/m) p_i ),

because a right guess of one canary and a wrong one are the two sides of one test. Suppose that c or more right guesses
had probability τ. Then the inequalities, applied from c downwards, give the least that Σ (k/m) p_i can be. It is k/m.
Where the least is more, c or more right guesses have probability below τ.

References
----------
Steinke, Nasr and Jagielski (2023), Privacy auditing with one (1) training run. Mahloujifar, Melis and Chaudhuri (2024),
Auditing f-differential privacy in one run, whose recursion this is. The library jax_privacy has it, too, for Gaussian
mechanisms (``auditing.py``).
"""

from __future__ import annotations

from dpvi.privacy.trade_off import TradeOff


def is_refuted(promise: TradeOff, num_canaries: int, num_guesses: int, num_right: int, significance: float) -> bool:
    """Whether so many right guesses have probability below ``significance`` for whoever keeps ``promise``.

    Guarantees
    ----------
    A mechanism that keeps the curve is refuted with probability below ``significance``, whatever the other canaries do
    to what is released about one. The curve must hold for both errors of a test: see ``TradeOff.symmetric``.

    Examples
    --------
    >>> from dpvi.privacy.accounting import single_release
    >>> from dpvi.privacy.trade_off import trade_off
    >>> promise = trade_off([single_release(1.0, 1.0, 1)]).symmetric
    >>> is_refuted(promise, 1000, 100, 80, 0.05), is_refuted(promise, 1000, 100, 99, 0.05)
    (False, True)
    """
    right = significance * num_right / num_canaries
    wrong = significance * (num_guesses - num_right) / num_canaries
    for i in range(num_right - 1, -1, -1):
        larger = promise.false_positive_rate(right)
        if larger <= wrong:  # neither can grow any more
            break
        right = min(1.0, right + i / (num_guesses - i) * (larger - wrong))
        wrong = larger
    return right + wrong > num_guesses / num_canaries
