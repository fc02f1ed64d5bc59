"""Guides: what is found in them, what is refused, and that nothing of a record reaches what is not noised."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer.autoguide import (
    AutoDAIS,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoLaplaceApproximation,
    AutoNormal,
    AutoSurrogateLikelihoodDAIS,
)
from support import guide_models, numpyro_models
from support.guide_models import PIXELS, mean, mean_guide, vae, vae_guide

import dpvi
from dpvi.models.base import ModelError
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.numpyro.guides.check import check_guide
from dpvi.models.numpyro.guides.execution import record_key, shared_key
from dpvi.models.numpyro.guides.start import starting_values

Y = np.array([0.3, -0.2, 1.0, 0.5])
ETA = jnp.asarray(np.random.default_rng(0).standard_normal(4).astype("float32"))


def test_parts_of_a_variational_auto_encoder():
    model = check_guide(vae, vae_guide, PIXELS)
    assert [site.name for site in model.sites] == ["shift"]
    assert model.layout.local_sites == ("code",)
    assert model.record_plate == "records"
    names = [site.name for site in model.parameters.sites]
    assert names == ["shift_location", "shift_spread", "encoder", "widths", "decoder"]
    assert model.num_parameters == 2 + 3 * guide_models.WIDTH * guide_models.LATENT


def test_a_start_in_one_program_is_where_numpyro_starts():
    model = check_guide(vae, vae_guide, PIXELS)
    assert model._starts.compiled is not None
    for key in map(jax.random.key, (0, 1)):
        starts, _ = starting_values(vae, vae_guide, model.structure, key)
        np.testing.assert_allclose(model.initial(key), model.parameters.unconstrain(starts), rtol=1e-5, atol=1e-6)
    other = model.parameters.unconstrain(starting_values(vae, vae_guide, model.structure, jax.random.key(2))[0])
    assert not np.allclose(model.initial(jax.random.key(0)), other, rtol=1e-2)  # the wrong answer: another key's
    given = model.parameters.constrain(model.initial(jax.random.key(0), {"shift_location": jnp.asarray(3.0)}))
    assert given["shift_location"] == 3.0


def computed_bounds(y):
    largest = 2 * jnp.ones(())
    location = numpyro.param("location", 0.5, constraint=constraints.interval(0.0, largest))
    numpyro.sample("centre", dist.Normal(location, 1.0))


def test_a_constraint_with_computed_bounds_keeps_them():
    model = check_guide(mean, computed_bounds, Y)
    assert model._starts.compiled is None
    values = model.parameters.constrain(model.initial(jax.random.key(0)) + 50.0)
    np.testing.assert_allclose(values["location"], 2.0, rtol=1e-6)


def moving_support(y):
    low = numpyro.sample("low", dist.Normal(0.0, 1.0))
    share = numpyro.sample("share", dist.Uniform(low, low + 2.0))
    with numpyro.plate("records", y.shape[0], subsample_size=2) as index:
        numpyro.sample("y", dist.Normal(share, 1.0), obs=y[index])


def test_an_autoguide_fits_models_as_users_write_them():
    """A support that moves with another latent, a plate that subsamples inside the model."""
    model = check_guide(moving_support, AutoDiagonalNormal(moving_support), {"y": Y})
    xi = model.initial(jax.random.key(0))
    z = model.draw(xi, ETA)
    assert z.shape == (model.dimension,) == (2,)
    values = model.constrain(z)
    assert values["low"] < values["share"] < values["low"] + 2
    np.testing.assert_allclose(model.unconstrain(values), z, rtol=1e-3, atol=1e-3)


def test_a_list_of_autoguides_is_set_up_anew_each_time():
    def parts():
        guide = AutoGuideList(numpyro_models.linear)
        guide.append(AutoNormal(numpyro.handlers.block(numpyro_models.linear, hide=["scale"])))
        guide.append(AutoNormal(numpyro.handlers.block(numpyro_models.linear, expose=["scale"])))
        return guide

    model = check_guide(numpyro_models.linear, parts(), (numpyro_models.X, numpyro_models.Y_REAL))
    assert model.num_parameters == 8
    first, second = (model.initial(jax.random.key(i)) for i in (0, 1))
    assert not np.array_equal(first, second)


def test_an_autoguide_that_follows_public_records_is_fitted():
    public = AutoSurrogateLikelihoodDAIS(mean, lambda: mean(jnp.asarray([0.1, 0.4])), K=2)
    assert check_guide(mean, public, Y).dimension == 1


def test_an_autoguide_set_up_on_records_starts_elsewhere():
    """What its set-up saw of the records must not come back as a start."""
    guide = AutoNormal(mean, init_loc_fn=numpyro.infer.init_to_value(values={"centre": 0.0}))
    with jax.numpy_dtype_promotion("standard"):
        numpyro.handlers.seed(guide, 0)(jnp.asarray(Y))
    guide._init_locs = {"centre": jnp.asarray(123.0)}
    model = check_guide(mean, guide, Y)
    assert 123.0 not in np.asarray(model.initial(jax.random.key(0)))


def test_parameters_reach_their_constraints_and_back():
    model = GuidedModel(vae, vae_guide, jax.ShapeDtypeStruct((guide_models.WIDTH,), jnp.dtype("float32")))
    xi = jnp.asarray(np.random.default_rng(2).normal(size=model.num_parameters).astype("float32"))
    params = model.parameters.constrain(xi)
    assert params["shift_spread"] > 0
    np.testing.assert_allclose(model.parameters.unconstrain(params), xi, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"missing \['decoder'\]"):
        model.parameters.unconstrain({name: value for name, value in params.items() if name != "decoder"})


def test_records_have_keys_of_their_own():
    records = jnp.asarray(np.random.default_rng(0).integers(0, 2, (500, 12)).astype("float32"))
    words = np.asarray(jax.random.key_data(jax.vmap(lambda record: record_key(ETA, record))(records)))
    distinct = len(np.unique(np.asarray(records), axis=0))
    assert len(np.unique(words, axis=0)) == distinct  # few bits in a float: a weak hash would collide
    other = jax.random.key_data(record_key(ETA.at[3].add(1e-3), records[0]))
    assert not np.array_equal(other, words[0])
    assert not np.array_equal(jax.random.key_data(shared_key(ETA)), words[0])
    mixed = {"a": jnp.arange(3), "b": jnp.array([True, False])}
    swapped = {"a": jnp.array([1, 0, 2]), "b": jnp.array([True, False])}
    first, second = (jax.random.key_data(record_key(ETA, record)) for record in (mixed, swapped))
    assert not np.array_equal(first, second)


def test_prng_key_is_the_records_own_and_the_same_in_guide_and_model():
    """Images binarised anew at each step: guide and model must see the same bits."""
    seen = {}

    def bits(where, x):
        drawn = jax.random.bernoulli(numpyro.prng_key(), jax.nn.sigmoid(x)).astype(x.dtype)
        seen[where] = drawn
        return drawn

    def model(x):
        scale = numpyro.param("scale", 1.0)
        x = bits("model", x)
        with numpyro.plate("records", x.shape[0]):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("x", dist.Bernoulli(logits=scale * z), obs=x)

    def guide(x):
        slope = numpyro.param("slope", 1.0)
        x = bits("guide", x)
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("z", dist.Normal(slope * x, 1.0))

    ready = check_guide(model, guide, Y)
    ready.run(ready.initial(jax.random.key(0)), ETA, jax.random.key(5), jnp.asarray(Y, jnp.float32))
    assert np.array_equal(seen["guide"], seen["model"])


def local(y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        z = numpyro.sample("z", dist.Normal(centre, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def shared_part():
    numpyro.sample("centre", dist.Normal(numpyro.param("location", 0.0), 1.0))


def misses_a_site(y):
    shared_part()


def local_outside_the_plate(y):
    shared_part()
    numpyro.sample("z", dist.Normal(numpyro.param("slope", 1.0) * y, 1.0).to_event(1))


def reads_records(y):
    numpyro.sample("centre", dist.Normal(numpyro.param("slope", 1.0) * y.mean(), 1.0))


def scale_reads_records(y):
    location = numpyro.param("location", 0.0)
    numpyro.sample("centre", dist.Normal(location, 1.0 + (y > 0).sum()))


def start_reads_records(y):
    numpyro.sample("centre", dist.Normal(numpyro.param("location", y.mean()), 1.0))


def constraint_reads_records(y):
    bounds = constraints.interval(y.min() - 1.0, y.max() + 1.0)
    numpyro.sample("centre", dist.Normal(numpyro.param("location", 0.0, constraint=bounds), 1.0))


def grows(y):
    shifts = numpyro.param("shifts", jnp.zeros(y.shape[0]))
    numpyro.sample("centre", dist.Normal(shifts[0], 1.0))


def without_gradient(y):
    numpyro.param("idle", 0.0)
    shared_part()


def only_compared(y):
    sign = jnp.sign(numpyro.param("idle", 1.0))
    numpyro.sample("centre", dist.Normal(numpyro.param("location", 0.0) + sign, 1.0))


def invents_a_site(y):
    shared_part()
    numpyro.sample("centr", dist.Normal(0.0, 1.0))


def not_differentiable(y):
    numpyro.sample("centre", dist.VonMises(numpyro.param("location", 0.0), 1.0))


def named_twice(y):
    numpyro.sample("centre", dist.Normal(numpyro.param("centre", 0.0), 1.0))


def nothing_to_learn(y):
    numpyro.sample("centre", dist.Normal(0.0, 1.0))


def keeps_state(y):
    numpyro.primitives.mutable("running", {"mean": 0.0})
    shared_part()


@pytest.mark.parametrize(
    ("model", "guide", "sentence"),
    [
        (local, misses_a_site, r"misses 'z'"),
        (local, local_outside_the_plate, r"'z' belongs to a record in the model but lies outside"),
        (local, AutoNormal(local), r"'z' belongs to a record.*an autoguide cannot"),
        (mean, reads_records, r"The guide's draw of 'centre' reads records"),
        (mean, scale_reads_records, r"The guide's draw of 'centre' reads records"),
        (mean, start_reads_records, r"The start or constraint of parameter 'location' reads records"),
        (mean, constraint_reads_records, r"The start or constraint of parameter 'location' reads records"),
        (mean, grows, r"'shifts' grows with the number of records|fail with"),
        (mean, without_gradient, r"'idle' never gets a gradient"),
        (mean, only_compared, r"'idle' never gets a gradient"),
        (mean, invents_a_site, r"draws 'centr', which the model does not have"),
        (mean, not_differentiable, r"'centre' cannot be differentiated"),
        (mean, nothing_to_learn, r"at least one numpyro.param"),
        (mean, keeps_state, r"mutable site 'running'"),
        (mean, AutoLaplaceApproximation(mean), r"curvature at all records"),
        (mean, named_twice, r"two sites have one name"),
        (mean, AutoDAIS(mean), r"AutoDAIS moves its draws along the density of the records"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__) if callable(value) else "",
)
def test_a_guide_that_cannot_be_fitted_says_why(model, guide, sentence):
    with pytest.raises(ModelError, match=sentence):
        check_guide(model, guide, Y)


def test_the_public_check_takes_a_guide():
    """A model that a family could not fit, for its latents under the plate; and a guide that cannot be fitted."""
    assert isinstance(dpvi.check(vae, PIXELS, guide=vae_guide), GuidedModel)
    with pytest.raises(ModelError, match=r"at least one numpyro\.param"):
        dpvi.check(mean, Y, guide=nothing_to_learn)
    with pytest.raises(ModelError):
        dpvi.check(vae, PIXELS)


def test_a_model_that_couples_records_or_reads_them_in_its_prior_is_refused():
    def centred(y):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y - y.mean())

    def empirical(y):
        centre = numpyro.sample("centre", dist.Normal(y.mean(), 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)

    def discrete(y):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            side = numpyro.sample("side", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Normal(centre * side, 1.0), obs=y)

    def discrete_guide(y):
        shared_part()
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("side", dist.Bernoulli(jax.nn.sigmoid(numpyro.param("slope", 1.0) * y)))

    for model, guide, sentence in (
        (centred, mean_guide, "alone in the batch"),
        (empirical, mean_guide, "prior or outer site 'centre' reads records"),
        (discrete, discrete_guide, "'side' is discrete"),
    ):
        with pytest.raises(ModelError, match=sentence):
            check_guide(model, guide, Y)


def test_what_all_records_share_may_not_depend_on_how_many_they_are():
    """A record is scored alone, where any such number is one."""

    def prior(y):
        centre = numpyro.sample("centre", dist.Normal(0.0, y.shape[0] ** -0.5))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)

    def narrow(y):
        numpyro.sample("centre", dist.Normal(numpyro.param("location", 0.0), y.shape[0] ** -0.5))

    for model, guide, sentence in (
        (prior, mean_guide, "log p of 'centre' depends on the number of records"),
        (mean, narrow, "log q of 'centre' depends on the number of records"),
    ):
        with pytest.raises(ModelError, match=sentence):
            check_guide(model, guide, Y)


def test_a_parameter_picked_by_a_records_place_is_refused():
    """Scored alone, every record would be the first and share its parameter; indices of records are no such thing."""

    def by_index(y):
        shared_part()
        shifts = numpyro.param("shifts", jnp.zeros(4))
        with numpyro.plate("records", 4, subsample_size=y.shape[0]) as index:
            numpyro.sample("z", dist.Normal(shifts[index], 1.0))

    def by_order(y):
        shared_part()
        shifts = numpyro.param("shifts", jnp.zeros(4))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("z", dist.Normal(shifts[: y.shape[0]], 1.0))

    def amortised(y):
        shared_part()
        with numpyro.plate("records", y.shape[0], subsample_size=2) as index:
            numpyro.sample("z", dist.Normal(numpyro.param("slope", 0.3) * y[index], 1.0))

    for guide in (by_index, by_order):
        with pytest.raises(ModelError, match="changes with its place in the batch"):
            check_guide(local, guide, Y)
    assert check_guide(local, amortised, Y).layout.local_sites == ("z",)


def test_a_guide_that_leaves_the_support_now_and_then_is_refused():
    def model(y):
        spread = numpyro.sample("spread", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(0.0, spread), obs=y)

    def guide(y, law=dist.Normal):
        numpyro.sample("spread", law(numpyro.param("location", 1.0), 1.0))

    with pytest.raises(ModelError, match="must draw inside the model's support"):
        check_guide(model, guide, Y)
    assert check_guide(model, partial(guide, law=dist.LogNormal), Y).dimension == 1


def test_sentences_hold_no_number_of_records():
    """It is private, and a finding may be pasted into a bug report."""
    many = np.random.default_rng(0).normal(size=97)
    with pytest.raises(ModelError) as caught:
        check_guide(mean, reads_records, many)
    assert "97" not in str(caught.value)


def test_an_array_kept_from_an_earlier_call_is_named():
    kept = []

    def keeping(y):
        kept.append(jnp.linspace(0.0, 1.0, 3))
        location = numpyro.param("location", 0.0) + kept[0][0]
        numpyro.sample("centre", dist.Normal(location, numpyro.param("spread", 1.0)))

    with pytest.raises(ModelError, match="keeps an array that an earlier call computed"):
        check_guide(guide_models.mean, keeping, np.zeros(5))
