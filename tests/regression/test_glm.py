"""One line from a table to a regression: summary, predictions, its file, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import dpvi
import dpvi.regression
from dpvi.models.formula import FormulaError
from dpvi.posterior import storage
from dpvi.regression import checks
from dpvi.regression.draws import drawn, in_own_units
from dpvi.table import Boolean, Categorical, Count, Numeric, Schema

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "regression-in-one-line.md"
TRUE = {"Intercept": 0.3, "age": -0.03, "C(charge)[T.drug]": 0.8, "C(charge)[T.other]": 0.0, "priors": 0.25}
SCHEMA = Schema(
    {
        "recid": Boolean(),
        "age": Numeric(18, 90),
        "charge": Categorical(("theft", "drug", "other")),
        "priors": Count(20),
    }
)
FORMULA = "recid ~ age + C(charge) + priors"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What the page's blocks leave, and what each of them printed; the one fit of this file is the page's."""
    namespace: dict[str, Any] = {"__name__": "a page"}
    printed = []
    folder = tmp_path_factory.mktemp("page")
    fixed = functools.partial(dpvi.glm, seed=2**200 + 1, checkpoint=folder / "run.checkpoint")
    patched = pytest.MonkeyPatch.context()
    with contextlib.chdir(folder), jax.numpy_dtype_promotion("standard"), patched as patch:
        patch.setattr(dpvi, "glm", fixed)
        for kind, content in re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
            if kind == "text":
                assert printed[-1].strip() == content.strip()
                continue
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(content, PAGE.name, "exec"), namespace)
            printed.append(out.getvalue())
        namespace["stored"] = Path("regression.npz").resolve()
    return namespace, printed


@pytest.fixture(scope="module")
def fitted(page):
    return page[0]["fitted"]


@pytest.fixture(scope="module")
def people(page):
    return page[0]["people"]


@pytest.fixture(scope="module")
def stored(page):
    return page[0]["stored"]


