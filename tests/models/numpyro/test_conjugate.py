"""Continuous latents of a record that are integrated out: against numerical integrals, formulas and wrong models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import integrate
from support.small_models import private_plan

import dpvi
from dpvi.models.base import ModelError
from dpvi.models.check import check
from dpvi.models.numpyro import NumPyroModel
from dpvi.population.generative import generative_findings, simulate_records
from dpvi.records.arrays import structure_of

pytestmark = pytest.mark.filterwarnings("ignore::dpvi.ModelNotice")

_random = np.random.default_rng(5)
N = 9
X, Y = (_random.normal(size=N).astype(np.float32) for _ in range(2))
SERIES = _random.normal(size=(N, 3)).astype(np.float32)
SEEN = (_random.random((N, 3)) < 0.6).astype(np.int32)
TRIALS, HITS = np.full(N, 12), _random.binomial(12, 0.3, N)
COUNTS, EXPOSURE = _random.poisson(2.0, N), (0.5 + _random.random(N)).astype(np.float32)


def sample(name, law):
    return numpyro.sample(name, law)


def random_effect(y):
    centre, spread = sample("centre", dist.Normal(0.0, 1.0)), sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Normal(centre, spread))
        numpyro.sample("y", dist.Normal(own, 0.7), obs=y)


def not_centred(y):
    centre, spread = sample("centre", dist.Normal(0.0, 1.0)), sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(centre + spread * own, 0.7), obs=y)


def several_times(y, seen):
    """Repeated observations, some of which are missing, of one effect per record."""
    spread = sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0], dim=-2):
        own = sample("own", dist.Normal(0.3, spread))
        with numpyro.plate("times", 3, dim=-1), handlers.mask(mask=seen > 0):
            numpyro.sample("y", dist.Normal(own, 0.7), obs=y)


def measurement_error(x, y):
    slope = sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        true = sample("true", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(true, 0.4), obs=x)
        numpyro.sample("y", dist.Normal(slope * true, 0.6), obs=y)


def chain(y):
    """A latent below a latent."""
    spread = sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        upper = sample("upper", dist.Normal(0.2, spread))
        lower = sample("lower", dist.Normal(2.0 * upper, 0.5))
        numpyro.sample("y", dist.Normal(lower - upper, 0.6), obs=y)


def slopes(y):
    """Correlated intercepts and slopes."""
    factor = sample("factor", dist.LKJCholesky(2, 1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.MultivariateNormal(jnp.array([0.1, -0.2]), scale_tril=0.8 * factor))
        mean = own[:, :1] + own[:, 1:] * jnp.array([-1.0, 0.0, 1.0])
        numpyro.sample("y", dist.Normal(mean, 0.7).to_event(1), obs=y)


def players(trials, hits):
    centre, weight = sample("centre", dist.Uniform(0.0, 1.0)), sample("weight", dist.Pareto(1.0, 1.5))
    with numpyro.plate("records", trials.shape[0]):
        skill = sample("skill", dist.Beta(centre * weight, (1 - centre) * weight))
        numpyro.sample("hits", dist.Binomial(trials, probs=skill), obs=hits)


def coins(y):
    weight = sample("weight", dist.Gamma(2.0, 1.0))
    with numpyro.plate("records", y.shape[0], dim=-2):
        share = sample("share", dist.Beta(weight, 2.0))
        with numpyro.plate("times", 3, dim=-1):
            numpyro.sample("y", dist.Bernoulli(probs=share), obs=y)


def failures(y):
    weight = sample("weight", dist.Gamma(2.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        share = sample("share", dist.Beta(1.0 + weight, 2.0))
        numpyro.sample("y", dist.Geometric(probs=share), obs=y)


def rates(exposure, y):
    shape, rate = sample("shape", dist.Gamma(2.0, 1.0)), sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Gamma(shape, rate))
        numpyro.sample("y", dist.Poisson(exposure * own), obs=y)


def waiting(y):
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Exponential(rate))
        numpyro.sample("y", dist.Exponential(2.0 * own), obs=y)


def hidden_kinds(y):
    """Two kinds of records, and an effect of each record's own."""
    spread, share = sample("spread", dist.HalfNormal(1.0)), sample("share", dist.Beta(2.0, 2.0))
    with numpyro.plate("records", y.shape[0]):
        kind = sample("kind", dist.Bernoulli(share))
        own = sample("own", dist.Normal(2.0 * kind, spread))
        numpyro.sample("y", dist.Normal(own, 0.7), obs=y)


