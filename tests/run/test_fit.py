"""``dpvi.fit`` from the outside: what repeats, what runs, and what never shows."""

from __future__ import annotations

import dataclasses
import json
import re
import sys

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import numpyro_models
from support.numpyro_models import logistic
from support.small_models import RECORDS, exact_plan, location_model, logistic_data, private_plan

import dpvi
from dpvi.declared.plan import Plan
from dpvi.records.sampling import poisson_sampler

MODEL = location_model()
NUM_STEPS = 20
PLAN = private_plan(NUM_STEPS)


def fit(data=RECORDS, plan=PLAN, model=MODEL, **options):
    options.setdefault("seed", 1)
    return dpvi.fit(model, data, plan, progress=False, **options)


def assert_same_trace(one, other):
    for name, left, right in zip(one._fields, one, other, strict=True):
        for a, b in zip(_arrays(left), _arrays(right), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


def _arrays(value):
    return [] if value is None else list(value) if isinstance(value, tuple) else [value]


# Plans


@pytest.mark.usefixtures("accounted")
def test_a_plan_that_claims_more_than_it_keeps_does_not_run():
    honest = dpvi.plan(epsilon=1.0, delta=1e-3, sampling_rate=0.5, num_steps=3, clip_norm=1.0)
    stored = honest.to_dict()
    assert fit(plan=Plan.from_dict(stored), seed=None).guarantee.epsilon == 1.0
    stored["epsilon"] = 0.01
    with pytest.raises(ValueError, match=r"claims epsilon = 0\.01 .* but its releases spend 1"):
        fit(plan=Plan.from_dict(stored))


@pytest.mark.usefixtures("accounted")
def test_without_the_accountant_a_stored_plan_runs_and_says_it_was_taken_on_trust(monkeypatch):
    honest = dpvi.plan(epsilon=1.0, delta=1e-3, sampling_rate=0.25, num_steps=3, clip_norm=1.0)
    stored = dataclasses.replace(honest, unit="one stored row")  # not the plan this process made
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    guarantee = fit(plan=stored).guarantee
    assert any("not recomputed here" in sentence for sentence in guarantee.assumptions)


def test_a_result_says_what_was_run_in_json():
    result = fit()
    assert json.dumps(result.estimator) == '{"name": "Aligned", "num_draws": 1}'
    assert result.plan == PLAN
    assert result.family == dpvi.MeanField()


def test_a_plan_from_a_budget_runs_and_its_guarantee_reaches_the_posterior():
    plan = dpvi.plan(epsilon=1.0, delta=1e-5, sampling_rate=0.5, num_steps=NUM_STEPS, clip_norm=1.0)
    result = fit(plan=plan, seed=None)
    assert result.guarantee == plan.guarantee
    assert result.posterior().guarantee.epsilon == 1.0


# Randomness


def test_a_seed_repeats_the_run_and_another_does_not():
    first = fit()
    assert_same_trace(fit().trace, first.trace)
    other = fit(seed=2)
    assert not np.any(other.trace.noisy_sums == first.trace.noisy_sums)
    beyond_32_bits = fit(seed=1 + 2**32)
    assert not np.any(beyond_32_bits.trace.noisy_sums == first.trace.noisy_sums)


def test_without_a_seed_every_run_is_another():
    one, other = fit(seed=None), fit(seed=None)
    assert not np.any(one.trace.noisy_sums == other.trace.noisy_sums)


# What runs


@pytest.mark.parametrize(
    ("family", "estimators"),
    [
        (dpvi.MeanField(), (dpvi.Vanilla(), dpvi.Preconditioned(), dpvi.Preconditioned(beta=(1, 1, 2, 2)))),
        (dpvi.MeanField(), (dpvi.Aligned(), dpvi.AlignedNatural())),
        (dpvi.MeanField(scale="exp"), (dpvi.Natural(), dpvi.AlignedNatural())),
        (dpvi.FullRank(), (dpvi.Aligned(), dpvi.Vanilla(), dpvi.Preconditioned(beta=(1, 1, 2, 2, 1)))),
        (dpvi.LowRank(1), (dpvi.Aligned(), dpvi.Vanilla(), dpvi.Preconditioned(beta=(1, 1, 2, 2, 3, 3)))),
    ],
    ids=lambda value: repr(value) if not isinstance(value, tuple) else "",
)
def test_every_valid_estimator_runs_for_every_family(family, estimators):
    for estimator in estimators:
        result = fit(plan=private_plan(5, sampling_rate=1.0), family=family, estimator=estimator)
        trace = result.trace
        assert trace.iterates.shape == (5, family.num_parameters(2))
        assert trace.queries.shape == (5, 2 * estimator.num_draws)
        assert trace.noisy_sums.shape == (5, estimator.release_size(family, 2))
        assert np.isfinite(trace.iterates).all()
        assert np.isfinite(trace.final).all()
        assert result.estimator["name"] == type(estimator).__name__
        assert result.posterior().sample(3)["z"].shape == (3, 2)


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.sgd(0.01),
        optax.adam(optax.cosine_decay_schedule(0.1, 20)),
        optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.scale_by_learning_rate(0.01)),
    ],
    ids=["sgd", "adam with a schedule", "chain"],
)
def test_any_optax_optimiser_runs(optimizer):
    trace = fit(optimizer=optimizer).trace
    assert np.isfinite(trace.final).all()
    assert np.all(trace.final != trace.iterates[0])


