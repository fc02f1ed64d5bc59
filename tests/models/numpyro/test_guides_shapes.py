"""Latents of a guide and its model: one shape in both, or a sentence that says which."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from dpvi.models.base import ModelError
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.numpyro.guides.check import check_guide

Y = np.array([0.3, -0.2, 1.0, 0.5])
NUMBER = jax.ShapeDtypeStruct((), jnp.dtype("float32"))
ETA = jnp.asarray(np.random.default_rng(0).standard_normal(4).astype("float32"))


def records(y, dim=-1):
    return numpyro.plate("records", y.shape[0], dim=dim)


def inner(dim=-2):
    return numpyro.plate("inner", 3, dim=dim)


def local(y):
    """A record has three latents of its own."""
    with records(y):
        with inner():
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z.sum(axis=0), 1.0), obs=y)


def _draw_local(y):
    slope = numpyro.param("slope", 0.5)
    numpyro.sample("z", dist.Normal(slope * y, 1.0))


def one_for_three(y):
    with records(y):
        _draw_local(y)


def other_axis(y):
    with records(y, dim=-2), inner(dim=-1):
        _draw_local(y[:, None])


def third_plate(y):
    with records(y), inner(), numpyro.plate("further", 2, dim=-3):
        _draw_local(y)


def transposed(y):
    """(2, N) in the model, (N, 2) in the guide: equal on a batch of two, so a second batch must tell."""
    with records(y), numpyro.plate("pair", 2, dim=-2):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    with records(y):
        numpyro.sample("y", dist.Normal(z.sum(axis=0), 1.0), obs=y)


def transposed_guide(y):
    slope = numpyro.param("slope", 0.5)
    with records(y):
        numpyro.sample("z", dist.Normal(slope * y[:, None], 1.0).expand([y.shape[0], 2]).to_event(1))


def grouped(y):
    """Four latents that all records share."""
    with numpyro.plate("groups", 4):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with records(y):
        numpyro.sample("y", dist.Normal(w.sum(), 1.0), obs=y)


def vector(y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with records(y):
        numpyro.sample("y", dist.Normal(w.sum(), 1.0), obs=y)


def single(y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with records(y):
        numpyro.sample("y", dist.Normal(w, 1.0), obs=y)


def shaped(*shape):
    """A guide of ``w`` with a location of this shape and no plate."""

    def guide(y):
        numpyro.sample("w", dist.Normal(numpyro.param("location", jnp.zeros(shape)), 1.0))

    return guide


def in_groups(y):
    location = numpyro.param("location", jnp.zeros(4))
    with numpyro.plate("groups", 4):
        numpyro.sample("w", dist.Normal(location, 1.0))


def as_an_event(y):
    numpyro.sample("w", dist.Normal(numpyro.param("location", jnp.zeros(4)), 1.0).to_event(1))


@pytest.mark.parametrize(
    ("model", "guide", "sentence"),
    [
        (
            local,
            one_for_three,
            r"in the model, \(3, 2\) for 2 records, but the guide draws \(2,\).*under 'inner' in the",
        ),
        (local, other_axis, r"\(3, 2\) for 2 records, but the guide draws \(2, 3\).*the dim= of its plates"),
        (local, third_plate, r"but the guide draws \(2, 3, 2\).*outside 'further'"),
        (transposed, transposed_guide, r"\(2, 3\) for 3 records, but the guide draws \(3, 2\)"),
        (grouped, shaped(), r"in the model, \(4,\), but the guide draws \(\).*under 'groups'"),
        (grouped, shaped(1), r"in the model, \(4,\), but the guide draws \(1,\)"),
        (grouped, shaped(4, 1), r"in the model, \(4,\), but the guide draws \(4, 1\)"),
        (vector, shaped(2, 4), r"in the model, \(4,\), but the guide draws \(2, 4\).*by expand"),
        (single, in_groups, r"in the model, \(\), but the guide draws \(4,\).*outside 'groups'"),
        (single, as_an_event, r"in the model, \(\), but the guide draws \(4,\)"),
    ],
)
def test_another_shape_in_the_guide_is_refused(model, guide, sentence):
    """NumPyro's log-densities broadcast, so a draw would count once in one and several times in the other."""
    with pytest.raises(ModelError, match=sentence):
        GuidedModel(model, guide, NUMBER)


@pytest.mark.parametrize("model", [grouped, vector])
@pytest.mark.parametrize("guide", [in_groups, as_an_event, shaped(4), shaped(1, 4)])
def test_plates_and_events_are_interchangeable_where_densities_agree(model, guide):
    ready = GuidedModel(model, guide, NUMBER)
    xi = jnp.asarray([0.3, -0.1, 0.8, 0.2])
    draw = ready.draw(xi, ETA)
    expected = np.sum(dist.Normal(0.0, 1.0).log_prob(draw) - dist.Normal(xi, 1.0).log_prob(draw))
    np.testing.assert_allclose(ready.record_free(xi, ETA), expected, rtol=1e-5, atol=1e-6)
    four_times = np.sum(dist.Normal(0.0, 1.0).log_prob(draw) - 4 * dist.Normal(xi, 1.0).log_prob(draw))
    assert abs(four_times - expected) > 1  # what a broadcast density would be
    assert ready.constrain(draw)["w"].shape == (4,)
    np.testing.assert_allclose(ready.unconstrain(ready.constrain(draw)), draw)


def three_at_once(y):
    slope = numpyro.param("slope", 0.5)
    with records(y):
        numpyro.sample("z", dist.Normal(slope * y, 1.0).expand([3, y.shape[0]]))


def under_the_same_plates(y):
    with records(y), inner():
        _draw_local(y)