def integral(model, record, ready, z, bounds):
    """log ∫ p(record, l) dl from NumPyro's own log joint on a batch of one record."""
    parameters = ready.constrain(z)
    batch = jax.tree.map(lambda leaf: leaf[None], record)
    args = batch if isinstance(batch, tuple) else (batch,)
    latents = ready.layout.integrated
    kinds = [{"kind": jnp.array([k])} for k in (0, 1)] if ready.layout.enumerated else [{}]
    sizes = {name: int(np.prod(latent.shape)) for name, latent in latents.items()}

    @jax.jit
    def density(flat):
        values, first = {}, 0
        for name, latent in latents.items():
            values[name] = flat[first : first + sizes[name]].reshape(latent.shape)
            first += sizes[name]
        total = 0.0
        for kind in kinds:
            with jax.numpy_dtype_promotion("standard"):
                handled = handlers.substitute(handlers.seed(model, 0), data={**parameters, **values, **kind})
                trace = handlers.trace(handled).get_trace(*args)
                inside = [m for n, m in trace.items() if m["type"] == "sample" and n not in parameters]
                total += jnp.exp(sum(jnp.sum(m["fn"].log_prob(m["value"])) for m in inside))
        return total

    grids = np.meshgrid(*[np.linspace(*bounds, 2001 if sum(sizes.values()) == 1 else 241)] * sum(sizes.values()))
    points = jnp.asarray(np.stack([grid.ravel() for grid in grids], axis=1), jnp.float32)
    values = np.asarray(jax.vmap(density)(points), float).reshape(grids[0].shape)
    for axis in reversed(range(values.ndim)):
        values = integrate.simpson(values, dx=(bounds[1] - bounds[0]) / (values.shape[axis] - 1), axis=axis)
    return float(np.log(values))


WIDE, INSIDE, UPWARDS = (-9.0, 9.0), (1e-4, 1 - 1e-4), (1e-4, 25.0)
INTEGRATED = [
    (random_effect, Y, WIDE),
    (not_centred, Y, WIDE),
    (several_times, (SERIES, SEEN), WIDE),
    (measurement_error, (X, Y), WIDE),
    (chain, Y, WIDE),
    (slopes, SERIES, WIDE),
    (players, (TRIALS, HITS), INSIDE),
    (coins, SEEN, INSIDE),
    (failures, COUNTS, INSIDE),
    (rates, (EXPOSURE, COUNTS), UPWARDS),
    (waiting, EXPOSURE, UPWARDS),
    (hidden_kinds, Y, WIDE),
]


@pytest.mark.parametrize(("model", "data", "bounds"), INTEGRATED, ids=[each[0].__name__ for each in INTEGRATED])
def test_a_term_is_the_integral_over_the_latents(model, data, bounds):
    ready = NumPyroModel(model, structure_of(data))
    assert ready.layout.integrated
    z = jnp.linspace(0.3, 0.6, ready.dimension)
    record = jax.tree.map(lambda leaf, one: jnp.asarray(leaf[1], one.dtype), data, ready.structure)
    expected = integral(model, record, ready, z, bounds)
    # the grid and float32 densities are good to a thousandth; leaving out the latent's variance is wrong by more
    np.testing.assert_allclose(float(jax.jit(ready.log_likelihood)(z, record)), expected, atol=2e-3)


def test_terms_have_the_gradients_and_curvatures_of_the_formula():
    def formula(y):
        centre, spread = sample("centre", dist.Normal(0.0, 1.0)), sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(centre, jnp.sqrt(spread**2 + 0.49)), obs=y)

    ours, theirs = (NumPyroModel(model, structure_of(Y)) for model in (random_effect, formula))
    z, record = jnp.array([0.4, -0.3]), jnp.float32(1.7)
    for derivative in (jax.grad, jax.hessian):
        mine, other = (jax.jit(derivative(model.log_likelihood))(z, record) for model in (ours, theirs))
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=1e-5)


