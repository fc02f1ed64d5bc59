"""Sites survive JSON, and then constrain samples without a model."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to, constraints
from support import numpyro_models as examples

from dpvi.models import sites as module
from dpvi.models.numpyro import NumPyroModel
from dpvi.records.arrays import structure_of

SUPPORTS = [
    (constraints.real, (2,)),
    (constraints.real_vector, (3,)),
    (constraints.real_matrix, (2, 2)),
    (constraints.positive, ()),
    (constraints.nonnegative, (2,)),
    (constraints.softplus_positive, ()),
    (constraints.greater_than(1.5), ()),
    (constraints.greater_than_eq(1.5), ()),
    (constraints.less_than(-1.0), (2,)),
    (constraints.unit_interval, ()),
    (constraints.circular, ()),
    (constraints.interval(-1.0, 2.0), ()),
    (constraints.interval(np.zeros(2), np.array([1.0, 2.0])), (2,)),
    (constraints.open_interval(0.0, 3.0), ()),
    (constraints.independent(constraints.interval(0.0, 3.0), 1), (2,)),
    (constraints.independent(constraints.positive, 2), (2, 3)),
    (constraints.simplex, (3,)),
    (constraints.ordered_vector, (3,)),
    (constraints.positive_ordered_vector, (3,)),
    (constraints.corr_cholesky, (3, 3)),
    (constraints.corr_matrix, (3, 3)),
    (constraints.lower_cholesky, (2, 2)),
    (constraints.softplus_lower_cholesky, (2, 2)),
    (constraints.scaled_unit_lower_cholesky, (2, 2)),
    (constraints.positive_definite, (2, 2)),
    (constraints.zero_sum(1), (3,)),
]


@pytest.mark.parametrize(("support", "shape"), SUPPORTS, ids=lambda value: str(value)[:40])
def test_a_support_survives_json_and_inverts(support, shape):
    unconstrained = biject_to(support).inverse_shape(shape)
    sites = module.layout([("before", (), (), constraints.real), ("site", shape, unconstrained, support)])
    stored = json.loads(json.dumps(module.sites_to_dict(sites)))
    rebuilt = module.StaticBijections(module.sites_from_dict(stored))
    z = jnp.asarray(np.random.default_rng(0).normal(size=rebuilt.dimension), dtype=jnp.float32)
    values = jax.jit(rebuilt.constrain)(z)
    assert values["site"].shape == shape
    expected = jax.jit(module.StaticBijections(sites).constrain)(z)["site"]
    np.testing.assert_array_equal(values["site"], expected)
    assert bool(jnp.all(support(values["site"])))
    np.testing.assert_allclose(jax.jit(rebuilt.unconstrain)(values), z, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("example", examples.EXAMPLES, ids=lambda e: e.name)
def test_a_stored_model_constrains_as_the_model_does(example):
    model = NumPyroModel(example.model, structure_of(example.data))
    stored = module.sites_from_dict(json.loads(json.dumps(module.sites_to_dict(model.sites))))
    if module.needs_model(stored):
        assert example.name == "dynamic"
        with pytest.raises(ValueError, match="'high', 'share' is known to the model only"):
            module.StaticBijections(stored)
        return
    z = jnp.full((model.dimension,), 0.4)
    ours, theirs = jax.jit(lambda v: (module.StaticBijections(stored).constrain(v), model.constrain(v)))(z)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_an_unknown_stored_support_is_refused():
    with pytest.raises(ValueError, match="'torus' is unknown"):
        module.support_from_dict({"kind": "torus"})
