"""What a user asks of a posterior: draws, quantiles, summaries, predictions, other people's containers."""

from __future__ import annotations

import importlib.util
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.distributions import constraints
from support.numpyro_models import logistic
from support.small_models import location_model, private_plan

from dpvi.models.sites import StaticBijections, layout
from dpvi.posterior import Gaussian, Posterior
from dpvi.posterior.posterior import CAVEATS, _scalar_names

SITES = layout(
    [
        ("w", (2,), (2,), constraints.real_vector),
        ("scale", (), (), constraints.positive),
        ("share", (3,), (2,), constraints.simplex),
    ]
)
MEAN = np.array([1.0, -2.0, 0.5, 0.1, -0.1], np.float32)
SD = np.array([0.1, 1.0, 0.3, 0.2, 0.2], np.float32)
KEY = jax.random.key(4)
GUARANTEE = private_plan(5).guarantee


@pytest.fixture
def posterior() -> Posterior:
    return Posterior(Gaussian(MEAN, SD), StaticBijections(SITES), "stationary", GUARANTEE)


def test_draws_are_on_the_parameters_supports(posterior):
    draws = posterior.sample(100)
    assert {name: draw.shape for name, draw in draws.items()} == {"w": (100, 2), "scale": (100,), "share": (100, 3)}
    assert bool(jnp.all(draws["scale"] > 0))
    np.testing.assert_allclose(draws["share"].sum(axis=-1), 1, rtol=1e-5)
    assert bool(jnp.all(draws["share"] > 0))
    assert posterior.sample_unconstrained(7).shape == (7, 5)
    assert posterior.guarantee is GUARANTEE
    assert repr(posterior) == "Posterior(method='stationary', dimension=5)"


def test_draws_repeat_with_a_key_and_only_then(posterior):
    np.testing.assert_array_equal(posterior.sample(5, KEY)["w"], posterior.sample(5, KEY)["w"])
    assert not np.array_equal(posterior.sample(5)["w"], posterior.sample(5)["w"])


def test_quantiles_are_the_normals(posterior):
    levels, num_samples = np.array([0.025, 0.5, 0.9]), 20_000
    quantiles = posterior.quantile(levels, num_samples)
    normal = scipy.stats.norm(MEAN, SD)
    exact = normal.ppf(levels[:, None])
    errors = np.sqrt(levels * (1 - levels) / num_samples)[:, None] / normal.pdf(exact)
    assert np.all(np.abs(quantiles["w"] - exact[:, :2]) < 5 * errors[:, :2])
    # quantiles commute with the monotone map to the support
    assert np.all(np.abs(np.log(quantiles["scale"]) - exact[:, 2]) < 5 * errors[:, 2])
    assert quantiles["share"].shape == (3, 3)
    assert posterior.quantile(0.5)["scale"].shape == ()


def test_a_summary_is_the_normals_and_repeats(posterior):
    num_samples = 20_000
    summary = posterior.summary(0.9, num_samples)
    assert summary.names == ("w[0]", "w[1]", "scale", "share[0]", "share[1]", "share[2]")  # the model's order
    assert np.all(np.abs(summary.mean[:2] - MEAN[:2]) < 5 * SD[:2] / np.sqrt(num_samples))
    np.testing.assert_allclose(summary.sd[:2], SD[:2], rtol=5 / np.sqrt(2 * num_samples))
    quantiles = posterior.quantile([0.05, 0.95], num_samples)
    np.testing.assert_allclose([summary.lower[:2], summary.upper[:2]], quantiles["w"], rtol=1e-5)
    np.testing.assert_allclose([summary.lower[2], summary.upper[2]], quantiles["scale"], rtol=1e-5)
    assert str(posterior.summary(0.9, num_samples)) == str(summary)


def test_a_summary_prints_as_a_table(posterior):
    summary = posterior.summary(0.8, 100)
    *lines, caveat = str(summary).splitlines()
    assert caveat == CAVEATS[posterior.method]  # what the intervals leave out
    assert len(lines) == 7
    assert lines[0].split() == ["parameter", "mean", "sd", "80", "%", "interval"]
    assert [line.split()[0] for line in lines[1:]] == list(summary.names)
    assert len({len(line) for line in lines}) == 1  # columns line up
    entry = summary.to_dict()["scale"]
    assert entry == {
        "mean": summary.mean[2],
        "sd": summary.sd[2],
        "lower": summary.lower[2],
        "upper": summary.upper[2],
    }


NAMED = {"w": ["age", "income"], "share": {"a": 0, "b": 1, "c": 2}}


def test_entries_of_a_site_can_have_names(posterior):
    summary = posterior.summary(num_samples=20, names=NAMED)
    assert summary.names == ("w[age]", "w[income]", "scale", "share[a]", "share[b]", "share[c]")
    np.testing.assert_array_equal(summary.mean, posterior.summary(num_samples=20).mean)
    table = pytest.importorskip("pandas").DataFrame({"age": [30], "income": [1.0]})
    assert posterior.summary(num_samples=20, names={"w": table}).names[:3] == ("w[age]", "w[income]", "scale")


