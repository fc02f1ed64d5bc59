"""Measuring runs from end to end: ``fit`` and ``fit_many`` with a strategy that stands in for the real one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer.autoguide import AutoNormal
from support.launch import REPOSITORY, environment, free_port
from support.measuring import COLUMNS, UNITS, asking, expected, measuring_plan, regression, regression_data
from support.small_models import location_model

import dpvi
from dpvi.backend import compiling
from dpvi.posterior.result import Result
from dpvi.release.measurements import answered
from dpvi.release.requests import CovariateMoments
from dpvi.run import fitting
from dpvi.run.measurable import warn_about_devices

DATA = regression_data(301)
WORKER = Path(__file__).parents[2] / "support" / "measuring_worker.py"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(fitting, "make_strategy", asking)


@pytest.fixture(scope="module")
def fitted() -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "make_strategy", asking)
        return dpvi.fit(regression, DATA, measuring_plan(), seed=5, progress=False)


def released(result: Result) -> list[np.ndarray]:
    measurements = result.trace.measurements
    assert measurements is not None
    assert result.trace.histograms is not None
    return [result.trace.histograms, *(each.released for each in answered(measurements))]


def same(first: Result, second: Result) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(released(first), released(second), strict=True))


def test_a_run_releases_what_was_asked_for(fitted):
    found = answered(fitted.trace.measurements)
    assert [each.request.units for each in found] == [14, 4, 12, 32, 16]
    for each in found:
        errors = each.released - expected(each.request, DATA)
        assert np.max(np.abs(errors)) < 5 / np.sqrt(each.request.units) + 1  # a label's noise: one record a unit
    point = found[-1].request.query
    assert np.allclose(fitted.trace.final[:3], point, rtol=1e-6)


def test_a_result_says_what_it_is_and_survives_storage(fitted, tmp_path):
    assert "5 answers" in repr(fitted)
    assert not fitted._moved
    fitted.save(tmp_path / "result.npz")
    loaded = Result.load(tmp_path / "result.npz")
    assert same(fitted, loaded)
    assert loaded.plan == fitted.plan
    for before, after in zip(answered(fitted.trace.measurements), answered(loaded.trace.measurements), strict=True):
        assert type(before.request) is type(after.request)
        assert all(np.array_equal(a, b) for a, b in zip(before.request, after.request, strict=True))
    with pytest.raises(ValueError, match="reads iterates"):
        fitted.posterior("average")


FORGED = {
    "more units than the plan has": lambda m: {"scores_units": m.scores_units + 90},
    "negative units": lambda m: {"scores_units": m.scores_units - 33},
    "no units": lambda m: {"scores_units": 0 * m.scores_units},
    "units that overflow": lambda m: {"scores_units": m.scores_units + 2**62},
    "units that are no whole numbers": lambda m: {"scores_units": m.scores_units.astype(float)},
    "a kind that is none": lambda m: {"kinds": m.kinds + 7},
    "a kind below zero": lambda m: {"kinds": m.kinds - 1},
    "more answers than there are": lambda m: {"kinds": np.repeat(m.kinds, 1000)},
    "kinds as text": lambda m: {"kinds": m.kinds.astype(str)},
    "kinds in a table": lambda m: {"kinds": m.kinds[:, None]},
    "kinds that are swapped": lambda m: {"kinds": np.where(m.kinds == 3, 1, m.kinds)},
    "NaN": lambda m: {"scores_released": m.scores_released * np.nan},
    "an infinite metric": lambda m: {"curvature_metric": m.curvature_metric + np.inf},
    "another number of parameters": lambda m: {"scores_query": m.scores_query[:, :2]},
    "an answer too short": lambda m: {"norms_released": m.norms_released[:, :-1]},
    "an answer of moments too long": lambda m: {"moments_released": np.tile(m.moments_released, 2)},
    "sums beyond all records": lambda m: {"curvature_released": m.curvature_released * 0 + 1e300},
    "counts beyond all records": lambda m: {"norms_released": m.norms_released * 0 - 1e300},
    "complex numbers": lambda m: {"scores_released": m.scores_released.astype(complex)},
    "a number in place of an array": lambda m: {"moments_metric": np.float64(1)},
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_files_with_answers_that_no_run_gives_are_refused(fitted, tmp_path, forge):
    measurements = fitted.trace.measurements
    trace = fitted.trace._replace(measurements=measurements._replace(**forge(measurements)))
    dataclasses.replace(fitted, trace=trace).save(tmp_path / "forged.npz")
    with pytest.raises(ValueError, match="does not hold what a run of its plan releases"):
        Result.load(tmp_path / "forged.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"measurements": None},
        {"histograms": np.zeros(7)},
        {"histograms": np.full(24, np.nan)},
        {"histograms": np.full(24, 1e300)},
    ],
)
def test_files_without_what_the_plan_pays_for_are_refused(fitted, tmp_path, change):
    dataclasses.replace(fitted, trace=fitted.trace._replace(**change)).save(tmp_path / "forged.npz")
    with pytest.raises(ValueError, match="does not hold what a run of its plan releases"):
        Result.load(tmp_path / "forged.npz")


def test_objects_in_a_file_are_never_unpickled(fitted, tmp_path):
    class Executed:
        def __reduce__(self):
            return (pytest.fail, ("a file was executed",))

    fitted.save(tmp_path / "result.npz")
    with np.load(tmp_path / "result.npz") as archive:
        arrays = dict(archive)
    arrays["measurements.kinds"] = np.array([Executed()], object)
    np.savez(tmp_path / "result.npz", allow_pickle=True, **arrays)
    with pytest.raises(ValueError, match="not a dpvi result"):
        Result.load(tmp_path / "result.npz")


def test_records_on_disk_give_the_same(fitted, tmp_path):
    for name, leaf in zip(("x", "y"), DATA, strict=True):
        np.save(tmp_path / f"{name}.npy", leaf)
    mapped = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    assert same(fitted, dpvi.fit(regression, mapped, measuring_plan(), seed=5, progress=False))


def test_a_file_that_changes_ends_the_run(tmp_path, monkeypatch):
    for name, leaf in zip(("x", "y"), DATA, strict=True):
        np.save(tmp_path / f"{name}.npy", leaf)

    def meddling(scores, histograms):
        for request in asking(scores, histograms):
            np.save(tmp_path / "y.npy", DATA[1][::-1])
            yield request

    monkeypatch.setattr(fitting, "make_strategy", meddling)
    mapped = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    with pytest.raises(dpvi.SourceError, match="changed after it was opened"):
        dpvi.fit(regression, mapped, measuring_plan(), seed=5, progress=False)


def test_a_strategy_cannot_ask_for_more_than_the_plan(monkeypatch):
    def greedy(scores, histograms):
        for _ in range(3):
            yield CovariateMoments(np.eye(3), UNITS // 2)

    monkeypatch.setattr(fitting, "make_strategy", greedy)
    with pytest.raises(ValueError, match=f"{UNITS // 2} units, and 0 of {UNITS} are left"):
        dpvi.fit(regression, DATA, measuring_plan(), seed=5, progress=False)


def test_a_second_fit_compiles_nothing_and_closures_are_told_apart():
    def closure(scale):
        def model(x, y):
            slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
            with numpyro.plate("records", y.shape[0]):
                numpyro.sample("y", dist.Bernoulli(logits=jnp.sum(x * slopes * scale, axis=1)), obs=y)

        return model

    def fitted_with(model):
        return dpvi.fit(model, DATA, measuring_plan(), seed=5, progress=False)

    one, scale = closure(1.0), np.ones(3, np.float32)
    first, by_array = fitted_with(one), fitted_with(closure(scale))
    known = set(compiling._SHARED)
    assert same(first, fitted_with(one))
    assert same(first, fitted_with(closure(1.0)))
    assert set(compiling._SHARED) == known
    scale *= 2
    assert not same(first, fitted_with(closure(2.0)))
    assert not same(by_array, fitted_with(closure(scale)))


def test_many_fits_are_single_fits(tmp_path):
    stacked = tuple(np.stack([leaf[:100], leaf[100:200], leaf[200:300]]) for leaf in DATA)
    call = {"plan": measuring_plan(), "seeds": [5, 6, 7], "progress": False}
    many = dpvi.fit_many(regression, stacked, **call)
    one = dpvi.fit(regression, tuple(leaf[1] for leaf in stacked), measuring_plan(), seed=6, progress=False)
    assert same(many[1], one)
    kept = [dpvi.fit_many(regression, stacked, **call, directory=tmp_path / "study", group_size=2) for _ in range(2)]
    for study in kept:
        assert all(same(a, b) for a, b in zip(many, study, strict=True))
    with pytest.raises(ValueError, match="keeps another study"):
        dpvi.fit_many(regression, stacked, **{**call, "seeds": [5, 6, 8]}, directory=tmp_path / "study", group_size=2)


def test_many_fits_of_one_data_set(fitted):
    twice = dpvi.fit_many(regression, DATA, measuring_plan(), seeds=[5, 6], same_data=True, progress=False)
    assert same(twice[0], fitted)
    assert not same(twice[1], fitted)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"guide": AutoNormal(regression)}, "no use for a guide"),
        ({"estimator": dpvi.Vanilla()}, "no use for estimator=Vanilla"),
        ({"estimator": dpvi.Aligned(num_draws=2)}, "no use for estimator=Aligned"),
        ({"optimizer": optax.adam(0.1)}, "no use for an optimizer"),
        ({"driver": lambda released: None}, "no use for a driver"),
        ({"initial_location": np.zeros(3)}, "leave initial_location out"),
        ({"covariate_law": lambda key, n: np.zeros((n, 3))}, "would replace histograms"),
        ({"plan": measuring_plan(columns=None, num_records=301)}, "sampling_rate, num_steps and clip_norm"),
        ({"plan": measuring_plan(columns=())}, "0 columns wide"),
        ({"plan": measuring_plan(columns=COLUMNS, num_records=300)}, "another number of records"),
    ],
)
def test_what_a_measuring_run_has_no_use_for_is_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        dpvi.fit(**{"model": regression, "data": DATA, "plan": measuring_plan(), "progress": False, **settings})


def test_devices_that_change_nothing_are_warned_about():
    with pytest.warns(dpvi.FallbackWarning, match="start one process for every device") as found:
        warn_about_devices([object(), object()])
    assert len(found) == 1
    warn_about_devices(None)
    warn_about_devices([object()])


def test_models_that_draw_no_records_are_refused():
    with pytest.raises(dpvi.ModelError, match="Records can be drawn from models written for NumPyro or PyMC only"):
        dpvi.fit(location_model(), np.zeros((9, 2)), measuring_plan(columns=()), progress=False)


def test_dpsvi_and_audits_of_steps_take_steps():
    svi = dpvi.DPSVI(regression, AutoNormal(regression), optax.adam(0.1), plan=measuring_plan())
    with pytest.raises(ValueError, match="no use for a guide"):
        svi.init(None, *DATA)
    with pytest.raises(ValueError, match="A plan that measures takes no steps"):
        dpvi.audit(measuring_plan(), mode="step")


def start_two(folder: Path, *fault: str) -> list[subprocess.Popen]:
    cache, port = REPOSITORY / ".pytest_cache" / "compiled", str(free_port())
    return [
        subprocess.Popen(
            [sys.executable, str(WORKER), port, str(k), str(cache), str(folder / f"{k}.npz"), *fault],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for k in range(2)
    ]


def test_two_processes_release_what_one_does(fitted, tmp_path):
    processes = start_two(tmp_path)
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    for k in range(2):
        with np.load(tmp_path / f"{k}.npz") as found:
            assert np.array_equal(found["histograms"], fitted.trace.histograms)
            for name, array in fitted.trace.measurements._asdict().items():
                assert np.array_equal(found[name], array)


def test_a_request_that_is_refused_ends_both_processes(tmp_path):
    processes = start_two(tmp_path, "bad request")
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert "query must have shape" in errors[0]
    assert "process 0 could not go on" in errors[1]
