"""Before anything is spent: how wide intervals will be, from declarations and simulation alone."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from dpvi.declared import validation
from dpvi.declared.validation import IntervalWarning, PrivacyWarning
from dpvi.models.formula import FormulaModel
from dpvi.models.formula.priors import PRIOR_SCALE
from dpvi.models.numpyro import NumPyroModel
from dpvi.privacy import plan as make_plan
from dpvi.regression.assumed import AssumedLaw
from dpvi.regression.draws import in_own_units
from dpvi.regression.fitted import RegressionResult
from dpvi.regression.glm import declared
from dpvi.run.fitting import fit
from dpvi.table import Schema

_CURVATURE_ROWS = 4000
_LARGE = 10.0**9
_MOST_CELLS = 100


class Preview(NamedTuple):
    """Widths of intervals to be expected, in units of the coefficients; prints as a table.

    Attributes
    ----------
    names
        Coefficients, and what the family has besides.
    epsilon, num_records
        The grid.
    width
        (ε, number of records, coefficient): of the interval of a private run.
    nonprivate
        (number of records, coefficient): of the same model without privacy.
    probability
        Of the intervals.
    seconds
        What one cell took.
    """

    formula: str
    family: str
    delta: float
    names: tuple[str, ...]
    epsilon: tuple[float, ...]
    num_records: tuple[int, ...]
    width: np.ndarray
    nonprivate: np.ndarray
    probability: float
    seconds: float

    def records_needed(self, name: str, width: float, epsilon: float | None = None) -> float:
        """How many records make the interval of ``name`` as narrow as ``width``; without ε, in a run without privacy.

        A squared width is about a/N + b/N²: a belongs to sampling and b to privacy. Both are found from the cells of
        the preview, so that an answer far beyond its numbers of records is a guess.
        """
        index = self._place(name)
        sizes = np.array(self.num_records, np.float64)
        a = float(np.mean(self.nonprivate[:, index] ** 2 * sizes))
        if epsilon is None:
            return a / width**2
        row = self.epsilon.index(epsilon) if epsilon in self.epsilon else None
        if row is None:
            raise ValueError(f"epsilon must be one of {self.epsilon}, which were previewed, got {epsilon!r}.")
        rest = np.maximum(self.width[row, :, index] ** 2 - a / sizes, 0.0)
        b = float(np.mean(rest * sizes**2))
        return (a + np.sqrt(a**2 + 4 * b * width**2)) / (2 * width**2)

    def to_pandas(self) -> Any:
        """A data frame with one row per coefficient, number of records and ε; ε = inf is without privacy."""
        import pandas

        rows = []
        for place, size in enumerate(self.num_records):
            for index, name in enumerate(self.names):
                rows += [(name, size, np.inf, self.nonprivate[place, index])]
                rows += [(name, size, each, self.width[row, place, index]) for row, each in enumerate(self.epsilon)]
        return pandas.DataFrame(rows, columns=["coefficient", "num_records", "epsilon", "width"])

    def plot(self, names: Sequence[str] | None = None) -> Any:
        """A figure: width by ε, one panel per coefficient and one line per number of records."""
        from dpvi.regression.plots import plot_preview

        return plot_preview(self, names)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        level = f"{100 * self.probability:g} %"
        lines = [f"{self.formula}, family {self.family}: expected widths of {level} intervals, δ = {self.delta:g}"]
        lines.append("From declarations and simulated records; no record was read.")
        wide = max([len("coefficient"), *map(len, self.names)])
        heads = ["without", *(f"ε = {each:g}" for each in self.epsilon)]
        for place, size in enumerate(self.num_records):
            lines += ["", f"{size} records"]
            lines.append(f"{'coefficient':<{wide}}" + "".join(f"  {head:>10}" for head in heads))
            for index, name in enumerate(self.names):
                cells = [self.nonprivate[place, index], *self.width[:, place, index]]
                lines.append(f"{name:<{wide}}" + "".join(f"  {cell:>10.4g}" for cell in cells))
        return "\n".join([*lines, "", f"{self.seconds:.0f} seconds per cell."])

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"There is no coefficient {name!r}; there are {', '.join(map(repr, self.names))}.")
        return self.names.index(name)


def preview(
    formula: str,
    schema: Schema | str | Path,
    *,
    family: str = "bernoulli",
    num_records: Sequence[int] | int,
    epsilon: Sequence[float] | float,
    delta: float,
    marginals: Mapping[str, Any] | None = None,
    correlation: Mapping[tuple[str, str], float] | None = None,
    effects: Mapping[str, float] | None = None,
    probability: float = 0.95,
    repeats: int = 1,
    seed: int = 0,
    trials: str | None = None,
    offset: str | None = None,
    prior: Mapping[str, tuple[float, float]] | None = None,
    prior_scale: float = PRIOR_SCALE,
    degrees_of_freedom: float = 4.0,
) -> Preview:
    """The widths of intervals that :func:`dpvi.glm` will have, before a record is read and anything is spent.

    Records are simulated from the declarations, and each cell of the grid is a real run on them. How wide intervals are
    depends on what is assumed: without ``marginals`` levels are equally frequent, numbers are normal around the middle
    of their bounds with a sixth of the range as standard deviation, columns know nothing of each other and have no
    effect. The more is declared of what is publicly known, the nearer the widths are.

    Parameters
    ----------
    formula, schema, family, trials, offset, prior, prior_scale, degrees_of_freedom
        As :func:`dpvi.glm` takes them.
    num_records, epsilon, delta
        The grid: every number of records with every ε.
    marginals
        ``{column: …}``: ``(mean, standard deviation)`` or a list of quantiles of a number, ``{level: probability}``,
        the probability of a boolean. The response may be among them, by which its level and spread are set.
    correlation
        ``{(column, column): r}``.
    effects
        ``{coefficient: value}`` per unit of the column, zero where nothing is said.
    probability
        Of the intervals.
    repeats
        Runs per cell, of which the mean is taken: a width differs from run to run.
    seed
        Of the simulation.

    Guarantees
    ----------
    No record is read, so nothing is spent.
    """
    model = FormulaModel(
        formula, declared(schema), family, trials, offset, prior or {}, prior_scale, degrees_of_freedom
    )
    law = AssumedLaw(model, marginals or {}, correlation or {}, effects or {})
    sizes = tuple(validation.whole_number("num_records", each, 10) for each in np.atleast_1d(num_records).tolist())
    budgets = tuple(float(each) for each in np.atleast_1d(epsilon).tolist())
    repeats = validation.whole_number("repeats", repeats)
    if len(sizes) * len(budgets) * repeats > _MOST_CELLS:
        raise ValueError(f"A preview has at most {_MOST_CELLS} runs; ask for fewer numbers of records or epsilons.")
    plans = [make_plan(each, delta, covariates=model.covariates()) for each in budgets]
    start, names, found = time.perf_counter(), (), []
    for plan in plans:
        for size in sizes:
            widths = []
            for repeat in range(repeats):
                table = _run(model, law.records(size, seed + repeat), plan, seed + repeat).summary(probability)
                names = table.names
                widths.append(table.upper - table.lower)
            found.append(np.mean(widths, axis=0))
    seconds = (time.perf_counter() - start) / (len(found) * repeats)
    private = np.reshape(found, (len(budgets), len(sizes), -1))
    plain = np.stack([_nonprivate(model, law, size, probability, seed) for size in sizes])
    return Preview(formula, family, delta, names, budgets, sizes, private, plain, probability, seconds)


def _run(model: FormulaModel, records: dict[str, np.ndarray], plan: Any, seed: int) -> RegressionResult:
    """A real run, on simulated records: its seed need not be secret, and its warnings are about no one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", IntervalWarning)
        found = RegressionResult(fit(model, records, plan, seed=seed, progress=False), model)
        found.posterior  # noqa: B018
        return found


