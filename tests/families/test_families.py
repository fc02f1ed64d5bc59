"""Families: map, density, entropy and moments describe one and the same Gaussian."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from dpvi.families import FullRank, LowRank, MeanField
from dpvi.families.scales import apply_scale, invert_scale, scale_derivative

FAMILIES = [
    MeanField(),
    MeanField("exp"),
    FullRank(),
    FullRank("exp"),
    LowRank(1),
    LowRank(5, "exp"),
]
DIMENSIONS = (1, 4)
table = pytest.mark.parametrize("family", FAMILIES, ids=repr)
sizes = pytest.mark.parametrize("dimension", DIMENSIONS)


def parameters(family, dimension: int) -> jax.Array:
    """A point away from the start: correlated, uneven scales, nothing zero."""
    return 0.7 * jnp.asarray(np.random.default_rng(3).standard_normal(family.num_parameters(dimension)))


@functools.cache
def facts(family, dimension: int) -> dict[str, np.ndarray]:
    """Everything a family says of itself at one ξ, in 64 bits.

    ``points`` are equally weighted h(ξ, ±√b e_k): their mean is exact for quadratic functions of z.
    """
    base = family.num_base(dimension)

    def compute(xi, z):
        zero, corners = jnp.zeros(base), jnp.sqrt(float(base)) * jnp.eye(base)
        points = jax.vmap(family.transform, (None, 0))(xi, jnp.concatenate([corners, -corners]))
        density = jax.vmap(family.log_prob, (None, 0))
        return {
            "xi": xi,
            "z": z,
            "center": family.transform(xi, zero),
            "jacobian": jax.jacobian(family.transform, argnums=1)(xi, zero),
            "location": family.location(xi),
            "covariance": family.covariance(xi),
            "variances": family.variances(xi),
            "entropy": family.entropy(xi),
            "density": density(xi, z),
            "points": points,
            "density_at_points": density(xi, points),
        }

    with jax.enable_x64(True):
        z = jnp.asarray(np.random.default_rng(4).standard_normal((6, dimension)))
        return jax.tree.map(np.asarray, jax.jit(compute)(parameters(family, dimension), z))


@table
@sizes
def test_lengths(family, dimension):
    xi = family.initial(jnp.zeros(dimension))
    assert xi.shape == (family.num_parameters(dimension),)
    assert family.transform(xi, jnp.zeros(family.num_base(dimension))).shape == (dimension,)


@pytest.mark.parametrize(
    ("family", "num_parameters", "num_base"), [(MeanField(), 10, 5), (FullRank(), 20, 5), (LowRank(2), 20, 7)], ids=repr
)
def test_lengths_at_five_dimensions(family, num_parameters, num_base):
    assert (family.num_parameters(5), family.num_base(5)) == (num_parameters, num_base)


@table
def test_the_dimension_is_read_off_the_length(family):
    for dimension in (1, 2, 3, 10, 99, 100, 1000):
        length = family.num_parameters(dimension)
        assert jax.eval_shape(family.location, jax.ShapeDtypeStruct((length,), jnp.float32)).shape == (dimension,)


@table
@sizes
def test_the_map_has_the_stated_moments(family, dimension):
    """h is affine in η, so its value at zero and its Jacobian are the moments, without simulation."""
    fact = facts(family, dimension)
    np.testing.assert_allclose(fact["center"], fact["location"], rtol=1e-14)
    np.testing.assert_array_equal(fact["location"], fact["xi"][:dimension])
    np.testing.assert_allclose(fact["jacobian"] @ fact["jacobian"].T, fact["covariance"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(fact["variances"], np.diag(fact["covariance"]), rtol=1e-12)
    spread = np.cov(fact["points"].T, bias=True).reshape(dimension, dimension)
    np.testing.assert_allclose(spread, fact["covariance"], rtol=1e-10, atol=1e-12)


@table
@sizes
def test_density_and_entropy_are_those_of_scipy(family, dimension):
    fact = facts(family, dimension)
    gaussian = scipy.stats.multivariate_normal(fact["location"], fact["covariance"])
    np.testing.assert_allclose(fact["density"], gaussian.logpdf(fact["z"]), rtol=1e-9)
    np.testing.assert_allclose(fact["entropy"], gaussian.entropy(), rtol=1e-10)


@table
@sizes
def test_entropy_is_the_mean_of_the_negative_log_density(family, dimension):
    fact = facts(family, dimension)
    np.testing.assert_allclose(fact["entropy"], -np.mean(fact["density_at_points"]), rtol=1e-12)


@table
def test_the_start_is_where_and_as_wide_as_asked(x64, family):
    location = jnp.array([1.0, -2.0, 3.0])
    for width in (1e-6, 0.1, 2.0, 50.0):
        started = type(family)(**{**vars(family), "initial_scale": width})
        xi = started.initial(location)
        np.testing.assert_array_equal(np.asarray(started.location(xi)), np.asarray(location))
        deviations = np.sqrt(np.asarray(started.variances(xi)))
        if isinstance(family, LowRank):  # its factor starts small and uneven, never at zero
            np.testing.assert_allclose(np.asarray(started.diagonal(xi)), width, rtol=1e-9)
            assert np.all(deviations <= width * math.sqrt(1 + 0.01 * family.rank) * (1 + 1e-9))
            factor = np.asarray(started.factor(xi))
            assert np.all(factor != 0)
            assert len({column.tobytes() for column in factor.T}) == family.rank
        else:
            np.testing.assert_allclose(deviations, width, rtol=1e-9)
            np.testing.assert_allclose(np.asarray(started.covariance(xi)), width**2 * np.eye(3), rtol=1e-9, atol=0)


@table
@pytest.mark.parametrize("wide", [False, True], ids=["32-bit", "64-bit"])
def test_float32_in_float32_out(family, wide):
    """Under strict promotion, in both modes: users run float32."""
    with jax.enable_x64(wide):
        eta = jax.ShapeDtypeStruct((family.num_base(3),), jnp.float32)

        def everything(location, eta):
            xi = family.initial(location)
            z = family.transform(xi, eta)
            moments = family.location(xi), family.covariance(xi), family.variances(xi)
            return xi, z, moments, family.entropy(xi), family.log_prob(xi, z), jax.grad(family.entropy)(xi)

        outputs = jax.eval_shape(everything, jax.ShapeDtypeStruct((3,), jnp.float32), eta)
        assert {output.dtype for output in jax.tree.leaves(outputs)} == {np.dtype("float32")}


@pytest.mark.parametrize("scale", ["softplus", "exp"])
def test_inverse_fisher_inverts_the_fisher_matrix(x64, scale):
    """The Fisher matrix is the Hessian of −E log q_ξ at the truth; Gauss-Hermite nodes make the mean exact."""
    family, dimension = MeanField(scale), 2
    xi = parameters(family, dimension)
    density = jax.jit(jax.vmap(family.log_prob, (None, 0)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    eta = jnp.asarray(np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2))
    weight = jnp.asarray(np.outer(weights, weights).reshape(-1) / (2 * np.pi))
    z = jax.vmap(family.transform, (None, 0))(xi, eta)

    def cross_entropy(parameters):
        return -weight @ density(parameters, z)

    fisher = np.asarray(jax.jit(jax.hessian(cross_entropy))(xi))
    score = np.asarray(jax.jit(jax.jacobian(density))(xi, z))
    np.testing.assert_allclose((np.asarray(weight)[:, None] * score).T @ score, fisher, atol=1e-11)
    np.testing.assert_allclose(np.diag(np.asarray(family.inverse_fisher(xi))), np.linalg.inv(fisher), atol=1e-10)


@pytest.mark.parametrize("scale", ["softplus", "exp"])
def test_scales_derivatives_and_inverses(x64, scale):
    s = jnp.linspace(-20.0, 20.0, 81)
    derivative = jax.jit(jax.vmap(jax.grad(lambda value: apply_scale(scale, value))))(s)
    np.testing.assert_allclose(np.asarray(scale_derivative(scale, s)), np.asarray(derivative), rtol=1e-12)
    np.testing.assert_allclose([invert_scale(scale, value) for value in apply_scale(scale, s).tolist()], s, atol=1e-9)
    family = MeanField(scale)
    xi = jnp.concatenate([jnp.zeros_like(s), s])
    np.testing.assert_array_equal(np.asarray(family.scale_derivatives(xi)), np.asarray(scale_derivative(scale, s)))
    np.testing.assert_array_equal(np.asarray(family.standard_deviations(xi)), np.asarray(apply_scale(scale, s)))


@pytest.mark.parametrize("family", [MeanField, FullRank, lambda **options: LowRank(2, **options)])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scale": "log"}, "scale must be 'softplus' or 'exp', got 'log'"),
        ({"initial_scale": 0.0}, "initial_scale must be finite and greater than 0, got 0.0"),
        ({"initial_scale": -1.0}, "initial_scale must be finite and greater than 0"),
        ({"initial_scale": float("nan")}, "initial_scale must be finite and greater than 0"),
        ({"initial_scale": float("inf")}, "initial_scale must be finite and greater than 0"),
    ],
)
def test_bad_scales_are_refused(family, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        family(**options)


@pytest.mark.parametrize("rank", [0, -1, 1.5, True, "2"])
def test_bad_ranks_are_refused(rank):
    with pytest.raises(ValueError, match="rank must be a whole number of at least 1"):
        LowRank(rank)
