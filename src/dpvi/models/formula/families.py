"""Families of responses: what may be observed, its law given a linear predictor, and on which scale both are.

=====================  =====================================  ========  ==========================================
family                 response                               link      further parameters
=====================  =====================================  ========  ==========================================
``gaussian``           numeric or count column                identity  ``sigma``, the residual standard deviation
``student_t``          numeric or count column                identity  ``sigma``; 4 degrees of freedom, or given
``bernoulli``          boolean column, or two levels          logit     none
``binomial``           count column, and a column of trials   logit     none
``poisson``            count column                           log       none
``negative_binomial``  count column                           log       ``concentration``: variance μ + μ²/c
``gamma``              numeric column, lower bound above 0    log       ``shape``: standard deviation μ/√shape
``ordinal``            column with levels in rising order     logit     ``cutpoints`` between levels, no intercept
=====================  =====================================  ========  ==========================================

The linear predictor of a Gaussian response is in quarters of the response's declared range, from its middle. All other
linear predictors are as they are everywhere: log odds, and logarithms of a mean in the response's own units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from dpvi.models.formula.errors import FormulaError
from dpvi.models.formula.raw_columns import bounds_of
from dpvi.table import Boolean, Column, Count, Leveled, Numeric

LINKS = {
    "gaussian": "identity",
    "student_t": "identity",
    "bernoulli": "logit",
    "binomial": "logit",
    "poisson": "log",
    "negative_binomial": "log",
    "gamma": "log",
    "ordinal": "logit",
}
FAMILIES = tuple(LINKS)
_LARGEST_LOG_MEAN = 20.0  # beyond what a 32-bit Poisson sampler can count, and far beyond any declared bound


class Response(NamedTuple):
    """A response column under a family; with the identity as link its mean is middle + unit · linear predictor."""

    family: str
    name: str
    column: Column
    degrees_of_freedom: float

    @property
    def unit(self) -> float:
        """A quarter of the declared range, for a linear predictor in own units; one for all links but the identity."""
        if LINKS[self.family] != "identity":
            return 1.0
        lower, upper = bounds_of(self.name, self.column)
        return (upper - lower) / 4

    @property
    def middle(self) -> float:
        return sum(bounds_of(self.name, self.column)) / 2 if LINKS[self.family] == "identity" else 0.0

    @property
    def start(self) -> float:
        """Where the prior of the intercept is centred: the middle of the bounds, on the scale of the link."""
        if LINKS[self.family] != "log":
            return 0.0
        lower, upper = bounds_of(self.name, self.column)
        return (math.log(max(lower, 1.0 if self.family != "gamma" else lower)) + math.log(upper)) / 2

    @property
    def num_levels(self) -> int:
        return self.column.num_levels if isinstance(self.column, Leveled) else 2

    @property
    def label(self) -> str:
        """What a probability is the probability of."""
        if self.family == "bernoulli" and isinstance(self.column, Leveled):
            return f"{self.name} = {self.column.levels[1]}"
        return self.name

    def leaf(self, values: np.ndarray) -> np.ndarray:
        """What the model observes, from the encoded column."""
        if LINKS[self.family] == "identity":
            return values / self.column.upper * 2.0 - 1 if isinstance(self.column, Count) else values.astype(np.float64)
        if self.family == "gamma":
            lower, upper = bounds_of(self.name, self.column)
            return (lower + (values + 1) / 2 * (upper - lower)) / upper
        return values.astype(np.int32)

    def own(self, leaf: Any) -> Any:
        """Values in own units of what the model observes; levels stay positions."""
        if LINKS[self.family] == "identity":
            return self.middle + 2 * self.unit * leaf
        return leaf * bounds_of(self.name, self.column)[1] if self.family == "gamma" else leaf

    def law(self, linear: Any, further: Mapping[str, Any], trials: Any = None) -> Any:
        """The distribution of the leaf given the linear predictor."""
        match self.family:
            case "gaussian":
                return dist.Normal(linear / 2, further["sigma"] / 2)
            case "student_t":
                return dist.StudentT(self.degrees_of_freedom, linear / 2, further["sigma"] / 2)
            case "bernoulli":
                return dist.BernoulliLogits(linear)
            case "binomial":
                return dist.BinomialLogits(linear, total_count=trials)
            case "poisson":
                return dist.Poisson(jnp.exp(jnp.minimum(linear, _LARGEST_LOG_MEAN)))
            case "negative_binomial":
                mean = jnp.exp(jnp.minimum(linear, _LARGEST_LOG_MEAN))
                return dist.NegativeBinomial2(mean, further["concentration"])
            case "gamma":
                mean = jnp.exp(jnp.minimum(linear, _LARGEST_LOG_MEAN)) / bounds_of(self.name, self.column)[1]
                return dist.Gamma(further["shape"], further["shape"] / mean)
        return dist.OrderedLogistic(linear, further["cutpoints"])

    def mean(self, linear: Any, further: Mapping[str, Any], trials: Any = None) -> Any:
        """The expected response in own units; probabilities of all levels, last axis, for an ordinal one."""
        match LINKS[self.family]:
            case "identity":
                return self.middle + self.unit * linear
            case "log":
                return np.exp(np.minimum(linear, _LARGEST_LOG_MEAN))
        if self.family == "ordinal":
            above = _logistic(linear[..., None] - further["cutpoints"][..., None, :])
            ends = np.ones_like(linear)[..., None]
            return -np.diff(np.concatenate([ends, above, 0 * ends], axis=-1), axis=-1)
        return _logistic(linear) * (1 if trials is None else trials)


def checked_response(family: Any, name: str, column: Column, degrees_of_freedom: float) -> Response:
    """The response, or a sentence about which column the family needs."""
    if family not in FAMILIES:
        raise FormulaError(f"family must be one of {', '.join(map(repr, FAMILIES))}, got {family!r}.")
    numbers = degrees_of_freedom
    if isinstance(numbers, bool) or not isinstance(numbers, (int, float)) or not 1 <= numbers <= 1000:
        raise FormulaError(f"degrees_of_freedom must be a number from 1 to 1000, got {numbers!r}.")
    needed = _NEEDED[family]
    fits = {
        "gaussian": isinstance(column, (Numeric, Count)),
        "student_t": isinstance(column, (Numeric, Count)),
        "bernoulli": isinstance(column, Boolean) or (isinstance(column, Leveled) and column.num_levels == 2),
        "gamma": isinstance(column, Numeric) and column.lower > 0,
        "ordinal": isinstance(column, Leveled) and column.num_levels > 2,
    }
    if not fits.get(family, isinstance(column, Count)):
        raise FormulaError(
            f"family={family!r} needs {needed}; {name!r} is declared {_said(column)}. For such a response use "
            f"{_suggested(column)}."
        )
    return Response(family, name, column, float(degrees_of_freedom))


_NEEDED = {
    "gaussian": "a numeric or count column as response",
    "student_t": "a numeric or count column as response",
    "bernoulli": "a boolean column as response, or one with two levels, the second of which is modelled",
    "binomial": "a count column as response",
    "poisson": "a count column as response",
    "negative_binomial": "a count column as response",
    "gamma": "a numeric column with a lower bound above zero as response",
    "ordinal": "a column with three or more levels in rising order as response",
}


def _suggested(column: Column) -> str:
    if isinstance(column, Boolean) or (isinstance(column, Leveled) and column.num_levels == 2):
        return "family='bernoulli'"
    if isinstance(column, Leveled):
        return "family='ordinal', if its levels have an order"
    if isinstance(column, Count):
        return "family='poisson' or 'negative_binomial'"
    if isinstance(column, Numeric):
        return "family='gaussian' or 'student_t', or declare 0 and 1 a boolean"
    return "another column"


def _said(column: Column) -> str:
    if isinstance(column, Leveled):
        return f"{column.kind} with {column.num_levels} levels"
    return f"{column.kind} from {column.lower}" if isinstance(column, Numeric) else column.kind


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
