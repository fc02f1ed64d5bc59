"""A JAX that gives all records the gradient of one is not run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from dpvi.mechanism.compiler_check import CompilerError, check_compiler, records_are_mixed_up
from support import numpyro_models
from support.small_models import RECORDS, exact_plan, location_model

import dpvi
from dpvi.data.records import as_records, structure_of
from dpvi.families import MeanField
from dpvi.gradients.guided import Guided
from dpvi.gradients.vanilla import Vanilla
from dpvi.mechanism import compiler_check
from dpvi.models.guides import GuidedModel
from dpvi.models.numpyro import NumPyroModel


@pytest.fixture(autouse=True)
def as_in_a_new_process():
    check_compiler.cache_clear()
    yield
    check_compiler.cache_clear()


def test_the_installed_jax_keeps_records_apart():
    assert not records_are_mixed_up()
    check_compiler()


def test_a_jax_that_does_not_is_refused_before_a_run(monkeypatch):
    """The named wrong answer: what jaxlib 0.10.2 computes, the gradient of one record for all."""

    def wrong(function, in_axes):
        batched = jax.vmap(function, in_axes)
        return lambda scale, records: jnp.broadcast_to(batched(scale, records)[:1], records.shape[:1])

    class Wrong:
        vmap = staticmethod(wrong)
        jit = staticmethod(lambda function: function)

        def __getattr__(self, name):
            return getattr(jax, name)

    monkeypatch.setattr(compiler_check, "jax", Wrong())
    with pytest.raises(CompilerError, match=r"install jax 0\.10\.1"):
        dpvi.fit(location_model(), RECORDS, exact_plan(4, 0.5), seed=0, progress=False)


def test_gradients_by_hand_are_those_of_the_term():
    records = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    one_by_one = [jax.grad(compiler_check._term)(jnp.float32(0.7), jnp.asarray(record)) for record in records]
    np.testing.assert_allclose(compiler_check._gradient(0.7, records), one_by_one, rtol=1e-4)


LARGE, SMALL = 4096, 64
FACTOR = jnp.array([[1.0, 0.0], [0.4, 0.5]])


def correlated_codes(x):
    with numpyro.plate("records", x.shape[0]):
        code = numpyro.sample("code", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        numpyro.sample("x", dist.Normal(code.sum(-1), 1.0), obs=x)


def correlated_guide(x):
    location, spread = numpyro.param("location", 0.3), numpyro.param("spread", 0.7)
    with numpyro.plate("records", x.shape[0]):
        means = location * x[:, None] * jnp.ones(2)
        numpyro.sample("code", dist.MultivariateNormal(means, scale_tril=FACTOR * spread))


def many(data):
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[random.integers(0, len(leaf), LARGE)], data)


def of_a_family(name):
    """(record -> release) of a model of the tests, and its records."""
    example = next(each for each in numpyro_models.EXAMPLES if each[0] == name)
    records, _ = as_records(many(example[2]))
    model, family = NumPyroModel(example[1], structure_of(records)), MeanField()
    xi = family.initial(jnp.zeros(model.dimension))
    eta = jax.random.normal(jax.random.key(1), (1, model.dimension))
    queries = jax.vmap(family.transform, (None, 0))(xi, eta)
    return lambda record: Vanilla().release(model, family, xi, eta, queries, record), records


def of_a_guide():
    records, _ = as_records(np.random.default_rng(0).normal(size=LARGE))
    model = GuidedModel(correlated_codes, correlated_guide, structure_of(records))
    assert model.closed_sites == ("code",)
    xi, eta = model.initial(jax.random.key(0)), jax.random.normal(jax.random.key(1), (1, model.num_base))
    return lambda record: Guided().release(model, None, xi, eta, None, record), records


@pytest.mark.parametrize("name", ["logistic", "hierarchical", "mixture", "guide"])
def test_a_release_does_not_depend_on_the_size_of_its_batch(name):
    """With jaxlib 0.10.2 all 4,096 releases of the guide were the same."""
    release, records = of_a_guide() if name == "guide" else of_a_family(name)
    released = jax.jit(jax.vmap(release))
    together = np.asarray(released(records))
    parts = [jax.tree.map(lambda leaf, at=at: leaf[at : at + SMALL], records) for at in range(0, LARGE, SMALL)]
    apart = np.concatenate([released(part) for part in parts])
    np.testing.assert_allclose(together, apart, rtol=1e-3, atol=1e-4 * np.max(np.abs(apart)))
    assert np.max(np.std(apart, axis=0)) > 0.1  # one release for all would not pass