def _nonprivate(model: FormulaModel, law: AssumedLaw, size: int, probability: float, seed: int) -> np.ndarray:
    """Widths without privacy: by the curvature of the log posterior of ``size`` simulated records at the truth."""
    records = law.records(_CURVATURE_ROWS, seed)
    structure = {name: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for name, leaf in records.items()}
    ready = NumPyroModel(model, structure)
    sites = {name: jnp.asarray(value[0], jnp.float32) for name, value in law.parameters(seed).items()}
    z = ready.unconstrain({site.name: sites[site.name] for site in ready.sites})

    def negative(z: jax.Array) -> jax.Array:
        terms = jax.vmap(ready.log_likelihood, (None, 0))(z, jax.tree.map(jnp.asarray, records))
        return -size * jnp.mean(terms) - ready.log_prior(z)

    curvature = np.asarray(jax.jit(jax.hessian(negative))(z), np.float64)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    spread = vectors / np.sqrt(np.maximum(values, values.max() / _LARGE))
    normal = np.random.default_rng(seed).normal(size=(10_000, len(z))) @ spread.T + np.asarray(z, np.float64)
    drawn = jax.vmap(ready.constrain)(jnp.asarray(normal, jnp.float32))
    own = in_own_units(model, {name: np.asarray(draw, np.float64) for name, draw in drawn.items()})
    flat = np.stack(list(own.values()), axis=1)
    return flat.std(axis=0) * 2 * float(scipy.stats.norm.ppf((1 + probability) / 2))