def test_optimisation_without_noise_finds_the_posterior():
    """Normal records with unit variance and a standard normal prior: N(Σx/(N+1), 1/(N+1))."""
    records = np.tile(RECORDS, (3, 1))
    rate = optax.exponential_decay(0.05, 100, 0.5)
    result = fit(records, exact_plan(800), optimizer=optax.adam(rate), estimator=dpvi.Aligned(num_draws=4))
    posterior = result.posterior("last").distribution
    np.testing.assert_allclose(posterior.mean, records.sum(axis=0) / 28, atol=0.02)
    np.testing.assert_allclose(posterior.standard_deviations, 28**-0.5, rtol=0.1)


@pytest.mark.parametrize("name", ["logistic_dict", "two_sites", "nested_data", "dynamic"])
def test_models_and_data_of_every_form_run(name):
    example = next(example for example in numpyro_models.EXAMPLES if example.name == name)
    result = fit(example.data, private_plan(3), example.model)
    assert np.isfinite(result.trace.final).all()
    for site, draws in result.posterior("last").sample(4).items():
        shape = next(known.shape for known in result.sites if known.name == site)
        assert draws.shape == (4, *shape)
        assert bool(jnp.all(jnp.isfinite(draws)))


def test_one_record_one_step():
    trace = fit(RECORDS[:1], exact_plan(1)).trace
    np.testing.assert_allclose(trace.noisy_sums, RECORDS[:1] - trace.queries, rtol=1e-5)
    assert trace.iterates.shape == (1, 4)
    assert trace.blocks.count.tolist() == [1.0]


def test_one_record_is_in_some_batches():
    trace = fit(RECORDS[:1], exact_plan(100, sampling_rate=0.3)).trace
    present = np.any(trace.noisy_sums != 0, axis=1)
    assert 10 <= present.sum() <= 55  # 30 expected, five standard errors of 4.6
    np.testing.assert_allclose(trace.noisy_sums[present], (RECORDS[:1] - trace.queries)[present], rtol=1e-4, atol=1e-5)


def test_an_empty_batch_releases_pure_noise():
    rate = 1e-6  # a record enters one of the batches with probability 2e-4
    quiet = fit(plan=exact_plan(NUM_STEPS, rate))
    assert np.all(quiet.trace.noisy_sums == 0)
    noisy = fit(plan=private_plan(NUM_STEPS, rate), optimizer=optax.sgd(1e-9)).trace
    elsewhere = fit(100 + RECORDS, private_plan(NUM_STEPS, rate), optimizer=optax.sgd(1e-9)).trace
    assert np.isfinite(noisy.noisy_sums).all()
    assert np.all(noisy.noisy_sums != 0)
    assert_same_trace(noisy, elsewhere)


