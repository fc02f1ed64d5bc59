"""Tables as data: columns become arguments, and what does not fit is refused by a sentence."""

from __future__ import annotations

import functools

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from support.small_models import location_model, private_plan

import dpvi
from dpvi.records.arrays import as_host_records, as_records
from dpvi.records.frames import arguments_of, is_table
from dpvi.run.svi_arguments import bound

COLUMNS = {"name": ["a", "b", "c"], "y": [1.0, 2.0, 4.0], "age": [30, 40, 50]}


def pandas():
    return pytest.importorskip("pandas").DataFrame(COLUMNS)


def polars():
    return pytest.importorskip("polars").DataFrame(COLUMNS)


def arrow():
    return pytest.importorskip("pyarrow").table(COLUMNS)


KINDS = pytest.mark.parametrize("make", [pandas, polars, arrow])


def model(age, y=None, scale=1.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", age.shape[0]):
        numpyro.sample("y", dist.Normal(slope * age, scale), obs=y)


@KINDS
def test_columns_become_the_arguments_of_their_names(make):
    table = make()
    assert is_table(table)
    records, num_records = as_records(arguments_of(model, table))
    assert list(records) == ["age", "y"]  # text is left out
    assert num_records == 3
    assert records["age"].dtype == np.int32
    np.testing.assert_array_equal(records["y"], COLUMNS["y"])


@KINDS
@pytest.mark.parametrize(
    "wrapped", [handlers.scale(model, scale=1.0), functools.partial(model, scale=2.0)], ids=["handler", "partial"]
)
def test_handlers_and_settings_keep_their_arguments(make, wrapped):
    assert list(arguments_of(wrapped, make())) == ["age", "y"]


def test_a_column_does_not_replace_a_setting():
    table = pandas().assign(scale=9.0)
    assert list(arguments_of(functools.partial(model, scale=2.0), table)) == ["age", "y"]
    assert list(arguments_of(model, table)) == ["age", "y", "scale"]


def test_a_model_of_keywords_gets_every_column():
    table = pandas()[["y", "age"]]
    assert list(arguments_of(lambda **columns: None, table)) == ["y", "age"]
    assert list(arguments_of(lambda age, **rest: None, table)) == ["age", "y"]


@KINDS
def test_a_model_of_one_argument_gets_the_matrix(make):
    table = make()
    table = table.select(["y", "age"]) if hasattr(table, "select") else table[["y", "age"]]
    assert arguments_of(lambda x: None, table) is table
    assert arguments_of(location_model(), table) is table
    assert as_records(table)[0].shape == (3, 2)


@KINDS
def test_a_missing_column_is_named_with_what_to_write(make):
    with pytest.raises(ValueError, match=r"'x' is no column .* 'name', 'y', 'age'.*data=\{'x': table\[\.\.\.\], 'y'"):
        arguments_of(lambda x, y=None: None, make())


def test_two_columns_of_one_name_are_refused():
    table = pandas()[["y", "age", "age"]]
    with pytest.raises(ValueError, match="several columns named 'age'"):
        arguments_of(model, table)


def test_a_lazy_frame_is_told_to_collect():
    with pytest.raises(TypeError, match=r"data\.collect\(\)"):
        arguments_of(model, polars().lazy())


def test_what_is_no_table_stays_as_it_is():
    for data in (np.zeros((3, 2)), {"x": np.zeros(3)}, (np.zeros(3),), pandas()["y"], None):
        assert not is_table(data)
        assert arguments_of(model, data) is data


@pytest.mark.parametrize("values", [[1, None, 3], [True, None, False]], ids=["whole numbers", "booleans"])
def test_missing_whole_numbers_are_refused_and_not_turned_into_others(values):
    """A null of polars became -2,147,483,648, and one of a boolean False."""
    series = pytest.importorskip("polars").Series("age", values)
    table = pytest.importorskip("pyarrow").table({"age": values})
    for convert in (as_records, as_host_records):
        with pytest.raises(TypeError, match=r"data\['age'\] has missing values"):
            convert({"age": series})
    with pytest.raises(TypeError, match="'age' has missing values"):
        arguments_of(lambda age: None, table)


def test_series_of_other_rows_are_refused():
    table = pandas()
    shuffled = table.sample(frac=1.0, random_state=1)
    assert not shuffled.index.equals(table.index)
    for function in (as_records, lambda data: dpvi.check(model, data)):
        with pytest.raises(ValueError, match=r"data\['age'\] and data\['y'\] have different indices") as caught:
            function({"age": table["age"], "y": shuffled["y"]})
        assert "40" not in str(caught.value)
    as_records({"age": table["age"], "y": shuffled["y"].to_numpy()})
    as_records({"age": shuffled["age"], "y": shuffled["y"]})


def test_a_table_is_checked_fitted_and_predicted_for():
    random = np.random.default_rng(0)
    age = random.normal(size=60)
    table = pytest.importorskip("pandas").DataFrame({"y": 2 * age, "age": age, "id": [f"p{i}" for i in range(60)]})
    assert dpvi.check(model, table).record_plate == "records"
    dpvi.validate(model, table)
    plan = private_plan(3)
    result = dpvi.fit(model, table, plan, seed=1, progress=False)
    same = dpvi.fit(model, {"age": age, "y": 2 * age}, plan, seed=1, progress=False)
    np.testing.assert_array_equal(result.trace.final, same.trace.final)
    posterior = result.posterior("last")
    drawn = posterior.predict(model, table.head(4), num_samples=5)
    assert {name: draws.shape for name, draws in drawn.items()} == {"y": (5, 4)}
    assert posterior.predict(model, table[["age"]].head(4), num_samples=5)["y"].shape == (5, 4)
    assert posterior.predict(model, age=table["age"].head(4), num_samples=5)["y"].shape == (5, 4)
    seen = handlers.seed(lambda age, y: numpyro.sample("y", dist.Normal(age, 1.0), obs=y + 0.0), 0)
    with pytest.raises(ValueError, match="nothing is left to predict"):
        posterior.predict(seen, table.head(4))


@KINDS
def test_dpsvi_takes_a_table_as_its_only_argument(make):
    data, _, _ = bound(model, model, (make(),), {})
    assert list(data) == ["age", "y"]
