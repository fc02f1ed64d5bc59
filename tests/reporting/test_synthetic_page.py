"""The page about synthetic tables: columns beside released counts, associations, and names that are no programs."""

from __future__ import annotations

import datetime

import jax
import numpy as np
import pytest
from support.pages import check_page, in_browser, needs_chromium
from support.small_models import private_plan

from dpvi.models.table import TableModel
from dpvi.reporting import synthetic_page, write_synthetic_page
from dpvi.reporting.page.marginals import column_shares
from dpvi.reporting.page.synthetic import association, associations
from dpvi.synthetic.generate import SyntheticData
from dpvi.table import Boolean, Categorical, Count, Date, Numeric, Schema

HOSTILE = '<img src=x onerror="alert(1)">'
SCHEMA = Schema(
    {
        "age": Numeric(0, 99, integer=True),
        "weight": Numeric(0.0, 10.0),
        HOSTILE: Categorical(("a", HOSTILE)),
        "ill": Boolean(missing=True),
        "visits": Count(40),
        "born": Date(datetime.date(1950, 1, 1), datetime.date(2009, 12, 31)),
    }
)


def tables(index: int) -> dict:
    rng = np.random.default_rng(index)
    group = rng.integers(0, 2, 3000)
    return SCHEMA.encode(
        {
            "age": rng.integers(0, 100, 3000),
            "weight": rng.uniform(0, 10, 3000),
            HOSTILE: np.array(["a", HOSTILE])[group],
            "ill": [None if each < 0.2 else bool(each > 0.6) for each in rng.random(3000)],
            "visits": np.where(group, 30, 2) + rng.integers(0, 5, 3000),
            "born": np.datetime64("1950-01-01") + rng.integers(0, 20000, 3000),
        }
    )


@pytest.fixture(scope="module")
def data():
    return SyntheticData(SCHEMA, 12, 3000, "stationary", private_plan(5).guarantee, tables)


@pytest.fixture(scope="module")
def text(data):
    released = {"age": (np.linspace(-1, 1, 100), np.full(100, 0.01)), HOSTILE: (np.arange(2), np.array([0.6, 0.4]))}
    return synthetic_page(data, released=released, title=HOSTILE)


def test_the_page_stands_alone_and_says_what_is_there(text):
    page = check_page(text)
    assert not page.all("img")
    assert page.text.count(HOSTILE) >= 5
    for words in ("20 % missing", "released counts", "pool", "Cramér", "1950-01-01 to 2009-12-31"):
        assert words in page.text, words


def test_whole_numbers_fall_into_bins_of_equally_many(data):
    found = [data.encoded(0)]
    labels, shares = column_shares("age", SCHEMA["age"], found)
    assert labels[:3] == ["0", "7", "14"]
    np.testing.assert_allclose(shares[:14], 0.07, atol=4 * np.sqrt(0.07 / 3000))
    labels, _ = column_shares("visits", SCHEMA["visits"], found)
    assert labels[:3] == ["0", "3", "6"]
    labels, shares = column_shares("ill", SCHEMA["ill"], found)
    assert labels == ["no", "yes"]
    assert shares.sum() == pytest.approx(1)


def test_associations_find_what_goes_together_and_nothing_else(data):
    names, found = associations(SCHEMA, [data.encoded(0), data.encoded(1)])
    together = found[names.index(HOSTILE), names.index("visits")]
    assert together > 0.95
    others = found[np.tril_indices(len(names), -1)]
    assert np.sum(others > 0.1) == 1
    rng = np.random.default_rng(0)
    independent = [association(rng.integers(0, 5, 400), rng.integers(0, 5, 400)) for _ in range(40)]
    assert np.mean(independent) < 0.05  # without the correction for chance it would be 0.1


def test_a_page_is_written_whole_or_not_at_all(data, tmp_path, monkeypatch):
    assert write_synthetic_page(data, tmp_path / "page.html").stat().st_size > 10_000
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_synthetic_page(data, tmp_path / "other.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@needs_chromium
def test_a_browser_complains_of_nothing(text, tmp_path):
    script = (
        "found.bars = document.querySelectorAll('rect.bar').length;"
        "found.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;"
        "document.querySelector('details').open = true;"
        "found.seen = document.querySelector('details table').getBoundingClientRect().height > 0;"
    )
    found = in_browser(text, tmp_path, script)
    assert found["said"] == []
    assert found["bars"] > 50
    assert not found["wide"]
    assert found["seen"]


def test_the_prior_of_a_table_models_regression_is_ones_own():
    schema = Schema({"x": Numeric(0, 1), "y": Boolean()})
    narrow, usual = (TableModel(schema, 2, "y", prior_scale=scale).priors() for scale in (0.1, 1.0))
    draws = [np.std(prior["y_weights"].sample(jax.random.key(0), (4000,))) for prior in (narrow, usual)]
    assert draws[0] == pytest.approx(0.1, rel=0.06)
    assert draws[1] == pytest.approx(1.0, rel=0.06)
    with pytest.raises(ValueError, match="above zero"):
        TableModel(schema, 2, "y", prior_scale=0.0)
