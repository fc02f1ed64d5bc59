"""The custodian's step prints, marks every line, and returns nothing."""

from __future__ import annotations

import inspect

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dpvi
from dpvi.models.validate import validate


def model(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
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
