"""The custodian's step prints, marks every line, and returns nothing."""

from __future__ import annotations

import inspect

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dpvi
from dpvi.models.validate import validate
from dpvi.records.sources import base, open_npy


def model(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Gamma(1.0, 1.0 + (x @ w) ** 2), obs=y)


def lines(capsys, data, model=None):
    assert validate(model, data) is None
    captured = capsys.readouterr()
    assert captured.out == ""
    found = captured.err.splitlines()
    assert all(line.startswith("SENSITIVE") for line in found)
    return found


def test_a_model_comes_before_its_records_as_in_fit_and_check(capsys):
    orders = [list(inspect.signature(function).parameters)[:2] for function in (dpvi.fit, dpvi.check, validate)]
    assert orders == [["model", "data"]] * 3
    with pytest.raises(ValueError, match="data must be an array with one row per record, got a single function"):
        validate((np.zeros((3, 2)), np.ones(3)), model)
    assert capsys.readouterr() == ("", "")


def test_good_records_say_so(capsys):
    x = np.random.default_rng(0).normal(size=(6, 2))
    assert "nothing unusual" in lines(capsys, (x, np.arange(1.0, 7.0)), model)[0]


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.array([1.0, np.nan, 3.0]), "not finite in 1 of 3 records"),
        (np.array([1.0, np.inf, 3.0]), "not finite"),
        (np.array([1.0, 2.0, 3e4]), "beyond 100"),
        (np.array([2.0, 2.0, 2.0]), "the same for every record"),
        (np.array([[2.0, 1.0], [2.0, 5.0]]), "in columns 0"),
        (np.array([1, 2, 2**40]), "beyond 32 bits"),
    ],
)
def test_unusual_columns_are_named(capsys, x, sentence):
    found = lines(capsys, {"x": x})
    assert any("data['x']" in line and sentence in line for line in found)


def test_records_outside_the_support_are_counted(capsys):
    x = np.random.default_rng(0).normal(size=(4, 2))
    found = lines(capsys, (x, np.array([1.0, -1.0, 2.0, -3.0])), model)
    assert any("log-density at z = 0 is not finite for 2 of 4 records" in line for line in found)


def bernoulli(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def test_labels_that_the_distribution_cannot_give_are_counted(capsys):
    x = np.random.default_rng(0).normal(size=(5, 2))
    found = lines(capsys, (x, np.array([1, 2, 2, 1, 2])), bernoulli)
    assert any("site 'y' observes values that its distribution cannot give in 3 of 5 records" in each for each in found)
    assert "nothing unusual" in lines(capsys, (x, np.array([1, 0, 0, 1, 0])), bernoulli)[0]


def partly_seen(y, seen):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.HalfNormal(1.0 + centre**2), obs=y, obs_mask=seen)


def test_what_a_mask_covers_is_no_label(capsys):
    found = lines(capsys, (np.array([1.0, -9.0, 2.0]), np.array([True, False, True])), partly_seen)
    assert not any("cannot give" in line for line in found)


def test_integers_that_a_fit_refuses_are_named_beside_a_model(capsys):
    found = lines(capsys, (np.zeros((2, 2)), np.array([2**40, 1])), model)
    assert any("data[1] holds integers beyond 32 bits" in line for line in found)


def test_records_on_disk_are_looked_at_block_by_block(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "BLOCK_ROWS", 3)
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=10), np.full(10, 2.0), np.repeat([1.0, 2.0], [6, 4])])
    x[[1, 7], 0] = np.nan, 3e4
    y = np.array([1.0, -1.0, 2.0, -3.0, *range(1, 7)])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    in_memory = lines(capsys, {"x": x, "y": y}, model)
    assert [line.split(": ", 1)[1] for line in in_memory] == [
        "data['x'] has values that are not finite in 1 of 10 records; they contribute nothing.",
        "data['x'] has values beyond 100 in absolute value in 1 of 10 records; scale it with public constants, or "
        "clipping will distort the fit.",
        "data['x'] is the same for every record in columns 1.",
        "site 'y' observes values that its distribution cannot give in 2 of 10 records; they contribute nothing, "
        "or nothing that means anything. Recode them, for example labels to 0 and 1, or choose another distribution.",
        "the log-density at z = 0 is not finite for 2 of 10 records; check supports and missing values.",
        "the gradient at z = 0 is not finite for 1 of 10 records; check supports and missing values.",
    ]
    assert lines(capsys, open_npy(tmp_path), model) == in_memory
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy"}
    assert lines(capsys, mapped, model) == in_memory


def test_a_row_on_disk_that_a_fit_would_stop_at_is_named_by_its_file(capsys, tmp_path):
    np.save(tmp_path / "x.npy", np.array([1, 2**40, 3]))
    [line] = lines(capsys, open_npy(tmp_path))
    assert "x.npy holds whole numbers that do not fit" in line
    assert str(2**40) not in line
