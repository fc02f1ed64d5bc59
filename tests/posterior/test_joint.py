"""A posterior joined from blocks: draws of all sites, densities that multiply, one privacy statement."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.guide_models import mean, mean_guide
from support.small_models import private_plan

import dpvi
from dpvi.posterior import join


def block(name, noise_multiplier):
    def model(x):
        z = numpyro.sample(name, dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("x", dist.Normal(z, 1.0).to_event(1), obs=x)

    plan = private_plan(4, noise_multiplier=noise_multiplier)
    return dpvi.fit(model, np.zeros((9, 2), np.float32), plan, seed=1, progress=False)


@pytest.fixture(scope="module")
def results():
    return block("a", 1.0), block("b", 2.0)


def test_draws_hold_all_sites_and_densities_multiply(results):
    parts = [result.posterior("last") for result in results]
    joint = join({"first": (results[0], parts[0]), "second": (results[1], parts[1])})
    assert {name: draw.shape for name, draw in joint.sample(5, jax.random.key(0)).items()} == {"a": (5, 2), "b": (5, 2)}
    z = jnp.array([0.1, -0.2, 0.3, 0.4], jnp.float32)
    np.testing.assert_allclose(joint.log_prob(z), parts[0].log_prob(z[:2]) + parts[1].log_prob(z[2:]), rtol=1e-5)
    assert abs(joint.log_prob(z) - joint.log_prob(z[::-1])) > 1e-3
    assert joint.method == "first: last, second: last"
    # blocks are independent: a key shared by both would tie their draws
    draws = np.asarray(joint.sample_unconstrained(2000, jax.random.key(1)))
    assert np.abs(np.corrcoef(draws.T)[:2, 2:]).max() < 4 / np.sqrt(2000)


def test_runs_that_were_not_planned_together_add_up(results):
    joint = join({name: (result, result.posterior("last")) for name, result in zip("ab", results, strict=True)})
    assert not joint.guarantee.private  # small seeds
    assert joint.guarantee.planned.epsilon == pytest.approx(2.0)


def test_refusals(results):
    first = (results[0], results[0].posterior("last"))
    with pytest.raises(ValueError, match="'a' is in several"):
        join({"one": first, "two": first})
    with pytest.raises(ValueError, match="at least two"):
        join({"one": first})


WRONG = {
    "no posterior": lambda result: {"two": (result, None)},
    "a result alone": lambda result: {"two": result},
    "a posterior alone": lambda result: {"two": result.posterior("last")},
    "the wrong way round": lambda result: {"two": (result.posterior("last"), result)},
    "a third": lambda result: {"two": (result, result.posterior("last"), 1)},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_block_is_a_result_with_its_posterior(results, case):
    first = (results[0], results[0].posterior("last"))
    with pytest.raises(TypeError, match=r"join needs \{name: \(result, result\.posterior\(\)\)\}, got .* for 'two'"):
        join({"one": first, **WRONG[case](results[1])})
    with pytest.raises(TypeError, match="got list"):
        join(list(results))


def test_the_posterior_of_a_guide_cannot_be_joined(results):
    """Its draws would lack the privacy noise that the other block's include."""
    by_guide = dpvi.fit(mean, np.zeros(9), private_plan(4), guide=mean_guide, seed=1, progress=False)
    with pytest.raises(TypeError, match="'two' is a guide's"):
        join({"one": (results[0], results[0].posterior("last")), "two": (by_guide, by_guide.posterior())})
