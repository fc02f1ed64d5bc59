"""``DPSVI`` in place of NumPyro's ``SVI``: what it does alike, and what it does not let go wrong."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import Predictive, Trace_ELBO, TraceGraph_ELBO, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from support.guide_models import mean, mean_guide
from support.small_models import exact_plan, private_plan

import dpvi
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.gradients.guided import Guided
from dpvi.run.dpsvi import DPSVI
from dpvi.run.svi_arguments import as_optax, estimator_of

Y = np.random.default_rng(2).normal(0.5, 1.0, 97)
NUM_STEPS = 6
PLAN = private_plan(NUM_STEPS)
SEEDED = pytest.mark.filterwarnings("ignore:NOT PRIVATE:dpvi.PrivacyWarning")


def svi(plan=PLAN, model=mean, guide=mean_guide, optim=None, **options):
    return DPSVI(model, guide, optax.adam(0.05) if optim is None else optim, plan=plan, **options)


def steps(each, state, count, data=Y):
    for _ in range(count):
        state = each.update(state, data)
    return state


@SEEDED
def test_run_and_a_loop_of_updates_take_the_same_steps():
    looped = svi()
    state = steps(looped, looped.init(jax.random.key(3), Y), NUM_STEPS)
    ran = svi().run(jax.random.key(3), Y, progress_bar=False)
    for name, value in looped.get_params(state).items():
        np.testing.assert_allclose(value, ran.params[name], rtol=1e-5)
    start = svi().init(jax.random.key(3), Y)
    assert not np.allclose(start.xi, state.xi)


@SEEDED
def test_run_is_fit_with_a_guide():
    key = jax.random.key(9)
    ran = svi().run(key, Y, progress_bar=False)
    seed = int.from_bytes(np.asarray(jax.random.key_data(key)).astype("<u4").tobytes(), "little")
    fitted = dpvi.fit(mean, (Y,), PLAN, guide=mean_guide, optimizer=optax.adam(0.05), seed=seed, progress=False)
    np.testing.assert_array_equal(fitted.trace.iterates, ran.result.trace.iterates)
    np.testing.assert_array_equal(fitted.trace.final, ran.state.xi)
    assert ran.result.guarantee == fitted.guarantee


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_a_run_with_a_jax_key_says_in_capitals_that_it_is_not_private(impl, capsys):
    key = jax.random.key(2**31 + 12345, impl=impl)
    for begin in (svi().init, svi().run):
        with pytest.warns(dpvi.PrivacyWarning, match=r"NOT PRIVATE: .* by trying\. Pass None in its place"):
            ran = begin(key, Y)
    assert str(ran.result.guarantee).startswith("NOT PRIVATE")
    assert not ran.result.guarantee.private
    assert "dpvi NOT PRIVATE" in capsys.readouterr().err


def test_without_noise_a_key_takes_nothing_away():
    ran = svi(exact_plan(2)).run(jax.random.key(0), Y, progress_bar=False)  # a warning would be an error
    assert "no noise was planned" in str(ran.result.guarantee)


def test_keys_longer_than_those_of_jax_are_refused():
    """As a number they could pass for a secret seed, and jax.random.key fills them from 32 bits."""
    with pytest.raises(TypeError, match=r"rng_key must be None, .* NOT PRIVATE"):
        svi().init(jnp.ones(8, jnp.uint32), Y)


def test_without_a_key_every_run_is_another():
    first, second = (svi().run(None, Y, progress_bar=False) for _ in range(2))
    assert not np.any(np.asarray(first.state.xi) == np.asarray(second.state.xi))
    assert first.result.guarantee == PLAN.guarantee


@SEEDED
@pytest.mark.parametrize("optim", [numpyro.optim.Adam(0.05), numpyro.optim.SGD(1e-3)], ids=["Adam", "SGD"])
def test_numpyros_optimisers_take_numpyros_steps(optim):
    """Against optax's of the same name: Adam's updates agree, SGD's are exact."""
    twin = optax.adam(0.05) if "Adam" in type(optim).__name__ else optax.sgd(1e-3)
    ours, theirs = as_optax(optim), twin
    params = jnp.asarray([0.3, -0.2])
    state, other, there = ours.init(params), theirs.init(params), params
    for gradient in (jnp.asarray([1.0, -2.0]), jnp.asarray([0.5, 3.0])):
        with jax.numpy_dtype_promotion("standard"):
            update, state = ours.update(gradient, state, params)
            expected, other = theirs.update(gradient, other, there)
        params, there = params + update, there + expected
        np.testing.assert_allclose(params, there, rtol=1e-5)
    ran = svi(optim=optim).run(jax.random.key(0), Y, progress_bar=False)
    assert np.all(np.isfinite(ran.state.xi))


# What it does not let go wrong


def test_the_step_after_the_last_is_refused():
    each = svi()
    state = steps(each, each.init(None, Y), NUM_STEPS)
    with pytest.raises(ValueError, match=r"The plan is spent: it pays for 6 steps"):
        each.update(state, Y)
    with pytest.raises(ValueError, match="The plan is spent"):
        each.update(state._replace(step=NUM_STEPS + 5), Y)


def test_a_run_cannot_be_followed_by_a_step():
    each = svi()
    state = each.run(None, Y, progress_bar=False).state
    with pytest.raises(ValueError, match="The plan is spent"):
        each.update(state, Y)


def test_noise_is_never_used_twice():
    each = svi()
    first = each.init(None, Y)
    each.update(first, Y)
    with pytest.raises(ValueError, match="not the newest"):
        each.update(first, Y + 1)
    for again in (each.init, partial(each.run, progress_bar=False)):
        with pytest.raises(ValueError, match="make another DPSVI"):
            again(None, Y)


