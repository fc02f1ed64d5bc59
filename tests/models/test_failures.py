"""Errors of a user's own model: their words and line, where these tell nothing of records."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from dpvi.models.base import ModelError
from dpvi.models.check import check
from dpvi.models.failures import explained

N = 9173
X, Y = np.zeros((N, 3)), np.zeros(N)
SIZE = N  # a size that a user keeps in a variable


def response(x, y, mean=0.0):
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def name(x, y):
    response(x, y, slope)  # noqa: F821


def key(x, y):
    response(x, {"income": y}["incme"])


def attribute(x, y):
    response(x, y.valeus)


def missing_module(x, y):
    import a_module_that_is_not_there  # noqa: F401

    response(x, y)


def twice(x, y):
    response(x, y, numpyro.sample("mean", dist.Normal(0.0, 1.0)) + numpyro.sample("mean", dist.Normal(0.0, 1.0)))


def shapes(x, y):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    response(x, y, x @ weights)


def sliced(x, y):
    response(x, y[2:] + x[:, 0])


def a_size(x, y):
    response(x, y, numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([SIZE]).to_event(1)) + x[:, 0])


def branch(x, y):
    response(x, y, 1.0 if y[0] > 0 else 2.0)


@pytest.mark.parametrize(
    ("model", "sentences"),
    [
        (name, ["fails with NameError: name 'slope' is not defined", "`response(x, y, slope)"]),
        (key, ["fails with KeyError: 'incme'", '{"income": y}["incme"]']),
        (attribute, ["fails with AttributeError", "valeus"]),
        (missing_module, ["fails with ModuleNotFoundError: No module named 'a_module_that_is_not_there'"]),
        (twice, ["Two sites of the model are called 'mean'"]),
        (shapes, ["TypeError: dot_general", "(3,) and (2,)", "response(x, y, x @ weights)"]),
        (sliced, ["TypeError", "response(x, y[2:] + x[:, 0])"]),
        (a_size, ["response(x, y, numpyro.sample(", "shapes"]),
        (branch, ["TracerBoolConversionError (test_failures.py, line", "branch with jnp.where"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_an_error_shows_its_words_and_the_users_line(model, sentences):
    with pytest.raises(ModelError) as caught:
        check(model, (X, Y))
    text = str(caught.value)
    for sentence in sentences:
        assert sentence in text
    assert "test_failures.py, line" in text or model is twice
    assert str(N) not in text
    assert all(finding.endswith(".") and "\n" not in finding for finding in caught.value.findings)


def test_a_size_that_is_none_of_a_record_is_left_out():
    error = TypeError("incompatible shapes for broadcasting: (9173,) and (3, 57), block2 stays")
    structure = np.zeros((57,))
    assert explained(error, structure).startswith(
        "TypeError: incompatible shapes for broadcasting: (#,) and (3, 57), block2 stays"
    )