@pytest.mark.parametrize("guide", [under_the_same_plates, three_at_once])
def test_three_latents_of_a_record_count_three_times_in_both(guide):
    ready = check_guide(local, guide, Y)
    xi, y, key = jnp.asarray([0.5]), jnp.asarray(0.7), jax.random.key(1)
    trace, _ = ready.run(xi, ETA, key, y[None])
    z = trace["z"]["value"]
    assert z.shape == (3, 1)
    expected = np.sum(dist.Normal(0.0, 1.0).log_prob(z) - dist.Normal(0.5 * y, 1.0).log_prob(z))
    expected += dist.Normal(z.sum(), 1.0).log_prob(y)
    np.testing.assert_allclose(ready.term(xi, ETA, key, y, False), expected, rtol=1e-5)


def test_variables_of_the_guide_alone_may_have_any_shape():
    def guide(y):
        mixing = numpyro.sample(
            "mixing", dist.Normal(0.0, numpyro.param("spread", jnp.ones(2))), infer={"is_auxiliary": True}
        )
        numpyro.sample("w", dist.Normal(numpyro.param("location", 0.0) + mixing.sum(), 1.0))

    ready = check_guide(single, guide, Y)
    xi = jnp.asarray([0.9, 1.2, 0.4])
    trace, _ = ready.run(xi, ETA, jax.random.key(0), jnp.asarray(Y, jnp.float32))
    mixing, w = trace["mixing"]["value"], trace["w"]["value"]
    expected = dist.Normal(0.0, 1.0).log_prob(w) - dist.Normal(0.4 + mixing.sum(), 1.0).log_prob(w)
    expected -= dist.Normal(0.0, jnp.asarray([0.9, 1.2])).log_prob(mixing).sum()
    np.testing.assert_allclose(ready.record_free(xi, ETA), expected, rtol=1e-5)


def one_per_record(y):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([y.shape[0]]).to_event(1))
    with records(y):
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def one_per_record_guide(y):
    numpyro.sample("z", dist.Normal(numpyro.param("location", 0.0), 1.0).expand([y.shape[0]]).to_event(1))


def numbered(y):
    z = jnp.stack([numpyro.sample(f"z{i}", dist.Normal(0.0, 1.0)) for i in range(y.shape[0])])
    with records(y):
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def numbered_guide(y):
    location = numpyro.param("location", 0.0)
    for i in range(y.shape[0]):
        numpyro.sample(f"z{i}", dist.Normal(location, 1.0))


@pytest.mark.parametrize(
    ("model", "guide", "sentence"),
    [
        (
            one_per_record,
            one_per_record_guide,
            r"'z' belongs to a record in the model but lies outside a record plate in the guide",
        ),
        (numbered, numbered_guide, r"'z2' of the guide must exist for any number of records"),
    ],
)
def test_latents_outside_the_plate_that_grow_with_the_records_are_refused(model, guide, sentence):
    """Alone in a batch, every record would meet the first of them."""
    with pytest.raises(ModelError, match=sentence):
        GuidedModel(model, guide, NUMBER)


def test_values_that_are_missing_need_a_draw_and_the_sentence_says_of_what():
    def model(y, seen):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with records(y):
            numpyro.sample("y", dist.Normal(w, 1.0), obs=y, obs_mask=seen)

    def guide(y, seen):
        numpyro.sample("w", dist.Normal(numpyro.param("location", 0.0), 1.0))

    structure = (NUMBER, jax.ShapeDtypeStruct((), jnp.dtype(bool)))
    with pytest.raises(ModelError, match=r"misses 'y_unobserved', the values that obs_mask= says are missing in 'y'"):
        GuidedModel(model, guide, structure)

    def masked(y, seen):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with records(y), handlers.mask(mask=seen):
            numpyro.sample("y", dist.Normal(w, 1.0), obs=y)

    ready = GuidedModel(masked, guide, structure)  # the remedy
    xi, key = jnp.zeros(1), jax.random.key(0)
    assert ready.term(xi, ETA, key, (jnp.asarray(0.3), jnp.asarray(False))) == 0
    assert ready.term(xi, ETA, key, (jnp.asarray(0.3), jnp.asarray(True))) < 0


def test_a_discrete_latent_that_the_guide_leaves_out_is_not_asked_for():
    def model(y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with records(y):
            side = numpyro.sample("side", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Normal(w * side, 1.0), obs=y)

    with pytest.raises(ModelError, match="'side' is discrete") as caught:
        GuidedModel(model, shaped(), NUMBER)
    assert "misses" not in str(caught.value)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_plate_that_subsamples_something_else_keeps_its_draw(size):
    """Whatever its size, also where it is that of a batch: only the record plate stands for the batch."""

    def model(y):
        with numpyro.plate("groups", 10, subsample_size=size):
            w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with records(y):
            numpyro.sample("y", dist.Normal(w.sum(), 1.0), obs=y)

    def guide(y):
        location = numpyro.param("location", jnp.zeros(10))
        with numpyro.plate("groups", 10, subsample_size=size) as chosen:
            numpyro.sample("w", dist.Normal(location[chosen], 1.0))

    ready = GuidedModel(model, guide, NUMBER)
    met = set()
    for seed in range(6):
        eta = jnp.asarray(np.random.default_rng(seed).standard_normal(4).astype("float32"))
        traces = ready.run(jnp.zeros(10), eta, jax.random.key(0), jnp.zeros(size))
        np.testing.assert_array_equal(*(trace["groups"]["value"] for trace in traces))
        met |= set(np.asarray(traces[0]["groups"]["value"]).tolist())
    assert len(met) > size  # the wrong answer: the first groups every time