def rewritten(path, new, change):
    """A file with another header and the checksum that belongs to it."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "checksum"}
    header = json.loads(arrays["header"].tobytes())
    change(header)
    arrays["header"] = np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8)
    arrays["checksum"] = np.frombuffer(storage.checksum_of(arrays), np.uint8)
    np.savez(new, **arrays)
    return new


def test_what_was_true_is_near_the_estimates(fitted):
    rows = fitted.summary().to_dict()
    assert set(rows) == set(TRUE)
    for name, true in TRUE.items():
        assert abs(rows[name]["estimate"] - true) < 4 * rows[name]["sd"]
    assert abs(rows["age"]["estimate"]) > 5 * rows["age"]["sd"]  # the power check: zero is refused
    for row in rows.values():
        assert row["lower"] < row["estimate"] < row["upper"]
        assert row["sd"] ** 2 == pytest.approx(row["sampling_sd"] ** 2 + row["privacy_sd"] ** 2)


def test_the_table_prints_names_estimate_interval_and_parts(fitted):
    text = str(fitted.summary(0.9))
    head = text.splitlines()
    assert head[0] == FORMULA
    assert head[1] == "family bernoulli, link logit, of recid"
    assert head[2].startswith("(1, 1e-06)-differential privacy")
    assert [word in text for word in ("C(charge)[T.drug]", "90 % interval", "sampling", "privacy")] == [True] * 4
    assert "Normal(0, 0.1389)" in str(fitted.prior_summary())
    assert list(fitted.summary().to_pandas().index) == list(TRUE)


def test_own_units_give_the_same_linear_predictor_to_the_last_digits(fitted, people):
    draws = drawn(fitted.posterior, 50)
    own = in_own_units(fitted.model, draws)
    table = people.head(40)
    design = np.stack(
        [
            np.ones(40),
            table.age,
            table.charge == "drug",
            table.charge == "other",
            table.priors,
        ]
    ).astype(float)
    linear = fitted.model.linear(fitted.model.rows(table), draws)
    np.testing.assert_allclose(np.stack(list(own.values()), axis=1) @ design, linear, atol=1e-9)
    wrong = np.stack(list(draws["weights"].T), axis=1) @ design[1:]
    assert np.abs(wrong - linear).max() > 1


def test_predictions_are_probabilities_with_intervals(fitted, people):
    table = people.head(30)
    found = fitted.predict(table.drop(columns="recid"))
    linear = 0.3 - 0.03 * table.age + 0.8 * (table.charge == "drug") + 0.25 * table.priors
    true = 1 / (1 + np.exp(-linear.to_numpy()))
    assert np.all((found.lower < found.estimate) & (found.estimate < found.upper))
    assert np.mean((found.lower < true) & (true < found.upper)) > 0.8
    assert list(found.to_pandas().columns) == ["estimate", "lower", "upper"]
    assert str(found).startswith("recid: mean response with 95 % interval")
    with pytest.raises(dpvi.SchemaError, match="levels"):
        fitted.predict({"age": [30], "charge": ["arson"], "priors": [1]})
    with pytest.raises(dpvi.SchemaError, match="lacks 'priors'"):
        fitted.predict({"age": [30], "charge": ["drug"]})


def test_a_file_holds_the_regression_and_is_all_one_needs(fitted, stored):
    again = dpvi.regression.load(stored)
    assert str(again.summary()) == str(fitted.summary())
    assert again.result.recipe == fitted.result.recipe
    result = dpvi.Result.load(stored)
    np.testing.assert_array_equal(
        result.posterior().sample(5, jax.random.key(1))["weights"],
        fitted.posterior.sample(5, jax.random.key(1))["weights"],
    )


@pytest.mark.parametrize(
    "change",
    [
        {"formula": "recid ~ age + priors"},
        {"formula": "recid ~ age + C(charge) + priors + __import__('os')"},
        {"formula": "recid ~ C(charge) + age + priors"},
        {"kind": "pickle"},
        {"prior_scale": -1.0},
    ],
)
def test_a_file_with_a_forged_recipe_is_refused(stored, tmp_path, change):
    path = rewritten(stored, tmp_path / "forged.npz", lambda header: header["recipe"].update(change))
    with pytest.raises(ValueError, match="is not the one of its run"):
        dpvi.Result.load(path)


def test_a_result_of_another_model_is_no_regression(fitted):
    other = dataclasses.replace(fitted.result, model=None, recipe=None)
    with pytest.raises(ValueError, match="not a regression from a formula"):
        dpvi.regression.regression_of(other)


def test_the_guarantee_names_no_arrays_of_the_models_own(fitted):
    assert fitted.result.circumstances.captured == ()


def test_the_page_previews_what_the_fit_then_has(page, fitted):
    expected = page[0]["expected"]
    rows = fitted.summary().to_dict()
    assert expected.names == tuple(rows)
    fitted_widths = np.array([row["upper"] - row["lower"] for row in rows.values()])
    ratio = expected.width[0, 0] / fitted_widths
    assert np.all((ratio > 0.5) & (ratio < 2))
    assert np.all(expected.nonprivate[0] < 1.5 * expected.width[0, 0])


def test_contrasts_are_differences_of_adjusted_predictions(fitted):
    at = {"charge": "drug", "priors": 2}
    shown = fitted.adjusted_predictions("age", [30, 40], at=at)
    changed = fitted.comparisons("age", (30, 40), at=at)
    np.testing.assert_allclose(changed.estimate[0], shown.estimate[1] - shown.estimate[0], atol=1e-12)
    predicted = fitted.predict({"age": [30, 40], "charge": ["drug"] * 2, "priors": [2, 2]})
    np.testing.assert_allclose(shown.estimate, predicted.estimate, atol=1e-12)
    assert changed.labels == ("40 − 30",)
    assert changed.upper[0] < 0


def test_adjusted_predictions_are_averaged_over_the_released_population(fitted, people):
    shown = fitted.adjusted_predictions("charge").to_pandas()
    for level in ("theft", "drug", "other"):
        everyone = fitted.predict(people.assign(charge=level)).estimate.mean()
        assert shown.loc[level, "estimate"] == pytest.approx(everyone, abs=0.02)
    assert list(fitted.comparisons("charge", scale="ratio").labels) == ["drug / theft", "other / theft"]


def test_what_is_held_or_compared_must_be_declared(fitted):
    with pytest.raises(FormulaError, match="no predictor"):
        fitted.comparisons("agee")
    with pytest.raises(FormulaError, match="no declared value"):
        fitted.adjusted_predictions("charge", ["arson"])
    with pytest.raises(FormulaError, match="at names 'sex'"):
        fitted.adjusted_predictions("charge", at={"sex": "m"})
    with pytest.raises(ValueError, match="scale must be"):
        fitted.comparisons("age", scale="odds")


def test_a_right_model_passes_its_check_and_a_wrong_count_does_not(fitted):
    found = fitted.check()
    assert found.p_value > 1e-3
    assert found.released.sum() == pytest.approx(6000, rel=0.1)
    doubled = found.released + np.eye(len(found.released))[-3] * 0.1 * found.released.sum()
    wrong = checks._compared(doubled, found.expected, 20.0, fitted.posterior.distribution.answer, ())
    assert wrong.p_value < 1e-6


def test_pictures_show_every_coefficient_and_both_ends_of_an_interval(fitted):
    coefficients = fitted.plot_coefficients()
    assert len(coefficients.axes[0].get_yticks()) == 4
    band = fitted.plot_predictions("age", at={"charge": "drug", "priors": 2}).axes[0]
    assert len(band.lines[0].get_xdata()) == 25
    assert fitted.plot_comparisons("charge").axes[0].get_xlabel() == "charge"


def test_what_needs_records_again_is_refused(fitted):
    with pytest.raises(NotImplementedError, match="every record once more"):
        fitted.loo()


def test_the_same_call_with_a_checkpoint_gives_the_result_of_a_run_that_is_done(fitted, people, stored):
    settings = {"epsilon": 1, "delta": 1e-6, "seed": 2**200 + 1, "progress": False}
    again = dpvi.glm(FORMULA, people, SCHEMA, **settings, checkpoint=stored.parent / "run.checkpoint")
    for one, other in zip(again.result.trace.measurements, fitted.result.trace.measurements, strict=True):
        np.testing.assert_array_equal(one, other)


def test_budgets_and_plans_are_given_once(people):
    with pytest.raises(ValueError, match="epsilon and delta"):
        dpvi.glm(FORMULA, people, SCHEMA, epsilon=1)
    plan = dpvi.plan(1.0, 1e-6)
    with pytest.raises(ValueError, match="either"):
        dpvi.glm(FORMULA, people, SCHEMA, epsilon=1, delta=1e-6, plan=plan)


def test_a_public_number_of_records_does_not_go_with_records_that_are_left_out(people):
    schema = Schema({**SCHEMA.columns, "age": Numeric(18, 90, missing=True)})
    plan = dpvi.plan(1.0, 1e-6, num_records=10)
    with pytest.raises(FormulaError, match="left out"):
        dpvi.glm(FORMULA, people, schema, plan=plan)