def test_a_batch_in_place_of_all_records_is_refused_without_a_number():
    each = svi()
    state = each.init(None, Y)
    with pytest.raises(ValueError, match="must be given all records") as caught:
        each.update(state, Y[:20])
    assert not any(text in str(caught.value) for text in ("97", "20"))


def test_update_gives_no_loss_and_is_no_part_of_a_jit():
    each = svi()
    state = each.init(None, Y)
    after = each.update(state, Y)
    assert type(after) is type(state)
    with pytest.raises(TypeError, match=r"cannot be part of a jax\.jit"):
        jax.jit(each.update)(after, Y)


def test_evaluate_wants_to_hear_that_data_are_public():
    each = svi()
    state = each.init(None, Y)
    with pytest.raises(ValueError, match="data_is_public=True"):
        each.evaluate(state, Y)
    with pytest.raises(ValueError, match="data_is_public=True"):
        each.evaluate(state, Y, data_is_public=1)
    public = np.random.default_rng(0).normal(size=50)
    # at the start q is N(0, 1), the prior: the expected loss is Σ y²/2 + n/2 + n log(2π)/2 in expectation over q
    expected = 0.5 * np.sum(public**2) + 25 + 25 * np.log(2 * np.pi)
    many = svi(loss=Trace_ELBO(num_particles=2000))
    loss = many.evaluate(many.init(None, Y), public, data_is_public=True)
    # per draw g ~ N(0, 1) the loss is n g²/2 − g Σy + …: its standard deviation over 2,000 draws
    error = np.sqrt((50**2 / 2 + np.sum(public) ** 2) / 2000)
    assert abs(loss - expected) < 5 * error
    assert abs(loss / 2 - expected) > 5 * error


@SEEDED
def test_nothing_without_noise_is_in_the_state_and_nothing_tells_the_number_of_records():
    """With a clip norm of almost nothing records cannot reach a noisy sum; so nothing in a state may know them."""
    release = GaussianRelease("gradients", 1.0, 3, 1e6, 1e-6)
    plan = Plan(epsilon=1.0, delta=1e-9, releases=(release,), accountant="no accountant, a label for tests")
    states = []
    for data in (Y, 5.0 - 3.0 * Y):
        each = svi(plan)
        states.append(steps(each, each.init(jax.random.key(4), data), 3, data))
    leaves = [jax.tree.leaves(state) for state in states]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)
    loss = [np.mean(data**2) for data in (Y, 5.0 - 3.0 * Y)]
    assert abs(loss[0] - loss[1]) > 1.0  # what SVI would have returned tells the data sets apart
    for leaf in leaves[0]:
        assert 97 not in np.shape(leaf)
        assert not np.any(np.isclose(np.asarray(leaf, float), 97.0))
    assert sorted(type(states[0])._fields) == ["clip_norm", "optimizer_state", "step", "xi"]


def test_a_loss_says_how_divergences_are_taken():
    expected = {
        None: (1, True),
        Trace_ELBO(num_particles=3): (3, False),
        TraceMeanField_ELBO(num_particles=2): (2, True),
    }
    for loss, (num_draws, closed_form) in expected.items():
        assert estimator_of(loss) == Guided(num_draws, closed_form)


def test_bad_settings_are_refused():
    with pytest.raises(TypeError, match="evaluates the loss"):
        svi(optim=numpyro.optim.Minimize())
    with pytest.raises(TypeError, match="optax or NumPyro optimiser"):
        svi(optim="adam")
    with pytest.raises(TypeError, match="Trace_ELBO"):
        svi(loss=TraceGraph_ELBO())
    with pytest.raises(TypeError, match="number of steps is the plan's"):
        svi().run(1000, Y)
    with pytest.raises(ValueError, match="Call init"):
        svi().update(None, Y)


# Arguments as scripts pass them


def regression(x, y=None, num_total=None, prior_scale=1.0):
    w = numpyro.sample("w", dist.Normal(0.0, prior_scale).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", num_total or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


@SEEDED
@pytest.mark.filterwarnings("ignore:.*'num_total' is the number of records:dpvi.ModelNotice")
def test_settings_among_the_arguments_are_bound():
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = (x[:, 0] > 0).astype(int)
    results = []
    for args, kwargs, static in (((x, y), {}, {}), ((x,), {"y": y, "num_total": 40}, {"prior_scale": 1.0})):
        each = svi(model=regression, guide=AutoNormal(regression), **static)
        results.append(each.run(jax.random.key(0), *args, progress_bar=False, **kwargs).params)
    for name, value in results[0].items():
        np.testing.assert_allclose(results[1][name], value, rtol=1e-5)


def test_parameters_work_with_predictive():
    guide = AutoNormal(regression)
    x = np.random.default_rng(0).normal(size=(40, 2)).astype("float32")
    params = svi(model=regression, guide=guide).run(None, x, (x[:, 0] > 0).astype(int), progress_bar=False).params
    with jax.numpy_dtype_promotion("standard"):
        drawn = Predictive(regression, guide=guide, params=params, num_samples=5)(jax.random.key(0), jnp.asarray(x[:3]))
    assert drawn["y"].shape == (5, 3)


def test_init_params_move_the_start():
    each = svi()
    state = each.init(None, Y, init_params={"location": 2.5})
    assert each.get_params(state)["location"] == 2.5
    with pytest.raises(ValueError, match=r"names \['locatoin'\]"):
        svi().init(None, Y, init_params={"locatoin": 2.5})
