"""Synthetic data sets: one posterior draw each, the same every time, from a saved result, into files that fit."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.small_models import exact_plan, private_plan
from support.statistics import assert_close, assert_rates

import dpvi
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.table import TableModel
from dpvi.posterior import Gaussian, Posterior, Result
from dpvi.records.arrays import structure_of
from dpvi.synthetic import pool, synthesize
from dpvi.table import Boolean, Categorical, Numeric, Schema, SchemaError

COIN = Schema({"ill": Boolean()})
TABLE = Schema({"job": Categorical(("a", "b")), "ill": Boolean(missing=True), "age": Numeric(0, 9, integer=True)})
KEY = jax.random.key(8)
CENTER, SPREAD = 0.4, 0.3


def coin(ill):
    logit = numpyro.sample("logit", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", ill.shape[0]):
        numpyro.sample("ill", dist.Bernoulli(logits=logit), obs=ill)


def posterior_of(model, schema, mean, spread) -> Posterior:
    arrays = {leaf: np.zeros(1, dtype) for leaf, dtype in schema.leaves.items()}
    ready = NumPyroModel(model, structure_of(arrays))
    z = ready.unconstrain(mean) if isinstance(mean, dict) else jnp.full(ready.dimension, mean)
    return Posterior(Gaussian(z, jnp.full_like(z, spread)), ready, "stationary", private_plan(5).guarantee)


@pytest.fixture(scope="module")
def table_data():
    model = TableModel(TABLE, num_components=2, response="ill")
    posterior = posterior_of(model, TABLE, 0.1, 0.2)
    return synthesize(posterior, model, TABLE, num_records=50, num_datasets=3, key=KEY)


def test_each_data_set_has_parameters_of_its_own():
    """Var(mean of a set) = Var(p) + E[p(1 − p)]/n, and pooling takes the second term away again."""
    num_records, num_datasets = 200, 2000
    data = synthesize(
        posterior_of(coin, COIN, CENTER, SPREAD),
        coin,
        COIN,
        num_records=num_records,
        num_datasets=num_datasets,
        key=KEY,
    )
    shares = np.array([data.encoded(index)["ill"].mean() for index in range(num_datasets)])
    draws = 1 / (1 + np.exp(-(CENTER + SPREAD * np.random.default_rng(0).standard_normal(10**6))))
    assert_close(shares.mean(), draws.mean(), shares.std() / np.sqrt(num_datasets))
    pooled = pool(shares, shares * (1 - shares) / num_records)
    standard_error = pooled.between[0] * np.sqrt(2 / num_datasets)
    assert_close(pooled.total_variance[0], draws.var(), standard_error)
    one_draw_for_all = draws.mean() * (1 - draws.mean()) / num_records
    for wrong in (one_draw_for_all, draws.var() + one_draw_for_all):
        with pytest.raises(AssertionError):
            assert_close(pooled.total_variance[0], wrong, standard_error)


def test_data_sets_repeat_with_the_key_and_differ_from_each_other(table_data):
    first, again, second = table_data.encoded(0), table_data.encoded(0), table_data.encoded(1)
    for leaf in TABLE.leaves:
        np.testing.assert_array_equal(first[leaf], again[leaf])
    assert not np.array_equal(first["age"], second["age"])
    assert len(table_data) == 3
    assert len(list(table_data.tables(to="columns"))) == 3
    assert "50 records" in repr(table_data)
    with pytest.raises(IndexError, match="from 0 to 2"):
        table_data.encoded(3)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_one_file_per_data_set(table_data, tmp_path, format):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    folder = tmp_path / "synthetic"
    table_data.save(folder, format)
    assert {path.name for path in folder.iterdir()} == {
        *(f"dataset_{index}.{format}" for index in range(3)),
        "schema.toml",
        "about.json",
    }
    schema = Schema.load(folder / "schema.toml")
    assert schema == TABLE
    for index in range(3):
        found = schema.encode(folder / f"dataset_{index}.{format}", outside="raise")
        for leaf, value in table_data.encoded(index).items():
            np.testing.assert_allclose(found[leaf], value, atol=1e-6)
    assert str(table_data.guarantee) in json.loads((folder / "about.json").read_text())["guarantee"]
    with pytest.raises(FileExistsError, match="new directory"):
        table_data.save(folder, format)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_one_long_table(table_data, tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"long.{suffix}"
    table_data.save_long(path, dataset_column="set")
    numbered = Schema({"set": Numeric(0, 2, integer=True), **TABLE.columns})
    found = numbered.encode(path, outside="raise")
    np.testing.assert_array_equal(numbered.decode(found)["set"], np.repeat([0, 1, 2], 50))
    ages = np.concatenate([table_data.encoded(index)["age"] for index in range(3)])
    np.testing.assert_allclose(found["age"], ages, atol=1e-6)
    with pytest.raises(SchemaError, match="dataset_column"):
        table_data.save_long(path, dataset_column="age")


def test_a_failure_leaves_nothing_behind(table_data, tmp_path, monkeypatch):
    real = type(table_data).encoded
    monkeypatch.setattr(type(table_data), "encoded", lambda self, i: real(self, i) if i < 2 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        table_data.save(tmp_path / "synthetic")
    with pytest.raises(ZeroDivisionError):
        table_data.save_long(tmp_path / "long.csv")
    with pytest.raises(ValueError, match="'csv', 'parquet'"):
        table_data.save(tmp_path / "synthetic", format="xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_saved_result_is_enough(tmp_path):
    random = np.random.default_rng(6)
    job = random.integers(0, 2, 400)
    ill = random.uniform(size=400) < np.where(job == 1, 0.9, 0.2)
    schema = Schema({"job": Categorical(("a", "b")), "ill": Boolean()})
    arrays = schema.encode({"job": np.array(["a", "b"], dtype=object)[job], "ill": ill})
    model = TableModel(schema, num_components=2)
    result = dpvi.fit(model, arrays, exact_plan(400, sampling_rate=0.5), seed=1, progress=False)
    result.save(tmp_path / "result.npz")
    loaded = Result.load(tmp_path / "result.npz")
    data = synthesize(loaded, model, schema, num_records=4000, num_datasets=4, key=KEY)
    drawn = [data.encoded(index) for index in range(4)]
    for level in (0, 1):
        true = ill[job == level].mean()
        found = np.mean([each["ill"][each["job"] == level].mean() for each in drawn])
        assert_close(found, true, np.sqrt(true * (1 - true) / np.sum(job == level)))
    with pytest.raises(ValueError, match="num_records must be given"):
        synthesize(loaded, model, schema, key=KEY)
    declared = dataclasses.replace(loaded, plan=dataclasses.replace(loaded.plan, num_records=70))
    assert synthesize(declared, model, schema, num_datasets=2, key=KEY).num_records == 70


def test_a_model_of_ones_own_draws_complete_records():
    """Masks that no site observes come out true; a response that depends on another column follows it."""
    schema = Schema({"sex": Boolean(), "ill": Boolean(missing=True)})

    def model(sex, ill, ill_observed):
        logits = numpyro.sample("logits", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("records", sex.shape[0]):
            numpyro.sample("sex", dist.Bernoulli(0.5), obs=sex)
            with numpyro.handlers.mask(mask=ill_observed):
                numpyro.sample("ill", dist.Bernoulli(logits=jnp.where(sex, logits[1], logits[0])), obs=ill)

    posterior = posterior_of(model, schema, {"logits": jnp.array([-2.0, 1.0])}, 1e-3)
    records = synthesize(posterior, model, schema, num_records=4000, num_datasets=1, key=KEY).encoded(0)
    assert np.all(records["ill_observed"])
    for sex, share in ((False, 0.1192), (True, 0.7311)):
        group = records["ill"][records["sex"] == sex]
        assert_rates(int(group.sum()), len(group), share)


def test_refusals():
    posterior = posterior_of(coin, COIN, 0.0, 1.0)
    with pytest.raises(TypeError, match="Result or a Posterior"):
        synthesize({"logit": 0.0}, coin, COIN, num_records=5, key=KEY)
    with pytest.raises(ValueError, match="num_datasets"):
        synthesize(posterior, coin, COIN, num_records=5, num_datasets=0, key=KEY)
    with pytest.raises(ValueError, match="at least 1"):
        synthesize(posterior, coin, COIN, num_records=0, key=KEY)
    with pytest.raises(ValueError, match="another schema"):
        synthesize(posterior, TableModel(TABLE, 2), COIN, num_records=5, key=KEY)
    with pytest.raises(ValueError, match="pass the model that was fitted"):
        synthesize(posterior, two_coins, COIN, num_records=5, key=KEY)


@pytest.mark.parametrize("key", [0, np.int64(0), "8", jax.random.split(KEY)])
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(TypeError, match=r"key must come from jax\.random\.key"):
        synthesize(posterior_of(coin, COIN, 0.0, 1.0), coin, COIN, num_records=5, key=key)


def test_a_key_need_not_be_given(monkeypatch):
    """Each call then has one of its own, and its data sets stay as they are."""
    entropy = iter((b"a" * 8, b"b" * 8))
    monkeypatch.setattr("dpvi.posterior.posterior.secrets.token_bytes", lambda _: next(entropy))
    posterior = posterior_of(coin, COIN, 0.0, 1.0)
    first, second = (synthesize(posterior, coin, COIN, num_records=64, num_datasets=1) for _ in range(2))
    np.testing.assert_array_equal(first.encoded(0)["ill"], first.encoded(0)["ill"])
    assert not np.array_equal(first.encoded(0)["ill"], second.encoded(0)["ill"])


@pytest.mark.parametrize("schema", ["schema.toml", {"ill": Boolean()}])
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(TypeError, match=r"schema must be the dpvi\.Schema .* Schema\.load"):
        synthesize(posterior_of(coin, COIN, 0.0, 1.0), coin, schema, num_records=5, key=KEY)


def two_coins(ill):
    logits = numpyro.sample("logits", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("records", ill.shape[0]):
        numpyro.sample("ill", dist.Bernoulli(logits=logits[0]), obs=ill)
