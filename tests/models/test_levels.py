"""Sizes that models read from their records, declared instead, and settings in objects."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dpvi
from dpvi.models.base import ModelError

pytestmark = pytest.mark.filterwarnings("ignore::dpvi.ModelNotice")

_random = np.random.default_rng(0)
GROUP, Y = _random.integers(0, 3, 40), _random.normal(size=40).astype(np.float32)
LEVELS = dpvi.Levels(range(5))  # more than occur


def by_group(group, y):
    num_groups = len(np.unique(group))
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([num_groups]))
    with numpyro.plate("records", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def by_largest(group, y):
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([int(jnp.max(group)) - int(np.min(group)) + 1]))
    with numpyro.plate("records", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


@pytest.mark.parametrize("model", [by_group, by_largest])
@pytest.mark.parametrize("by_name", [True, False])
def test_sizes_come_from_declared_levels(model, by_name):
    data = {"group": GROUP, "y": Y} if by_name else (GROUP, Y)
    ready = dpvi.check(model, data, static={"group": LEVELS})
    assert ready.dimension == 5


def test_a_size_read_from_records_is_refused_with_the_declaration():
    with pytest.raises(ModelError, match=r"static=\{'group': dpvi\.Levels\(range\(6\)\)\}"):
        dpvi.check(by_group, (GROUP, Y))
    with pytest.raises(ModelError, match=r"static=\{'label': dpvi\.Levels\(range\(3\)\)\}"):
        dpvi.check(by_largest, (GROUP, Y))


def test_what_was_exchanged_is_put_back():
    before = (np.max, jnp.max, np.unique)
    dpvi.check(by_group, (GROUP, Y), static={"group": LEVELS})
    assert (np.max, jnp.max, np.unique) == before


def test_levels_of_no_argument_are_refused():
    with pytest.raises(ValueError, match="levels of 'grp', which are no arguments"):
        dpvi.check(by_group, (GROUP, Y), static={"grp": LEVELS})


def test_levels_serve_fits_beside_other_constants():
    def model(group, y, width):
        num_groups = int(np.max(group)) + 1
        effect = numpyro.sample("effect", dist.Normal(0.0, width).expand([num_groups]))
        with numpyro.plate("records", len(y)):
            numpyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)

    plan = dpvi.plan_nonprivate(sampling_rate=0.5, num_steps=5)
    result = dpvi.fit(model, (GROUP, Y), plan, static={"group": LEVELS, "width": 2.0}, seed=1, progress=False)
    assert result.posterior("last").sample(3)["effect"].shape == (3, 5)


def test_an_object_with_settings_is_a_constant():
    def model(y, settings):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([settings.size]))
        numpyro.sample("y", dist.Normal(w.sum(), 1.0), obs=y)

    assert dpvi.check(model, (Y, SimpleNamespace(size=4))).dimension == 4


def test_an_object_with_records_is_refused():
    def model(y, settings):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(w + settings.mean.mean(), 1.0), obs=y)

    with pytest.raises(ModelError, match="as many rows or entries as the data"):
        dpvi.check(model, (Y, SimpleNamespace(mean=Y + 1)))


def test_records_among_the_axes_of_to_event_get_a_plate():
    def vector(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(w * x, 1.0).to_event(1), obs=y)

    def plated(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", len(y)):
            numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)

    def rows(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(w * x[:, None], 1.0).expand([x.shape[0], 2]).to_event(2), obs=y)

    other = Y[::-1].copy()
    ours, theirs = dpvi.check(vector, (Y, other)), dpvi.check(plated, (Y, other))
    z, record = jnp.array([0.3]), (jnp.float32(0.5), jnp.float32(-1.0))
    np.testing.assert_allclose(ours.log_likelihood(z, record), theirs.log_likelihood(z, record), rtol=1e-6)
    pairs = dpvi.check(rows, (Y, np.stack([Y, other], 1)))
    both = pairs.log_likelihood(z, (record[0], jnp.array([-1.0, -1.0])))
    np.testing.assert_allclose(both, 2 * theirs.log_likelihood(z, record), rtol=1e-6)
    assert jax.tree.leaves(pairs.structure)[1].shape == (2,)


def test_a_site_for_every_record_is_a_series():
    def model(y):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        for place in range(1, y.shape[0]):
            numpyro.sample(f"y_{place}", dist.Normal(level * y[place - 1], 1.0), obs=y[place])

    with pytest.raises(ModelError, match="makes sites for every single record"):
        dpvi.check(model, Y)