def test_names_belong_to_the_last_axis():
    assert _scalar_names("w", (2, 2), ["a", "b"]) == ["w[0,a]", "w[0,b]", "w[1,a]", "w[1,b]"]
    assert _scalar_names("w", (2, 2)) == ["w[0,0]", "w[0,1]", "w[1,0]", "w[1,1]"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"v": ["a", "b"]}, "names holds 'v', but the sites are 'w', 'scale', 'share'"),
        ({"w": ["a"]}, "each of the 2 entries .* got 1 names"),
        ({"w": ["a", "a"]}, "got 2 names, 1 of them different"),
        ({"w": "ab"}, r"names\['w'\] must name"),
        ({"scale": ["a"]}, "each of the 0 entries"),
    ],
)
def test_names_that_fit_no_site_are_refused(posterior, names, sentence):
    for ask in (posterior.summary, posterior.to_arviz):
        with pytest.raises(ValueError, match=sentence):
            ask(num_samples=10, names=names)


def test_log_prob_of_one_vector_and_of_rows(posterior):
    rows = MEAN + SD * np.array([[0.0], [1.0], [-2.0]], np.float32)
    expected = scipy.stats.norm(MEAN, SD).logpdf(rows).sum(axis=1)
    np.testing.assert_allclose(posterior.log_prob(rows), expected, rtol=1e-4)
    assert posterior.log_prob(rows[0]).shape == ()
    np.testing.assert_allclose(posterior.log_prob(rows[1]), expected[1], rtol=1e-4)


@pytest.mark.parametrize("wanted", [0, -1, 2.5, True, "10", None])
def test_a_number_of_draws_that_makes_no_sense_is_refused(posterior, wanted):
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1"):
        posterior.sample(wanted)


@pytest.mark.parametrize("probability", [-0.1, 1.1, [0.5, np.nan]])
def test_a_quantile_outside_the_unit_interval_is_refused(posterior, probability):
    with pytest.raises(ValueError, match=r"probability must lie in \[0, 1\]"):
        posterior.quantile(probability)


@pytest.mark.parametrize("probability", [0, 1, 95, np.nan])
def test_an_interval_of_another_size_is_refused(posterior, probability):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        posterior.summary(probability)


def test_summary_refuses_a_number_of_draws_as_sample_does(posterior):
    with pytest.raises(ValueError, match="num_samples"):
        posterior.summary(num_samples=0)


def test_predictions_of_a_numpyro_model():
    sites = layout([("w", (2,), (2,), constraints.real_vector)])
    gaussian = Gaussian(np.array([8.0, 0.0], np.float32), np.full(2, 0.01, np.float32))
    posterior = Posterior(gaussian, StaticBijections(sites), "average", GUARANTEE)
    draws = posterior.predict(
        logistic, np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], np.float32), num_samples=400, key=KEY
    )
    assert set(draws) == {"y"}
    assert draws["y"].shape == (400, 3)
    frequencies = np.asarray(draws["y"]).mean(axis=0)
    assert frequencies[0] > 0.98
    assert frequencies[1] < 0.02
    assert abs(frequencies[2] - 0.5) < 5 * 0.025


def test_a_model_of_log_densities_cannot_predict(posterior):
    with pytest.raises(TypeError, match="log densities cannot simulate"):
        posterior.predict(location_model(), np.zeros((3, 2)))


# ArviZ, before and after 1.0


@pytest.mark.skipif(importlib.util.find_spec("arviz") is None, reason="ArviZ is optional")
def test_draws_reach_the_installed_arviz(posterior):
    container = posterior.to_arviz(50, KEY)
    draws = posterior.sample(50, KEY)
    for name, draw in draws.items():
        stored = container["posterior"][name]
        assert stored.dims[:2] == ("chain", "draw")
        np.testing.assert_array_equal(stored.values, np.asarray(draw)[None])
    named = posterior.to_arviz(50, KEY, names=NAMED)["posterior"]
    np.testing.assert_array_equal(named["w"].sel(w_name="income").values, np.asarray(draws["w"])[None, :, 1])
    assert named["share"].dims == ("chain", "draw", "share_name")


@pytest.mark.parametrize(("version", "positional"), [("0.23.4", False), ("1.0.0", True), ("1.3.0rc1", True)])
def test_each_arviz_is_called_its_own_way(monkeypatch, posterior, version, positional):
    calls = []
    fake = types.ModuleType("arviz")
    fake.__version__ = version
    fake.from_dict = lambda *args, **kwargs: calls.append((args, kwargs)) or "container"
    monkeypatch.setitem(sys.modules, "arviz", fake)
    assert posterior.to_arviz(6, KEY) == "container"
    ((args, kwargs),) = calls
    groups = args[0] if positional else kwargs
    assert bool(args) == positional
    assert set(groups) == {"posterior"}
    assert groups["posterior"]["share"].shape == (1, 6, 3)


def test_a_missing_arviz_is_named(monkeypatch, posterior):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"install dpvi\[arviz\]"):
        posterior.to_arviz()
