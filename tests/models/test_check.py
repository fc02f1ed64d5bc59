"""Every finding of the model check has a minimal bad model, and a good twin that passes."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support import numpyro_models as examples

from dpvi.models.base import Model, ModelError
from dpvi.models.check import as_model, check
from dpvi.models.functions import from_functions
from dpvi.models.numpyro import NumPyroModel

Y = np.linspace(-1.0, 1.0, 5)
BITS = np.array([0, 1, 1, 0, 1])
RECORDS = {"y": Y, "b": BITS}


def normal(name, location, y):
    numpyro.sample(name, dist.Normal(location, 1.0), obs=y)


def build(*, prior=None, outside=None, location=None, local=None, plate=None, response=lambda y: y):
    """A model of the mean of y with one thing changed."""

    def model(y, b):
        n = y.shape[0]
        mean = numpyro.sample("mean", prior(y, b) if prior else dist.Normal(0.0, 1.0))
        if outside:
            outside(mean, y, b)
        with numpyro.plate("records", plate(n) if plate else n):
            if local:
                local(mean)
            normal("y", location(mean, y, b) if location else mean, response(y))

    return model


def nothing_of_records(y, b):
    normal("first", numpyro.sample("mean", dist.Normal(0.0, 1.0)), y[0])


def crossed_plates(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0], dim=-1), numpyro.plate("again", b.shape[0], dim=-2):
        normal("y", mean, y)


def one_plate_twice(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        normal("y", mean, y)
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("b", dist.Bernoulli(logits=mean), obs=b)


def scalar_in_fixed_plate(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("fixed", 4):
        numpyro.sample("c", dist.Normal(mean, 1.0), obs=jnp.zeros(4))


def param_site(y, b):
    mean = numpyro.param("mean", jnp.zeros(()))
    with numpyro.plate("records", y.shape[0]):
        normal("y", mean, y)


def discrete(y, b):
    which = numpyro.sample("which", dist.Bernoulli(0.5))
    with numpyro.plate("records", y.shape[0]):
        normal("y", which.astype(float), y)


def growing(y, b):
    means = numpyro.sample("means", dist.Normal(0.0, 1.0).expand([2 * y.shape[0]]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        normal("y", means[::2], y)


def unobserved(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.deterministic("residual", y - mean)


def group_subsample(y, b, size=4):
    with numpyro.plate("groups", 5, subsample_size=size):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        normal("y", effect.sum(), y)


def doubled_plate(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        normal("y", mean, y)
    with numpyro.plate("pairs", 2 * y.shape[0]):
        numpyro.factor("pairs_factor", jnp.zeros(2 * y.shape[0]))


def support_reads(y, b):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.greater_than(jnp.min(y)), (), ()))
    with numpyro.plate("records", y.shape[0]):
        normal("y", mean, y)


def imputed_and_used(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        filled = numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=b > 0)
        numpyro.sample("b", dist.Bernoulli(logits=filled), obs=b)


def imputed(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=b > 0)
        numpyro.sample("b", dist.Bernoulli(logits=mean), obs=b)


def nowhere_finite(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.factor("y", jnp.log(-jnp.abs(mean) - 1.0 + 0.0 * y))


def no_gradient(y, b):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        normal("y", jnp.sqrt(0.0 * mean) + mean, y)


def indicator(mean, y, b):
    return mean + (b == b[0]).astype(float)


BAD = {
    "no plate": (nothing_of_records, "none follows the data"),
    "two record plates that cross": (crossed_plates, "'y' pairs every record with every other"),
    "plate of fixed size": (build(plate=lambda n: 5), "'records' does not follow the data"),
    "plate of fixed size with a column": (
        build(plate=lambda n: 5, location=lambda mean, y, b: mean + b),
        "check that the size of 'records' is taken from an argument",
    ),
    "only a fixed plate": (scalar_in_fixed_plate, "'fixed' does not follow the data"),
    "plate of another size": (doubled_plate, "'pairs' must either have a fixed size"),
    "plate that subsamples groups": (group_subsample, "'groups' draws a subsample"),
    "as many as records on trial": (partial(group_subsample, size=2), "'groups' draws a subsample"),
    "prior reads a float column": (
        build(prior=lambda y, b: dist.Normal(y.mean(), 1.0)),
        "prior of 'mean' reads records",
    ),
    "prior reads an integer column": (
        build(prior=lambda y, b: dist.Normal(0.0, 1.0 + jnp.max(b))),
        "prior of 'mean' reads records",
    ),
    "prior reads through a branch": (
        build(prior=lambda y, b: dist.Normal(jax.lax.cond(b[0] > 0, lambda: 1.0, lambda: 2.0), 1.0)),
        "prior of 'mean' reads records",
    ),
    "prior reads the number of records": (
        build(prior=lambda y, b: dist.Normal(0.0, 1.0 / y.shape[0])),
        "depends on the number of records",
    ),
    "support reads records": (support_reads, "support of 'mean' reads records"),
    "factor reads records": (
        build(outside=lambda mean, y, b: numpyro.factor("tilt", mean * jnp.sum(b))),
        "Observed site 'tilt' reads records",
    ),
    "observed site outside": (build(outside=lambda mean, y, b: normal("first", mean, y[0])), "'first' reads records"),
    "centred by the batch": (build(location=lambda mean, y, b: mean + y.mean()), "Records are coupled"),
    "compared with the first": (build(location=indicator), "Records are coupled"),
    "cumulative sum": (build(location=lambda mean, y, b: mean + jnp.cumsum(b)), "Records are coupled"),
    "weak coupling": (build(location=lambda mean, y, b: mean + 1e-3 * y[::-1]), "Records are coupled"),
    "scaled by the batch size": (build(location=lambda mean, y, b: mean * y.shape[0]), "alone in the batch"),
    "squeezed away": (
        build(location=lambda mean, y, b: mean + jnp.squeeze(b[:, None])[:]),
        "must run on a batch of one record",
    ),
    "local latent": (
        build(local=lambda mean: numpyro.sample("u", dist.StudentT(3.0, mean, 1.0))),
        "'u' lies inside the record plate 'records', cannot be integrated out in closed form, and needs a guide",
    ),
    "latent per record": (growing, "'means' must have the same shape"),
    "discrete latent": (discrete, "'which' is discrete"),
    "param": (param_site, "'mean' is a numpyro.param"),
    "nothing observed": (unobserved, "must hold an observed site"),
    "response not passed": (build(response=lambda y: None), "nothing under it is given obs="),
    "random numbers outside sites": (
        build(location=lambda mean, y, b: mean + jax.random.normal(numpyro.prng_key())),
        "draw random numbers at sample sites only",
    ),
    "imputed value used again": (imputed_and_used, "missing values of 'y' are used again"),
    "nowhere finite": (nowhere_finite, "log-likelihood is not finite for any kind"),
    "no finite gradient": (no_gradient, "gradient of the log-likelihood is not finite"),
}

GOOD = {
    "plain": build(),
    "one plate twice": one_plate_twice,
    "plate from an argument": build(plate=lambda n: n),
    "prior from a shape of one record": build(prior=lambda y, b: dist.Normal(0.0, 1.0 / (1 + y.ndim))),
    "prior from zeros like a column": build(prior=lambda y, b: dist.Normal(jnp.zeros_like(y).sum(), 1.0)),
    "factor of the parameter": build(outside=lambda mean, y, b: numpyro.factor("tilt", -(mean**2))),
    "observed constant outside": build(outside=lambda mean, y, b: normal("public", mean, 0.3)),
    "centred by a constant": build(location=lambda mean, y, b: mean + 0.5),
    "integer column": build(location=lambda mean, y, b: mean + b),
    "squeezed with an axis": build(location=lambda mean, y, b: mean + jnp.squeeze(b[:, None], axis=1)),
    "lookup": build(location=lambda mean, y, b: mean + jnp.arange(2.0)[b]),
    "scaled by a constant": build(location=lambda mean, y, b: mean * 5),
    "derived per record": build(local=lambda mean: numpyro.deterministic("u", 2 * mean)),
    "missing values": imputed,
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_model_gets_one_clear_sentence(name):
    model, sentence = BAD[name]
    with pytest.raises(ModelError) as caught:
        check(model, RECORDS)
    found = [finding for finding in caught.value.findings if sentence in finding]
    assert found, caught.value.findings
    assert all(finding.endswith(".") and "\n" not in finding for finding in caught.value.findings)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_twin_passes(name):
    ready = check(GOOD[name], RECORDS)
    assert isinstance(ready, NumPyroModel)


@pytest.mark.parametrize("example", examples.EXAMPLES + examples.SUBSAMPLED, ids=lambda e: e.name)
def test_ordinary_models_pass(example):
    check(example.model, example.data)


def test_a_factor_summed_over_the_batch_is_found():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.factor("y", jnp.sum(-((y - mean) ** 2)))

    def twin(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.factor("y", -((y - mean) ** 2))

    with pytest.raises(ModelError, match="Records are coupled"):
        check(model, Y)
    check(twin, Y)


def test_responses_are_drawn_where_no_plain_kind_lies_in_the_support():
    def model(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Pareto(20.0, 1.0 + scale), obs=y)

    def coupled(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Pareto(20.0, 1.0 + scale + 0.1 * jnp.arange(y.shape[0])), obs=y)

    check(model, 30.0 + np.abs(Y))
    with pytest.raises(ModelError, match="alone in the batch"):
        check(coupled, 30.0 + np.abs(Y))


def test_all_findings_come_at_once():
    def model(y, b):
        mean = numpyro.sample("mean", dist.Normal(y.mean(), 1.0))
        normal("first", mean, y[0])
        with numpyro.plate("records", y.shape[0]):
            normal("y", mean, y)

    with pytest.raises(ModelError) as caught:
        check(model, RECORDS)
    assert len(caught.value.findings) == 2


def test_a_model_that_reads_its_arguments_wrongly_says_how_they_are_passed():
    with pytest.raises(ModelError, match="a tuple of data is passed by position"):
        check(build(), (Y,))


class Poison:
    """Shape and dtype, and an error for whoever looks further."""

    def __init__(self, shape, dtype):
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.ndim = len(shape)

    def __array__(self, *args, **kwargs):
        raise AssertionError("the check read the records")

    def __getitem__(self, index):
        raise AssertionError("the check read the records")

    def __iter__(self):
        raise AssertionError("the check read the records")


def test_no_value_of_the_data_is_read():
    poisoned = {"y": Poison((5,), "float64"), "b": Poison((5,), "int64")}
    missing = {"y": np.full(5, np.nan), "b": np.full(5, -(2**31))}
    for data in (poisoned, missing):
        check(GOOD["plain"], data)
        messages = set()
        for bad in (crossed_plates, BAD["weak coupling"][0], BAD["prior reads an integer column"][0]):
            for records in (data, RECORDS):
                with pytest.raises(ModelError) as caught:
                    check(bad, records)
                messages.add(str(caught.value))
        assert len(messages) == 3


def test_no_message_holds_the_number_of_records():
    records = {"y": np.zeros(9173), "b": np.zeros(9173, dtype=int)}
    for model, _ in BAD.values():
        with pytest.raises(ModelError) as caught:
            check(model, records)
        assert "9173" not in str(caught.value)


def test_a_ready_model_passes_through():
    ready = check(GOOD["plain"], RECORDS)
    assert check(ready, RECORDS) is ready
    with pytest.raises(ModelError, match="another structure"):
        check(ready, {"y": np.zeros((5, 2)), "b": BITS})


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="got int"):
        as_model(3, jax.ShapeDtypeStruct((), jnp.float32))


def function_model(log_prior=lambda z: -0.5 * z @ z, log_likelihood=lambda z, r: -((r["y"] - z[0]) ** 2)):
    return from_functions(log_prior, log_likelihood, 2)


def test_function_models_are_checked_for_what_applies():
    ready = function_model()
    assert check(ready, RECORDS) is ready
    assert isinstance(ready, Model)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (function_model(log_prior=lambda z: -0.5 * z * z), "log_prior must return one floating-point number"),
        (function_model(log_likelihood=lambda z, r: r["b"]), "log_likelihood must return one floating-point number"),
        (function_model(log_likelihood=lambda z, r: (z[0], z[1])), "got a tuple"),
        (function_model(log_likelihood=lambda z, r: r["missing"]), "fails with KeyError"),
        (function_model(log_prior=lambda z: jnp.log(-jnp.abs(z[0]))), "log prior or its gradient is not finite"),
        (function_model(log_likelihood=lambda z, r: jnp.log(-jnp.abs(z[0]))), "log-likelihood is not finite"),
    ],
)
def test_bad_function_models_are_refused(model, sentence):
    with pytest.raises(ModelError, match=sentence):
        check(model, RECORDS)
