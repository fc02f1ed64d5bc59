"""PyMC models in our own words, after its tutorials: what is fitted as it is, and what is refused with which words."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

# nothing of these models is compiled by PyTensor: without these it would look for a C compiler and a BLAS, slowly
os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,blas__ldflags=")
pm = pytest.importorskip("pymc", reason="PyMC is optional and not installed here: pip install 'dpvi[pymc]'")
import pytensor.tensor as pt  # noqa: E402

NUM_RECORDS = 47
_random = np.random.default_rng(0)
TABLE = _random.normal(size=(NUM_RECORDS, 2))
NUMBER = _random.normal(size=NUM_RECORDS)
POSITIVE = _random.gamma(2.0, 1.0, NUM_RECORDS)
BIT = _random.integers(0, 2, NUM_RECORDS)
COUNT = _random.poisson(2.0, NUM_RECORDS)
GROUP = _random.integers(0, 4, NUM_RECORDS)
ordered = pm.distributions.transforms.ordered


def built(write: Callable[[], None]) -> Any:
    """The PyMC model that ``write`` writes."""
    with pm.Model() as model:
        write()
    return model


def records_of(model: Any) -> dict[str, np.ndarray]:
    """What the model holds for its records."""
    found = {data.name: data.get_value() for data in model.data_vars if _dims(model, data.name)[:1] == ("person",)}
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        if hasattr(value, "data"):
            found[rv.name] = value.data
    return found or {"y": NUMBER}


def _dims(model: Any, name: str) -> tuple:
    return tuple(model.named_vars_to_dims.get(name) or ())


def data(name: str, values: np.ndarray, *dims: str) -> Any:
    return pm.Data(name, values, dims=("person", *dims))


def linear():
    x = data("x", TABLE, "column")
    w = pm.Normal("w", 0.0, 1.0, shape=2)
    pm.Normal("y_given_x", x @ w, pm.HalfNormal("noise", 1.0), observed=data("y", NUMBER), dims="person")


def logistic():
    x = data("x", NUMBER)
    slope = pm.Normal("slope", 0.0, 2.0)
    pm.Deterministic("odds", pm.math.exp(slope))
    pm.Deterministic("fitted", slope * x, dims="person")
    pm.Bernoulli("ill", logit_p=slope * x, observed=BIT)


def poisson():
    x = data("x", TABLE, "column")
    pm.Poisson("count", pm.math.exp(x @ pm.Normal("w", 0.0, 1.0, shape=2)), observed=COUNT, dims="person")


def negative_binomial():
    x = data("x", NUMBER)
    mean = pm.math.exp(pm.Normal("slope") * x)
    pm.NegativeBinomial("count", mu=mean, alpha=pm.Exponential("concentration", 1.0), observed=COUNT)


def robust():
    x = data("x", NUMBER)
    degrees = pm.Gamma("degrees", 2.0, 0.1)
    pm.StudentT("y", nu=degrees + 1, mu=pm.Normal("slope") * x, sigma=pm.HalfCauchy("scale", 1.0), observed=NUMBER)


def hierarchical():
    group = data("group", GROUP)
    effect = pm.Normal("effect", pm.Normal("mean"), pm.HalfNormal("spread", 1.0), shape=4)
    pm.Normal("y", effect[group], pm.Uniform("noise", 0.1, 4.0), observed=data("y_data", NUMBER), dims="person")


def not_centred():
    pm.modelcontext(None).add_coord("level", ["a", "b", "c", "d"])
    group = data("group", GROUP)
    raw = pm.Normal("raw", dims="level")
    effect = pm.Deterministic("effect", pm.Normal("mean") + pm.HalfNormal("spread") * raw, dims="level")
    pm.Normal("y", effect[group], 1.0, observed=NUMBER)


def zero_inflated():
    pm.ZeroInflatedPoisson("count", pm.Beta("some", 1.0, 1.0), pm.Exponential("rate", 1.0), observed=COUNT)


def mixture():
    weights = pm.Dirichlet("weights", np.ones(3))
    means = pm.Normal("means", 0.0, 2.0, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
    pm.NormalMixture("y", weights, mu=means, sigma=1.0, observed=NUMBER)


def ordinal():
    cuts = pm.Normal("cuts", 0.0, 1.0, shape=2, transform=ordered, initval=[-1.0, 1.0])
    slope = pm.Normal("slope")
    pm.OrderedLogistic("level", eta=slope * data("x", NUMBER), cutpoints=cuts, observed=GROUP % 3, compute_p=False)


def lkj():
    factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    pm.MvNormal("pair", pm.Normal("mean", shape=2), chol=factor, observed=data("pairs", TABLE, "column"))


def censored():
    life = pm.Weibull.dist(pm.Gamma("shape", 2.0, 1.0), pm.Gamma("scale", 2.0, 1.0))
    pm.Censored("time", life, lower=None, upper=3.0, observed=np.minimum(POSITIVE, 3.0))


def truncated():
    pm.TruncatedNormal("y", pm.Normal("mean"), 1.0, lower=0.0, observed=POSITIVE)


def bounded_by_another():
    low = pm.Normal("low")
    pm.Normal("y", pm.Uniform("middle", low, low + 2.0), 1.0, observed=NUMBER)


def two_responses():
    x = data("x", NUMBER)
    pm.Normal("y", pm.Normal("a") * x, 1.0, observed=NUMBER)
    pm.Bernoulli("ill", logit_p=pm.Normal("b") * x, observed=BIT)


def own_density():
    pm.CustomDist("y", pm.Normal("mean"), logp=lambda value, mean: -((value - mean) ** 2) / 2, observed=NUMBER)


def series_of_each_record():
    paths = _random.normal(size=(NUM_RECORDS, 5))
    start = pm.Normal.dist(0.0, 1.0)
    pm.GaussianRandomWalk("path", sigma=pm.HalfNormal("step"), init_dist=start, observed=data("paths", paths, "time"))


def public_table():
    table = pm.Data("table", np.arange(8.0).reshape(4, 2))
    pm.Normal("y", (table @ pm.Normal("w", shape=2))[data("group", GROUP)], 1.0, observed=NUMBER)


def network():
    hidden = pm.math.tanh(data("x", TABLE, "column") @ pm.Normal("first", shape=(2, 4)))
    pm.Bernoulli("ill", logit_p=hidden @ pm.Normal("second", shape=4), observed=BIT)


ELIGIBLE: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        *(linear, logistic, poisson, negative_binomial, robust, hierarchical, not_centred, zero_inflated, mixture),
        *(ordinal, lkj, censored, truncated, bounded_by_another, two_responses, own_density, series_of_each_record),
        *(public_table, network),
    )
}


def _regression(mean: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """One covariate, one slope, and what ``mean`` makes of both."""

    def write() -> None:
        x = data("x", NUMBER)
        pm.Normal("y", mean(pm.Normal("slope"), x), 1.0, observed=data("y_data", NUMBER), dims="person")

    return write


def gaussian_process():
    process = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(2, pm.Gamma("length", 2.0, 1.0)))
    process.marginal_likelihood("y", X=data("x", TABLE, "column"), y=NUMBER, sigma=0.1)


def latent_process():
    process = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(2, pm.Gamma("length", 2.0, 1.0)))
    pm.Normal("y", process.prior("f", X=TABLE), 1.0, observed=data("y_data", NUMBER))


def random_walk():
    start = pm.Normal.dist(0.0, 1.0)
    pm.GaussianRandomWalk("y", sigma=pm.HalfNormal("step"), init_dist=start, observed=data("y_data", NUMBER))


def latent_walk():
    data("x", NUMBER)
    walk = pm.GaussianRandomWalk("walk", sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0), dims="person")
    pm.Normal("y", walk, 1.0, observed=NUMBER)


def prior_reads_records():
    x = data("x", NUMBER)
    pm.Normal("y", pm.Normal("slope", x.mean(), 1.0) * x, 1.0, observed=NUMBER)


def prior_counts_records():
    x = data("x", NUMBER)
    pm.Normal("y", pm.Normal("slope", 0.0, 1 / pt.sqrt(x.shape[0])) * x, 1.0, observed=NUMBER)


def bounds_read_records():
    x = data("x", NUMBER)
    pm.Normal("y", pm.Uniform("slope", x.min(), x.max() + 1.0) * x, 1.0, observed=NUMBER)


def potential():
    mean = pm.Normal("mean")
    pm.Potential("soft", -(mean**2))
    pm.Normal("y", mean, 1.0, observed=NUMBER)


def minibatch():
    x, y = pm.Minibatch(NUMBER, NUMBER, batch_size=8)
    pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=y, total_size=NUM_RECORDS)


def total_size():
    pm.Normal("y", pm.Normal("mean"), 1.0, observed=data("y_data", NUMBER), total_size=400)


def captured_covariates():
    pm.Normal("y", pm.math.dot(TABLE, pm.Normal("w", shape=2)), 1.0, observed=NUMBER)


def covariates_without_dimension():
    pm.Normal("y", pm.Data("x", TABLE) @ pm.Normal("w", shape=2), 1.0, observed=data("y_data", NUMBER))


def prior_from_captured_records():
    centre = pm.Data("centre", NUMBER)
    pm.Normal("y", pm.Normal("mean", centre.mean(), 1.0), 1.0, observed=data("y_data", NUMBER))


def latent_of_each_record():
    data("x", NUMBER)
    pm.Poisson("count", pm.Gamma("rate", 2.0, 1.0, dims="person"), observed=COUNT)


def latents_as_many_as_records():
    pm.Normal("y", pm.Normal("own", shape=NUM_RECORDS), 1.0, observed=data("y_data", NUMBER))


def discrete_latent():
    pm.Normal("y", pm.Poisson("number", 3.0) * 1.0, 1.0, observed=NUMBER)


def missing_values():
    holes = np.ma.masked_array(NUMBER, mask=np.arange(NUM_RECORDS) < 3)
    with pytest.warns(Warning, match="missing values"):
        pm.Normal("y", pm.Normal("mean"), 1.0, observed=holes)


def records_as_columns():
    x = pm.Data("x", TABLE.T, dims=("column", "person"))
    pm.Normal("y", pm.Normal("w", shape=2) @ x, 1.0, observed=NUMBER)


def response_as_columns():
    pm.modelcontext(None).add_coords({"column": ["a", "b"], "person": np.arange(NUM_RECORDS)})
    pm.Normal("y", pm.Normal("mean"), 1.0, observed=TABLE.T, dims=("column", "person"))


def prior_reads_a_response():
    y = pm.Normal("y", 0.0, 1.0, observed=NUMBER)
    pm.Normal("z", pm.Normal("mean", y.mean(), 1.0), 1.0, observed=NUMBER)


def another_dimension():
    pm.Normal("y", pm.Normal("mean"), 1.0, observed=pm.Data("y_data", NUMBER, dims="rows"))


def nothing_observed():
    data("x", NUMBER)
    pm.Normal("mean")


def transformed_response():
    pm.Normal("y", pm.Normal("mean"), 1.0, observed=pt.log(data("time", POSITIVE)))


def without_a_name():
    pm.Normal("y", pm.Normal("mean") + pm.Normal.dist(0.0, 1.0), 1.0, observed=data("y_data", NUMBER))


_ALONE = "The term of a record changes when it is alone in the batch"
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "gaussian_process": (gaussian_process, "such as a Gaussian process"),
    "latent_process": (latent_process, "as many entries as there are records"),
    "random_walk": (random_walk, "is a time series over all records"),
    "latent_walk": (latent_walk, "'walk' has the dimension of the records"),
    "prior_reads_records": (prior_reads_records, "The prior of 'slope' reads records"),
    "prior_counts_records": (prior_counts_records, "The prior of 'slope' depends on the number of records"),
    "bounds_read_records": (bounds_read_records, "The support of 'slope' reads records"),
    "potential": (potential, "Potential 'soft' adds a term"),
    "minibatch": (minibatch, "scored on minibatches"),
    "total_size": (total_size, "scored on minibatches"),
    "captured_covariates": (captured_covariates, "an array with as many rows as the records"),
    "covariates_without_dimension": (covariates_without_dimension, "The model holds 'x'"),
    "prior_from_captured_records": (prior_from_captured_records, "The model holds 'centre'"),
    "latent_of_each_record": (latent_of_each_record, "'rate' has the dimension of the records"),
    "latents_as_many_as_records": (latents_as_many_as_records, "'own' has as many entries"),
    "discrete_latent": (discrete_latent, "Latent 'number' is discrete"),
    "missing_values": (missing_values, "are missing values of an observed variable"),
    "records_as_columns": (records_as_columns, "along axis 1; records must be rows"),
    "response_as_columns": (response_as_columns, "rows of what is observed must be records"),
    "prior_reads_a_response": (prior_reads_a_response, "PyMC does not find the density"),
    "another_dimension": (another_dimension, "No array of the model has the dimension 'person'"),
    "nothing_observed": (nothing_observed, "The model observes nothing"),
    "transformed_response": (transformed_response, "observes a transformed array"),
    "without_a_name": (without_a_name, "PyMC does not find the density"),
    "centred_inside": (_regression(lambda w, x: w * (x - x.mean())), _ALONE),
    "lagged": (_regression(lambda w, x: w * pt.concatenate([x[:1], x[:-1]])), _ALONE),
    "summed": (_regression(lambda w, x: w * x.sum()), _ALONE),
}
