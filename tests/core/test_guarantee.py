"""The guarantee reads as a sentence and says what it rests on."""

from __future__ import annotations

import math

import pytest

from dpvi.core.guarantee import Guarantee


def make(**changes):
    fields = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "unit": "one record",
        "accountant": "an accountant",
    }
    return Guarantee(**{**fields, **changes})


@pytest.mark.parametrize(
    ("adjacency", "words"),
    [("add_remove", "adding or removing one record"), ("substitute", "replacing one record by another")],
)
def test_sentence_names_budget_neighbours_and_accountant(adjacency, words):
    text = str(make(adjacency=adjacency))
    assert words in text
    assert "ε = 1, δ = 1e-05" in text
    assert "exp(1) = 2.718" in text
    assert text.endswith("Computed by an accountant.")


def test_assumptions_are_appended():
    guarantee = make().assuming("The sun rises.").assuming("The sun sets.")
    assert guarantee.assumptions == ("The sun rises.", "The sun sets.")
    assert str(guarantee).endswith("Assumes: The sun rises. The sun sets.")
    assert make().assumptions == ()


def test_no_privacy_is_said_first():
    assert not make(epsilon=math.inf).private
    assert str(make(epsilon=math.inf)).startswith("NOT PRIVATE")


def test_a_huge_epsilon_does_not_overflow():
    assert "exp(5000)," in str(make(epsilon=5000.0))