def test_the_check_tries_terms_at_other_values_and_tells():
    with pytest.warns(dpvi.ModelNotice, match="'own' by a normal law with summed variance"):
        ready = check(random_effect, Y)
    assert ready.dimension == 2


def clipped(y):
    with numpyro.plate("records", y.shape[0]):
        share = sample("share", dist.Beta(sample("weight", dist.Gamma(2.0, 1.0)), 2.0))
        numpyro.sample("y", dist.Bernoulli(probs=jnp.clip(share, 0.01, 0.99)), obs=y)


def stepped(y):
    spread = sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(jnp.where(own > 0, 1.0, -1.0), 0.7), obs=y)


def own_scale(y):
    spread = sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(own)), obs=y)


def product(y):
    spread = sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        a, b = sample("a", dist.Normal(0.0, spread)), sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a * b, 0.7), obs=y)


def by_factor(y):
    spread = sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(own, 0.7), obs=y)
        numpyro.factor("further", -(own**4))


def logits(y):
    spread = sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("records", y.shape[0]):
        own = sample("own", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Bernoulli(logits=own), obs=y)


NOT_INTEGRATED = [
    (clipped, SEEN[:, 0]),
    (stepped, Y),
    (own_scale, Y),
    (product, Y),
    (by_factor, Y),
    (logits, SEEN[:, 0]),
]


@pytest.mark.parametrize(("model", "data"), NOT_INTEGRATED, ids=[each[0].__name__ for each in NOT_INTEGRATED])
def test_what_has_no_closed_form_is_told_of_the_guide(model, data):
    with pytest.raises(ModelError, match=r"guide=dpvi\.AutoAmortised\(model\)"):
        check(model, data)


def test_a_formula_that_does_not_fit_is_found_by_values():
    def half(y):
        weight = sample("weight", dist.Gamma(2.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            share = sample("share", dist.Beta(weight, 2.0))
            numpyro.sample("y", dist.Bernoulli(probs=0.5 * share), obs=y)  # affine, and no Beta-Bernoulli

    with pytest.raises(ModelError, match="formula does not fit"):
        check(half, SEEN[:, 0])


@pytest.mark.parametrize("meeting", [jnp.cumsum, lambda own: own - own.mean()])
def test_coupled_records_stay_refused(meeting):
    """All latents that move together leave what is centred as it was, so those of every other record move back."""

    def coupled(y):
        spread = sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("records", y.shape[0]):
            own = sample("own", dist.Normal(0.0, spread))
            numpyro.sample("y", dist.Normal(meeting(own), 0.7), obs=y)

    with pytest.raises(ModelError, match=r"alone in the batch|Records are coupled|formula does not fit the model"):
        check(coupled, Y)


def test_records_are_drawn_with_latents_of_their_own():
    model = NumPyroModel(random_effect, structure_of(Y))
    assert generative_findings(model) == []
    z = model.unconstrain({"centre": jnp.float32(1.0), "spread": jnp.float32(2.0)})
    drawn = np.asarray(simulate_records(model, z, jax.random.key(0), 4000))
    sd = np.sqrt(2.0**2 + 0.7**2)
    np.testing.assert_allclose(drawn.mean(), 1.0, atol=4 * sd / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(), sd, rtol=4 / np.sqrt(2 * 4000))  # without latents 0.7


def test_pooled_players_fit_without_a_guide():
    random = np.random.default_rng(0)
    trials = np.full(1500, 20)
    hits = random.binomial(20, random.beta(6.0, 14.0, 1500))
    plan = private_plan(num_steps=400, sampling_rate=0.1, noise_multiplier=0.5)
    result = dpvi.fit(players, (trials, hits), plan, seed=2**200, progress=False)
    centre = np.asarray(result.posterior("average").sample(500)["centre"])
    assert abs(centre.mean() - 0.3) < 0.03  # non-private sd 0.004
