"""The guarantee reads as a sentence and says what it rests on."""

from __future__ import annotations

import json
import math

import pytest

from dpvi.declared.guarantee import Captured, Circumstances, Guarantee, Together


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
    assert f"privacy: {words} changes the probability" in text
    assert "ε = 1, δ = 1e-05" in text
    assert "exp(1) = 2.718" in text
    assert text.endswith("Computed by an accountant.")


def test_where_the_number_of_records_is_public_a_record_is_blanked_and_not_removed():
    """Neighbours have the same number of records: with one removed, that number would tell them apart."""
    text = str(make(fixed_size=True))
    assert "blanking one record (putting an empty record, which contributes nothing, in its place) changes" in text
    assert "removing" not in text
    assert "replacing one record by another" in str(make(adjacency="substitute", fixed_size=True))


def test_facts_survive_a_file_and_none_may_be_left_out():
    facts = Circumstances("secret", (Captured("x", (3, 2)),), Together(4, True, 4.0, 4e-5))
    assert Circumstances.from_dict(json.loads(json.dumps(facts.to_dict()))) == facts
    for name in facts.to_dict():
        with pytest.raises(KeyError):
            Circumstances.from_dict({key: value for key, value in facts.to_dict().items() if key != name})
    with pytest.raises(ValueError, match="seed must be 'none', 'secret' or 'guessable', got 'unknown'"):
        Circumstances("unknown")


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
