"""Models from plain functions, as a vector and as a dict of parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.models.base import Model
from dpvi.models.functions import from_functions


def prior(parameters):
    return -0.5 * jnp.sum(parameters["w"] ** 2) - 0.5 * parameters["b"] ** 2


def likelihood(parameters, record):
    x, y = record
    return -0.5 * (y - x @ parameters["w"] - parameters["b"]) ** 2


def test_named_parameters_equal_the_flat_vector():
    named = from_functions(prior, likelihood, {"w": (2,), "b": ()})
    flat = from_functions(
        lambda z: prior({"w": z[:2], "b": z[2]}), lambda z, r: likelihood({"w": z[:2], "b": z[2]}, r), 3
    )
    z, record = jnp.array([1.0, -2.0, 0.5]), (jnp.array([0.3, 0.1]), jnp.float32(1.0))
    assert named.dimension == flat.dimension == 3
    assert isinstance(named, Model)
    for ours, theirs in ((named, flat), (flat, named)):
        np.testing.assert_allclose(ours.log_prior(z), theirs.log_prior(z))
        gradients = (jax.grad(model.log_likelihood)(z, record) for model in (ours, theirs))
        np.testing.assert_allclose(*gradients, rtol=1e-6)


def test_values_round_trip():
    named = from_functions(prior, likelihood, {"w": (2,), "b": ()})
    z = jnp.array([1.0, -2.0, 0.5])
    assert list(named.constrain(z)) == ["w", "b"]
    np.testing.assert_array_equal(named.unconstrain(named.constrain(z)), z)
    flat = from_functions(lambda z: z.sum(), lambda z, r: z.sum(), 3)
    assert list(flat.constrain(z)) == ["z"]
    np.testing.assert_array_equal(flat.unconstrain({"z": np.asarray(z)}), z)


def test_own_bijections_are_used():
    def arguments():
        return lambda z: z.sum(), lambda z, r: z.sum(), 2

    model = from_functions(
        *arguments(), constrain=lambda z: {"scale": jnp.exp(z)}, unconstrain=lambda v: jnp.log(v["scale"])
    )
    z = jnp.array([0.1, -1.0])
    np.testing.assert_allclose(model.constrain(z)["scale"], jnp.exp(z))
    np.testing.assert_allclose(model.unconstrain(model.constrain(z)), z, rtol=1e-5)
    assert all(site.support is None for site in model.sites)
    half = from_functions(*arguments(), constrain=lambda z: {"scale": jnp.exp(z)})
    with pytest.raises(ValueError, match="pass unconstrain="):
        half.unconstrain({"scale": z})


@pytest.mark.parametrize("parameters", [0, -1, True, 2.5, "w", {}, {"w": (0,)}, {"w": ("a",)}])
def test_bad_parameters_are_refused(parameters):
    with pytest.raises(ValueError, match="arameter"):
        from_functions(prior, likelihood, parameters)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="log_likelihood must be a function, got int"):
        from_functions(prior, 3, 2)


def test_a_vector_of_the_wrong_length_is_refused():
    model = from_functions(prior, likelihood, {"w": (2,), "b": ()})
    with pytest.raises(ValueError, match="length 3"):
        model.log_prior(jnp.zeros(2))
