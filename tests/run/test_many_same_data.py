"""One data set fitted many times: what copies of it would give, from one copy, and a statement about all fits."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.numpyro_models import logistic
from support.small_models import (
    STUDY_RECORDS,
    STUDY_SETS,
    STUDY_STEPS,
    histogram_plan,
    location_model,
    logistic_data,
    private_plan,
    study,
)

import dpvi
from dpvi.mechanism.rng import Streams, root_key, streams
from dpvi.records.arrays import filled_up
from dpvi.records.sampling import whole_tiles
from dpvi.records.sharding import Records
from dpvi.run.many import _stacked_keys, _Study
from dpvi.run.preparation import prepare
from dpvi.run.program import lanes
from dpvi.run.program.loop import Run

RECORDS = np.random.default_rng(17).normal(0.5, 1.0, (STUDY_RECORDS, 2))
COPIES = np.broadcast_to(RECORDS, (STUDY_SETS, *RECORDS.shape))


def assert_close(found, expected, **tolerance):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        left, right = jax.tree.flatten(one.trace), jax.tree.flatten(other.trace)
        assert left[1] == right[1]
        for a, b in zip(left[0], right[0], strict=True):
            np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize("rate", [0.5, 1.0], ids=["sampled", "all records"])
@pytest.mark.usefixtures("x64")
def test_fits_of_one_copy_are_fits_of_many_copies(rate):
    plan = private_plan(STUDY_STEPS, sampling_rate=rate)
    once = study(data=RECORDS, plan=plan, same_data=True)
    copies = study(data=COPIES, plan=plan)
    assert_close(once, copies, rtol=1e-12, atol=1e-12)
    for one, other in zip(once, copies, strict=True):
        np.testing.assert_array_equal(one.trace.noisy_sums, other.trace.noisy_sums)
    for one, other in zip(once[1:], once[:-1], strict=True):  # seeds of their own
        assert not np.any(one.trace.noisy_sums == other.trace.noisy_sums)


def test_in_parts_and_in_32_bits_too(monkeypatch):
    at_once = lanes.lanes_at_once
    monkeypatch.setattr(lanes, "lanes_at_once", lambda num_lanes, most: at_once(num_lanes, min(most, 2)))
    found, expected = (
        study(group_size=None, **data) for data in ({"data": RECORDS, "same_data": True}, {"data": COPIES})
    )
    assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_all_lanes_read_one_copy_of_the_records(monkeypatch):
    bytes_of, arguments = [], _Study.arguments

    def measured(self, lanes):
        given = arguments(self, lanes)
        bytes_of.append(sum(leaf.nbytes for leaf in jax.tree.leaves(given[0])))
        return given

    monkeypatch.setattr(_Study, "arguments", measured)
    study(data=RECORDS, same_data=True, group_size=None)
    study(data=COPIES, group_size=None)
    held, bounds = 4 * whole_tiles(STUDY_RECORDS) * RECORDS.shape[1], 8
    assert bytes_of == [held + bounds, STUDY_SETS * held + bounds]


def test_histograms_are_each_fits_own():
    data = logistic_data(400)
    columns = (dpvi.Numeric(-3, 3), dpvi.Numeric(-3, 3))
    plan = histogram_plan(columns, num_steps=12, schedule=dpvi.Schedule(move_share=0.0, num_blocks=2))
    one, other = dpvi.fit_many(logistic, data, plan, seeds=[4, 5], same_data=True, progress=False)
    copies = tuple(np.stack([leaf, leaf]) for leaf in data)
    for mine, theirs in zip(
        (one, other), dpvi.fit_many(logistic, copies, plan, seeds=[4, 5], progress=False), strict=True
    ):
        np.testing.assert_array_equal(mine.trace.histograms, theirs.trace.histograms)
    # whole numbers with noise of standard deviation 14: about one difference in fifty is zero
    assert np.mean(one.trace.histograms == other.trace.histograms) < 0.2
    assert np.std(one.trace.histograms - other.trace.histograms) > 10


def test_query_points_are_each_fits_own():
    """Of lanes that a driver steers, over one copy and over several."""
    algorithm = prepare(location_model(), RECORDS, private_plan(STUDY_STEPS)).algorithm
    queries = np.random.default_rng(3).normal(size=(3, 2))

    def released_sums(**records):
        def driver(released):
            return dpvi.Directive(STUDY_STEPS, queries)

        of_lanes = Streams(*map(_stacked_keys, zip(*[streams(root_key(k)) for k in range(3)], strict=True)))
        state = jax.vmap(algorithm.initial)(jnp.zeros((3, 2), jnp.float32))
        run = Run(algorithm, lanes=3, driven=True, same_records="same" in records)
        [given] = records.values()
        rows = filled_up(jnp.asarray(given, jnp.float32), whole_tiles(STUDY_RECORDS), axis=given.ndim - 2)
        held = Records(rows, jnp.array([0, STUDY_RECORDS], jnp.int32))
        return [trace.noisy_sums for trace in run(held, of_lanes, state, driver)]

    same = released_sums(same=RECORDS)
    np.testing.assert_array_equal(same, released_sums(stacked=COPIES[:3]))
    queries[1] += 1.0
    other = released_sums(same=RECORDS)
    np.testing.assert_array_equal(same[0], other[0])
    assert not np.any(same[1] == other[1])


def test_a_folder_keeps_them_and_tells_one_data_set_from_copies(tmp_path, monkeypatch):
    fitted = study(tmp_path / "study", data=RECORDS, same_data=True)
    monkeypatch.setattr(_Study, "fit", None)  # whatever is there is read
    again = study(tmp_path / "study", data=RECORDS, same_data=True)
    assert_close(again, fitted, rtol=0, atol=0)
    assert [one.guarantee for one in again] == [one.guarantee for one in fitted]
    with pytest.raises(ValueError, match="these differ: same_data"):
        study(tmp_path / "study", data=COPIES)
    with pytest.raises(ValueError, match="these differ: data"):
        study(tmp_path / "study", data=RECORDS[::-1], same_data=True)


def test_the_guarantee_of_a_fit_says_what_all_fits_spend(tmp_path):
    plans = [private_plan(STUDY_STEPS)] * 4 + [private_plan(STUDY_STEPS, noise_multiplier=3.0)]
    large = [2**200 + k for k in range(5)]
    for plan in (plans, plans[0]):
        for result in study(data=RECORDS, plan=plan, same_data=True, seeds=large):
            assert result.guarantee.epsilon == 1.0
            assert "one of 5 fits of the same records" in str(result.guarantee)
            assert "in one call; together these spend ε = 5 at δ = 5e-05, and further" in str(result.guarantee)
    for result in study(data=COPIES):  # data sets of different people
        assert "fits of the same records" not in str(result.guarantee)
    [alone] = study(data=RECORDS, seeds=[3], same_data=True)
    assert "fits of the same records" not in str(alone.guarantee)
    open_one = dpvi.plan_nonprivate(0.5, STUDY_STEPS)
    private, _, public = study(data=RECORDS, plan=[*plans[:2], open_one], seeds=[1, 2, 3], same_data=True)
    assert "protects nobody" in str(private.guarantee)
    mixed = study(data=RECORDS, plan=plans[0], seeds=[2**200, 3], same_data=True)
    assert [one.guarantee.private for one in mixed] == [True, False]
    assert "not all of them private: published with those that are not, it protects nobody" in str(mixed[0].guarantee)
    replaced = dataclasses.replace(plans[0], adjacency="substitute")
    other, _ = study(data=RECORDS, plan=[plans[0], replaced], seeds=[1, 2], same_data=True)
    assert "different changes of the records: of all, nothing is promised" in str(other.guarantee)
    assert public.guarantee.assumptions == ()
    # a folder of fewer fits states another total, and is not gone on with as if it did not
    study(tmp_path / "study", data=RECORDS, plan=plans[:2], seeds=[1, 2], same_data=True)
    with pytest.raises(ValueError, match="these differ: number of data sets, all fits of the same records"):
        study(tmp_path / "study", data=RECORDS, plan=plans[:3], seeds=[1, 2, 3], same_data=True)


def test_plans_made_together_spend_what_they_say_together():
    pytest.importorskip("dp_accounting")
    settings = {"sampling_rate": 0.5, "num_steps": STUDY_STEPS, "clip_norm": 1.0}
    plans = list(dpvi.plan_together(2.0, 1e-5, {"first": settings, "second": settings}, {"first": 0.5}).values())
    for result in study(data=RECORDS, plan=plans, seeds=None, same_data=True):
        assert f"together these spend ε = {plans[0].epsilon:.6g} at δ = 1e-05" in str(result.guarantee)
        assert 1.9 < result.guarantee.epsilon <= 2.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": None}, "there is none: pass seeds="),
        ({"seeds": []}, "there is none: pass seeds="),
        ({"plan": []}, "there is none: pass seeds="),
        ({"plan": [private_plan(STUDY_STEPS)] * 2}, "seeds must hold one number per fit; got 5 numbers"),
        ({"seeds": [1, 2, 1]}, "numbers 0 and 2"),
        ({"same_data": False}, "same_data=True"),
    ],
)
def test_what_does_not_say_how_many_fits_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        study(**({"data": RECORDS[:, 0] if "same_data" in changes else RECORDS, "same_data": True} | changes))


@pytest.mark.parametrize(
    "changes", [{}, {"plan": [private_plan(STUDY_STEPS)] * 5, "seeds": None}], ids=["seeds", "plans"]
)
def test_one_data_set_without_same_data_is_refused_and_not_counted(changes):
    with pytest.raises(ValueError, match="pass same_data=True") as caught:
        study(data=RECORDS, **changes)
    assert str(len(RECORDS)) not in str(caught.value)