@pytest.mark.parametrize("start", [[0.5, -2.0], {"z": np.array([0.5, -2.0])}], ids=["vector", "dict"])
def test_a_run_starts_at_the_initial_location(start):
    trace = fit(initial_location=start).trace
    np.testing.assert_allclose(trace.iterates[0, :2], [0.5, -2.0])


def test_an_initial_location_is_given_on_the_parameters_own_supports():
    x, y = numpyro_models.X, numpyro_models.Y_REAL
    start = {"w": np.array([0.1, 0.2, 0.3]), "scale": 0.5}
    trace = fit((x, y), private_plan(1), numpyro_models.linear, initial_location=start).trace
    np.testing.assert_allclose(np.sort(trace.iterates[0, :4]), np.sort([0.1, 0.2, 0.3, np.log(0.5)]), rtol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e300])
def test_a_record_with_a_non_finite_gradient_contributes_zero(broken):
    plan = exact_plan(NUM_STEPS, clip_norm=1.0)
    without = fit(plan=plan).trace
    with_broken = fit(np.vstack([RECORDS[:4], [[broken, 0.0]], RECORDS[4:]]), plan).trace
    np.testing.assert_array_equal(with_broken.noisy_sums, without.noisy_sums)
    np.testing.assert_array_equal(with_broken.final, without.final)


# What never shows


