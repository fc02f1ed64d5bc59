"""Models that hold the records beside their arguments are refused; what else they hold is named."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from support.numpyro_models import EXAMPLES, logistic
from support.small_models import private_plan

import dpvi
from dpvi.declared.guarantee import Captured
from dpvi.models.captured import captured, listed
from dpvi.models.reachable import reachable

NUM_RECORDS = 37
x = np.random.default_rng(1).normal(1.0, 2.0, (NUM_RECORDS, 3))
on_device = jnp.asarray(x, jnp.float32)
as_lists = x.tolist()
frame = pd.DataFrame(x, columns=["a", "b", "c"])
index = np.arange(NUM_RECORDS)
row = x[4]  # shares memory, and has no row per record
mean = x.mean(axis=0)
design = np.eye(3)
SCALE = 2.5
SIZES = (3, 2)
PLAN = private_plan(3)


def location(y, centre=0, scale=1):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(z + centre, scale).to_event(1), obs=y)


def guide(y):
    at = numpyro.param("at", jnp.zeros(3))
    numpyro.sample("z", dist.Normal(at, 1.0).to_event(1))


def prior_at_the_mean(y):
    z = numpyro.sample("z", dist.Normal(jnp.asarray(x.mean(0)), 1.0).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)


def standardised(y):
    return location((y - x.mean(0)) / x.std(0))


def looked_up(y):
    return location(y, jnp.asarray(x)[0])


def helper():
    def inner():
        return on_device.mean(0)

    return inner()


def by_a_helper(y):
    return location(y, helper())


def of_device_array(y):
    return location(y, on_device.mean())


def of_lists(y):
    return location(y, as_lists[0][0])


def of_frame(y):
    return location(y, frame["a"].mean())


def of_a_row(y):
    return location(y, row[0])


def of_an_index(y):
    return location(y, index[0])


def by_default(y, table=x):
    return location(y, table[0, 0])


def unseen_by_the_walk(y):
    return location(y, jnp.asarray(globals()["x"]).mean())


def closing_over(table):
    def model(y):
        return location(y, table[0, 0])

    return model


class Object:
    def __init__(self, table: Any):
        self.table = table

    def __call__(self, y):
        return location(y)

    def method(self, y):
        return location(y)


class OfClass:
    table = x

    def __call__(self, y):
        return location(y)


@dataclasses.dataclass(frozen=True)
class Settings:
    tables: dict[str, Any]


settings = Settings({"all": [x]})
other_module = types.ModuleType("somebody_elses_data")
other_module.table = x  # pyright: ignore[reportAttributeAccessIssue]


def of_settings(y):
    return location(y, settings.tables["all"][0][0, 0])


def of_a_module(y):
    return location(y, other_module.table[0, 0])


def functions(prior: Any):
    return dpvi.from_functions(prior, lambda z, y: -0.5 * jnp.sum((y - z) ** 2), parameters=3)


HOLDING = {
    "the attack: a prior at the mean of a global": (prior_at_the_mean, "x"),
    "the attack: global mean and scale": (standardised, "x"),
    "the attack: an index into a global table": (looked_up, "x"),
    "a function that it calls, and one inside of it": (by_a_helper, "on_device"),
    "a copy on the device": (of_device_array, "on_device"),
    "plain lists": (of_lists, "as_lists"),
    "a data frame": (of_frame, "frame"),
    "one record": (of_a_row, "row"),
    "a number for every record": (of_an_index, "index"),
    "a default argument": (by_default, "table"),
    "a closure": (closing_over(x.copy()), "table"),
    "a transposed copy": (closing_over(x.T.copy()), "table"),
    "a flat copy": (closing_over(x.astype(np.float32).ravel()), "table"),
    "a partial": (functools.partial(location, centre=x[0]), "centre"),
    "an object that is called": (Object(x), "model.table"),
    "a bound method": (Object(x.copy()).method, "model.table"),
    "a class": (OfClass(), "OfClass.table"),
    "a dataclass with a dict of lists": (of_settings, "settings.tables['all'][0]"),
    "another module": (of_a_module, "other_module.table"),
    "a handler": (handlers.condition(location, {"z": x[0]}), "model.data['z']"),
    "a handler around a model": (handlers.scale(prior_at_the_mean, scale=0.5), "x"),
    "a compiled model": (jax.jit(prior_at_the_mean), "x"),
    "a network": (functools.partial(location, scale=eqx.nn.Linear(NUM_RECORDS, 3, key=jax.random.key(0))), "weight"),
    "a prior of from_functions": (functions(lambda z: -0.5 * jnp.sum((z - x.mean(0)) ** 2)), "x"),
    "no variable that a walk finds": (unseen_by_the_walk, "a constant"),
}


def refusal(model: Any, data: Any = x, **options: Any) -> str:
    with pytest.raises(dpvi.ModelError) as caught:
        dpvi.fit(model, data, PLAN, seed=1, progress=False, **options)
    return str(caught.value)


@pytest.mark.parametrize("case", HOLDING)
def test_a_model_that_holds_the_records_is_refused_by_name(case):
    model, name = HOLDING[case]
    text = refusal(model)
    assert name in text
    assert "without noise" in text


@pytest.mark.parametrize("case", HOLDING)
def test_the_refusal_tells_no_number_of_records_and_no_value(case):
    text = refusal(HOLDING[case][0])
    assert str(NUM_RECORDS) not in text
    assert not any(str(value)[:6] in text for value in x.ravel())


def test_the_attack_that_is_refused_works_where_nothing_refuses_it(monkeypatch):
    """A step of plain gradient ascent is the prior's pull towards the mean plus what was released, so one subtraction
    of published numbers gives the mean of the records, at any ε."""
    for name in ("captured", "with_constants"):
        monkeypatch.setattr(f"dpvi.run.preparation.{name}", lambda *_, **__: [])
    monkeypatch.setattr("dpvi.models.check.captured", lambda *_: [])
    rate, plan = 2.0**-10, private_plan(2, sampling_rate=0.5, noise_multiplier=100.0)
    trace = dpvi.fit(prior_at_the_mean, x, plan, optimizer=optax.sgd(rate), seed=1, progress=False).trace
    step = (trace.iterates[1] - trace.iterates[0])[:3] / rate
    found = step - trace.noisy_sums[0] / 0.5 + trace.queries[0]
    np.testing.assert_allclose(found, mean, atol=0.05)  # noise of the released sums: 200 in every coordinate


def test_the_walk_alone_finds_all_but_the_last():
    """The jaxpr is the second net, so the first is tried without it."""
    for case, (model, _) in list(HOLDING.items())[:-1]:
        with pytest.raises(dpvi.ModelError):
            captured({"model": model}, x)
        assert case
    captured({"model": unseen_by_the_walk}, x)


def test_a_guide_that_holds_the_records():
    def holding(y):
        at = numpyro.param("at", jnp.asarray(x.mean(0), jnp.float32))
        numpyro.sample("z", dist.Normal(at, 1.0).to_event(1))

    assert "The guide holds 'x'" in refusal(location, guide=holding)
    with pytest.raises(dpvi.ModelError, match="The guide holds 'x'"):
        dpvi.DPSVI(location, holding, optax.adam(0.1), plan=PLAN).run(None, x, progress_bar=False)
    assert "The guide holds" in refusal(location, guide=AutoNormal(location, init_loc_fn=lambda site: x[0]))


def test_a_driver_that_holds_the_records():
    def driver(released):
        return dpvi.Directive(released.steps_left, query=x.mean(0))

    assert "The driver holds 'x'" in refusal(location, driver=driver)


def test_a_covariate_law_that_draws_from_the_records():
    covariates, response = x[:, :2], (x[:, 2] > 0).astype(np.int64)

    def bootstrap(key, n):
        return covariates[np.asarray(jax.random.choice(key, len(covariates), (n,)))]

    text = refusal(logistic, (covariates, response), covariate_law=bootstrap)
    assert "The covariate_law holds 'covariates'" in text


def test_an_optimizer_that_holds_the_records():
    text = refusal(location, optimizer=optax.scale_by_schedule(lambda step: x.mean() + step))
    assert "The optimizer holds 'x'" in text


def test_fit_many_looks_at_the_arrays_that_it_was_given():
    sets = np.random.default_rng(2).normal(size=(2, NUM_RECORDS, 3))
    one = sets[1, 3]

    with pytest.raises(dpvi.ModelError, match="The model holds 'centre', an array that shares memory"):
        dpvi.fit_many(functools.partial(location, centre=one), sets, PLAN, progress=False)
    table = np.ones((len(sets), 3))  # how many data sets there are is no secret
    results = dpvi.fit_many(functools.partial(location, centre=table[0].copy()), sets, PLAN, progress=False)
    assert "centre (3,)" in str(results[0].guarantee)


def test_check_refuses_too():
    with pytest.raises(dpvi.ModelError, match="holds 'x'"):
        dpvi.check(prior_at_the_mean, x)
    with pytest.raises(dpvi.ModelError, match="guide holds 'x'"):
        dpvi.check(location, x, guide=lambda y: guide(x))


def test_a_factor_over_records_that_the_model_closes_over():
    def model(y):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)
        numpyro.factor("further", -jnp.sum((on_device[:, 0] - centre) ** 2))

    with pytest.raises(dpvi.ModelError, match="holds 'on_device'"):
        dpvi.check(model, x[:, 1].copy())


def test_records_on_disk(tmp_path):
    np.save(tmp_path / "y.npy", x)
    source = dpvi.open_npy(tmp_path)
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    another = np.load(tmp_path / "y.npy", mmap_mode="r")[:5]
    assert "records on disk" in refusal(lambda y: location(y, source.num_records), source)
    assert "a file that holds the data" in refusal(lambda y: location(y, another[0, 0]), source)
    assert "a file that holds the data" in refusal(lambda y: location(y, another[0, 0]), {"y": mapped})


def test_a_column_of_a_frame_shares_its_memory():
    first_rows = frame["a"].to_numpy()[:2]
    assert "shares memory" in refusal(lambda y: location(y[:, None], first_rows[0]), {"y": frame["a"]})


def guarantee_of(model: Any, data: Any = x, **options: Any) -> str:
    return str(dpvi.fit(model, data, PLAN, seed=1, progress=False, **options).guarantee)


def test_what_else_is_held_is_named_with_its_shape():
    """A mean that was computed before cannot be told from a constant; it is named, and so is the constant."""

    def model(y):
        return location(y @ jnp.asarray(design), jnp.asarray(mean), SCALE * len(SIZES))

    text = guarantee_of(model)
    assert "which the statement takes as public: SCALE (), design (3, 3), mean (3,)." in text
    assert str(NUM_RECORDS) not in text
    assert not any(str(value)[:6] in text for value in mean)


def test_what_guide_and_model_of_dpsvi_hold_is_named():
    def scaled(y):
        return location(y, jnp.asarray(mean, jnp.float32))

    result = dpvi.DPSVI(scaled, guide, optax.adam(0.1), plan=PLAN).run(None, x, progress_bar=False).result
    assert "mean (3,)" in str(result.guarantee)


def test_settings_among_the_arguments_of_dpsvi_are_no_records():
    def model(y, scale):
        return location(y, 0.0, scale)

    dpvi.DPSVI(model, lambda y, scale: guide(y), optax.adam(0.1), plan=PLAN).run(None, x, 2.0, progress_bar=False)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_ordinary_models_hold_nothing(example):
    assert listed(captured({"model": example.model}, example.data)) == ()


def test_a_model_that_holds_nothing_says_nothing():
    assert "which the statement takes as public:" not in guarantee_of(location)


def test_one_or_two_records_have_arrays_of_their_length_everywhere():
    pair = np.ones(2)
    assert "pair (2,)" in guarantee_of(lambda y: location(y, pair[0]), x[:2].copy())


def test_a_variable_of_the_same_name_as_an_attribute_is_not_meant():
    holder = types.SimpleNamespace(shift=0.5)

    def model(y):
        return location(y, holder.shift)  # a global x stands beside the attribute of another object

    assert listed(captured({"model": model}, x)) == (Captured("holder.shift", ()),)
    names = [name for name, _ in reachable("model", lambda record: record.x)]
    assert names == []


def test_networks_are_listed_weight_by_weight():
    network = eqx.nn.MLP(3, 3, 8, 1, key=jax.random.key(0))
    text = guarantee_of(lambda y: location(jax.vmap(network)(y)))
    assert "network.layers[0].weight (8, 3)" in text
    assert "a constant of" not in text  # each array once, by its name


def test_cycles_end():
    ring: list[Any] = [0.5]
    ring.append(ring)
    assert [name for name, _ in reachable("model", ring)] == ["model[0]"]


def test_the_walk_stays_out_of_libraries():
    """Whatever jax and NumPyro hold in their modules is nobody's records, and would take seconds to walk through."""
    assert len(list(reachable("model", location))) == 0
