"""The verdict on every model of the compatibility suite; ``make compatibility`` fits them, too."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest
from harness.output import RESULTS
from tutorials import ENTRIES

import dpvi
from dpvi.models.base import ModelError

SHARE = 0.9


def checked(entry):
    guide = dpvi.AutoAmortised(entry.model) if entry.guided else None
    return dpvi.check(entry.model, entry.data, guide=guide, static=entry.static)


@pytest.mark.filterwarnings("ignore::dpvi.ModelNotice")
@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_the_verdict_is_the_tables(entry):
    if entry.refused is not None:
        with pytest.raises(ModelError) as caught:
            checked(entry)
        assert entry.refused in str(caught.value)
        return
    ready = checked(entry)
    if not entry.guided:
        record = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), ready.structure)
        assert jax.eval_shape(ready.log_likelihood, jnp.zeros(ready.dimension), record).shape == ()


@pytest.mark.filterwarnings("ignore::dpvi.ModelNotice")
@pytest.mark.parametrize("name", ["whitened_process", "summed_steps", "neighbours"])
def test_a_written_guide_makes_no_dependent_model_pass(name):
    entry = next(entry for entry in ENTRIES if entry.name == name)
    with pytest.raises(ModelError) as caught:
        dpvi.check(entry.model, entry.data, guide=dpvi.AutoAmortised(entry.model))
    found = "coupled", "its place in the batch", "reads records"
    assert any(word in str(caught.value) for word in found)


def test_nine_of_ten_eligible_models_run_and_no_other():
    eligible = [entry for entry in ENTRIES if entry.eligible]
    assert len(ENTRIES) >= 60
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    assert sum(entry.refused is None for entry in eligible) >= SHARE * len(eligible)
    assert all(entry.refused is not None for entry in ENTRIES if not entry.eligible)


def test_the_committed_table_is_of_these_models():
    committed = json.loads((RESULTS / "compatibility.json").read_text(encoding="utf-8"))
    assert {line["model"]: line["runs"] for line in committed["models"]} == {
        entry.name: entry.refused is None for entry in ENTRIES
    }
    assert sum(each["within the limit"] for each in committed["NUTS"]) >= 10
