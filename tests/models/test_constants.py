"""Constants among the arguments: what is taken as public, what never is, and that the guarantee says so."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoNormal
from support.small_models import private_plan

import dpvi
from dpvi.models.base import ModelError
from dpvi.models.check import check
from dpvi.models.constants import Table, bound
from dpvi.models.functions import from_functions

_random = np.random.default_rng(5)
N = 40
Y, GROUP = _random.normal(size=N), _random.integers(0, 3, N)
TABLE = np.array([0.0, 1.0, 2.0])
PLAN = private_plan(num_steps=3)


def grouped(group, num_groups, y, table, link="identity", half=False):
    with numpyro.plate("groups", num_groups):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    mean = effect[group] + table[group]
    mean = jnp.exp(mean) if link == "log" else mean
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def public(result):
    return [str(each) for each in result.circumstances.captured]


def test_sizes_and_flags_among_the_data_are_constants_by_themselves():
    result = dpvi.fit(grouped, (GROUP, 3, Y), PLAN, static={"table": TABLE, "link": "log"}, progress=False)
    assert public(result) == ["table (3,)"]
    assert "which the statement takes as public: table (3,)" in str(result.guarantee)
    assert [site.shape for site in result.sites] == [(3,)]


def test_static_names_them_and_both_ways_fit_the_same():
    by_name = {"num_groups": 3, "table": TABLE}
    named = dpvi.fit(grouped, {"group": GROUP, "y": Y}, PLAN, static=by_name, seed=2**200, progress=False)
    data = {"group": GROUP, "y": Y, "num_groups": 3}
    other = dpvi.fit(grouped, data, PLAN, static={"table": TABLE}, seed=2**200, progress=False)
    assert public(named) == public(other) == ["table (3,)"]
    np.testing.assert_array_equal(named.trace.final, other.trace.final)


def test_a_guide_gets_the_same_constants():
    guide = AutoNormal(grouped)
    static = {"num_groups": 3, "table": TABLE}
    result = dpvi.fit(grouped, {"group": GROUP, "y": Y}, PLAN, guide=guide, static=static, progress=False)
    assert "table (3,)" in public(result)


def test_many_fits_take_constants():
    data = {"group": np.stack([GROUP, GROUP]), "y": np.stack([Y, -Y])}
    static = {"num_groups": 3, "table": TABLE}
    results = dpvi.fit_many(grouped, data, PLAN, static=static, progress=False)
    assert [public(each) for each in results] == [["table (3,)"]] * 2


def test_check_and_validate_take_constants(capsys):
    data, static = {"group": GROUP, "y": Y}, {"num_groups": 3, "table": TABLE}
    check(grouped, data, static=static)
    dpvi.validate(grouped, data, static=static)
    assert "not finite" not in capsys.readouterr().err


@pytest.mark.parametrize("static", [{"shift": Y.copy()}, {"shift": np.zeros((2, N))}, {"shift": Y}])
def test_an_array_of_as_many_rows_as_the_records_is_no_constant(static):
    def model(y, shift):
        mean = numpyro.sample("mean", dist.Normal(jnp.sum(jnp.asarray(shift)), 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    for call in (check, lambda *args, **kwargs: dpvi.fit(*args[:2], PLAN, progress=False, **kwargs)):
        with pytest.raises(ModelError, match="'shift', an array") as caught:
            call(model, (Y,), static=static)
        assert str(N) not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "odd"),
    [
        ((Y, Y, np.zeros(36)), r"data\[2\] has another number than data\[0\], data\[1\]"),  # about as many
        ((Y, Y, np.zeros(5)), r"data\[2\] has another number"),  # more than a tenth
        ((np.zeros(4), np.zeros(4), np.zeros(400)), r"data\[2\] has another number"),  # short arrays are the records
        ((Y, np.zeros(3)), r"data\[0\], data\[1\] differ"),  # which are the records?
        ((Y, Y, np.zeros((3, 30))), r"data\[2\] has another number"),  # long along another axis
        ({"a": Y, "b": Y, "c": np.zeros(36)}, r"data\['c'\] has another number"),
    ],
)
def test_an_array_that_might_be_records_is_never_taken_silently(data, odd):
    def model(a, b, c=None):
        numpyro.sample("a", dist.Normal(numpyro.sample("m", dist.Normal(0.0, 1.0)), 1.0), obs=a)

    with pytest.raises(ValueError, match=odd) as caught:
        check(model, data)
    assert "static={...}" in str(caught.value)
    assert not any(size in str(caught.value) for size in ("40", "36", "400"))


def test_lists_of_numbers_are_no_constants():
    with pytest.raises(ValueError, match="turn lists into arrays"):
        check(grouped, (GROUP, 3, Y, [0.0, 1.0, 2.0]))


def test_the_number_of_records_among_the_arguments_becomes_that_of_the_rows_at_hand():
    def model(y, n):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", n):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    def leaking(y, n):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0 / n))
        with numpyro.plate("records", n):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    with pytest.warns(dpvi.ModelNotice, match="'n' is the number of records, which is private") as noticed:
        check(model, (Y, len(Y)))
    assert str(N) not in str(noticed[0].message)
    with pytest.warns(dpvi.ModelNotice), pytest.raises(ModelError, match="depends on the number of records"):
        check(leaking, (Y,), static={"n": len(Y)})


def test_sizes_may_follow_from_records_by_len():
    def model(y, group):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with numpyro.plate("records", len(y)):
            numpyro.sample("y", dist.Normal(np.zeros(len(group)) + effect[group], 1.0), obs=y)

    check(model, (Y, GROUP))


def test_a_table_of_numpy_is_looked_up_by_traced_and_by_plain_numbers():
    table = np.arange(6.0).reshape(3, 2).view(Table)
    assert jax.jit(lambda i: table[i, 1])(2) == 5.0
    assert int(table[1, 0]) == 2
    assert jax.jit(lambda i: table[i] * 2.0)(jnp.array([0, 2])).tolist() == [[0.0, 2.0], [8.0, 10.0]]


def test_a_look_up_in_a_closed_over_table_is_explained():
    def model(group, y):
        scale = numpyro.sample("scale", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("y", dist.Normal(scale * TABLE[group], 1.0), obs=y)

    with pytest.raises(ModelError, match=r"write jnp\.asarray\(table\)\[index\] for table\[index\]") as caught:
        check(model, (GROUP, Y))
    assert "scale * TABLE[group]" in str(caught.value)  # the user's own line


def test_static_is_refused_where_it_means_nothing():
    functions = from_functions(lambda z: -0.5 * z @ z, lambda z, y: -((y - z[0]) ** 2), 1)
    with pytest.raises(TypeError, match="built from log densities"):
        check(functions, Y, static={"n": 3})
    with pytest.raises(ValueError, match="'y' stand in data and in static"):
        check(grouped, {"y": Y}, static={"y": 3})
    with pytest.raises(TypeError, match="static must be a dict"):
        check(grouped, {"y": Y}, static=3)


def test_data_without_constants_stay_the_same_objects():
    data = (GROUP, Y)
    assert bound(data, (grouped, None)).data is data
    assert bound(data, (grouped, None)).functions == (grouped, None)


def test_a_short_array_is_never_taken_for_a_constant():
    """It may be a second table of people, whom no noise would cover."""

    def labelled_too(x, w, y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mean, 1.0).expand([len(y)]).to_event(1), obs=y)
        with numpyro.plate("records", len(x)):
            numpyro.sample("x", dist.Normal(mean, 1.0), obs=x + 0 * w)

    with pytest.raises(ValueError, match=r"'y'.* another number.*static"):
        dpvi.check(labelled_too, {"x": np.zeros(1200), "w": np.zeros(1200), "y": np.zeros(100)})


@pytest.mark.parametrize("kind", [float, np.float32, np.array, jnp.asarray])
def test_the_number_of_records_does_not_reach_a_prior_as_another_type(kind):
    def narrower(y, n):
        mean = numpyro.sample("mean", dist.Normal(0.0, 10.0 / jnp.sqrt(n)))
        with numpyro.plate("records", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    with pytest.warns(dpvi.ModelNotice, match="number of records"), pytest.raises(dpvi.ModelError):
        dpvi.check(narrower, {"y": np.zeros(500), "n": kind(500)})