def _whole_numbers(value, seen=None):
    """Every whole number reachable from a result: fields, shapes, lengths and headers, but not contents of arrays."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (str, bytes, type)) or value is None:
        return set()
    seen.add(id(value))
    if isinstance(value, (bool, int, float, np.number)):
        return {value}
    if hasattr(value, "shape"):
        return set(value.shape)
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, (tuple, list, set, frozenset)):
        parts = list(value)
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif type(value).__module__.startswith("dpvi"):
        parts = list(vars(value).values())
    else:
        return set()
    sizes = {len(parts)} if isinstance(value, (tuple, list)) else set()
    return sizes.union(*(_whole_numbers(part, seen) for part in parts))


@pytest.fixture(scope="module")
def two_sizes(tmp_path_factory):
    """The same plan on few and on many records, and the files the results were saved to."""
    folder = tmp_path_factory.mktemp("sizes")
    saved = {}
    for size in (53, 5003):
        data = logistic_data(size)
        result = dpvi.fit(logistic, data, private_plan(120, sampling_rate=0.1), seed=1, progress=False)
        result.save(folder / f"{size}.dpvi")
        saved[size] = (result, folder / f"{size}.dpvi")
    return saved


def test_the_number_of_records_is_nowhere_in_a_result(two_sizes):
    for size, (result, _) in two_sizes.items():
        numbers = _whole_numbers(result)
        assert {120, 0.1, 2} <= numbers  # the search reaches the plan and the shapes
        assert not numbers & {size, size - 1, size + 1}
        physical_size = poisson_sampler(size, 0.1).physical_size
        assert not numbers & {round(0.1 * size), 0.1 * size, physical_size}


def test_saved_results_differ_in_released_numbers_only(two_sizes):
    archives = []
    for _, path in two_sizes.values():
        with np.load(path, allow_pickle=False) as archive:
            archives.append({name: archive[name] for name in archive.files})
    few, many = archives
    assert few.pop("header").tobytes() == many.pop("header").tobytes()
    assert {name: (a.shape, a.dtype) for name, a in few.items()} == {
        name: (a.shape, a.dtype) for name, a in many.items()
    }
    for name in ("steps", "blocks.count", "blocks.time", "blocks.time_squared"):
        np.testing.assert_array_equal(few[name], many[name])


def test_a_declared_number_of_records_must_be_the_datas():
    declared = dataclasses.replace(PLAN, num_records=10)
    with pytest.raises(ValueError, match="declares another number of records") as caught:
        fit(plan=declared)
    assert not re.search(r"\d", str(caught.value))
    assert fit(plan=dataclasses.replace(PLAN, num_records=len(RECORDS))).plan.num_records == len(RECORDS)


@pytest.mark.parametrize(("plan", "label"), [(PLAN, "dpvi ε = 1"), (exact_plan(NUM_STEPS, 0.5), "dpvi NOT PRIVATE")])
def test_the_progress_bar_shows_steps_and_epsilon_only(capsys, plan, label):
    dpvi.fit(MODEL, RECORDS, plan)
    captured = capsys.readouterr()
    assert captured.out == ""
    shown = [line for line in re.split(r"[\r\n]", captured.err) if line.strip()]
    clock = r"(\d+:)+\d\d|\?"
    bar = rf"{label}: +\d+%\|[^|]*\| (\d+)/{NUM_STEPS} \[({clock})<({clock}), +[\d.?]+(s/ steps| steps/s)\]"
    assert shown
    assert all(re.fullmatch(bar, line) for line in shown)
    assert re.fullmatch(bar, shown[-1]).group(1) == str(NUM_STEPS)


def test_without_progress_nothing_is_printed(capsys):
    fit()
    assert "".join(capsys.readouterr()) == ""


def test_a_delta_too_large_for_the_records_warns_on_the_console_only():
    loose = dataclasses.replace(PLAN, delta=0.5)
    with pytest.warns(dpvi.PrivacyWarning, match="delta"):
        result = fit(plan=loose)
    assert len(RECORDS) not in _whole_numbers(result.guarantee)
    assert result.guarantee.assumptions == fit().guarantee.assumptions


# Many data sets


def test_fit_many_equals_fit_with_the_same_seeds():
    sets = np.stack([RECORDS, RECORDS + 1])
    many = dpvi.fit_many(MODEL, sets, PLAN, seeds=[3, 1], progress=False)
    assert len(many) == 2
    for result, records, seed in zip(many, sets, [3, 1], strict=True):
        alone = fit(records, seed=seed)
        np.testing.assert_allclose(result.trace.iterates, alone.trace.iterates, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(result.trace.noisy_sums, alone.trace.noisy_sums, rtol=1e-4, atol=1e-4)
        assert result.guarantee == alone.guarantee
        assert result.structure == alone.structure


@pytest.mark.usefixtures("x64")
def test_fit_many_equals_fit_to_rounding_in_64_bits():
    sets = np.stack([RECORDS, RECORDS + 1])
    many = dpvi.fit_many(MODEL, sets, PLAN, seeds=[3, 1], progress=False)
    alone = fit(sets[1], seed=1).trace
    for name, one, other in zip(alone.blocks._fields, many[1].trace.blocks, alone.blocks, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(many[1].trace.noisy_sums, alone.noisy_sums)
    np.testing.assert_allclose(many[1].trace.final, alone.final, rtol=1e-10)


def test_fit_many_without_seeds_differs_between_data_sets():
    one, other = dpvi.fit_many(MODEL, np.stack([RECORDS, RECORDS]), PLAN, progress=False)
    assert not np.any(one.trace.noisy_sums == other.trace.noisy_sums)


@pytest.mark.parametrize(
    ("data", "seeds", "kind", "message"),
    [
        (np.zeros(4), None, ValueError, "two leading axes"),
        ((np.zeros((3, 4, 2)), np.zeros(3)), None, ValueError, "two leading axes"),
        ((np.zeros((3, 4, 2)), np.zeros((2, 4))), None, ValueError, "same number of rows"),
        (np.zeros((3, 0, 2)), None, ValueError, "at least one record"),
        (np.zeros((3, 4, 2)), [1, 2], ValueError, "one number per data set; got 2 numbers"),
        (np.zeros((3, 4, 2)), [1, 2, 3.5], TypeError, "seed must be a whole number"),
        (np.zeros((3, 4, 2)), [7, 8, 7], ValueError, r"numbers 0 and 2 \(from 0\) are the same.*no noise left"),
        (np.zeros((3, 4, 2)), [7, np.int64(7), 8], ValueError, "numbers 0 and 1"),
    ],
)
def test_fit_many_refuses_bad_input(data, seeds, kind, message):
    with pytest.raises(kind, match=message):
        dpvi.fit_many(MODEL, data, PLAN, seeds=seeds, progress=False)
