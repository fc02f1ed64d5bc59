"""Sources in functions other than ``fit``: the check takes them, others say what to do."""

from __future__ import annotations

import numpy as np
import optax
import pytest
from support.guide_models import mean, mean_guide
from support.small_models import location_model, private_plan

import dpvi
from dpvi.models.base import ModelError

Y = np.arange(11.0)
PLAN = private_plan(3)
FUNCTIONS = {
    "fit_many": lambda source: dpvi.fit_many(location_model(), source, PLAN, seeds=[1, 2]),
    "DPSVI.init": lambda source: dpvi.DPSVI(mean, mean_guide, optax.adam(0.1), plan=PLAN).init(None, source),
    "DPSVI.run": lambda source: dpvi.DPSVI(mean, mean_guide, optax.adam(0.1), plan=PLAN).run(None, y=source),
    "fit beside an array": lambda source: dpvi.fit(mean, (source, Y), PLAN, progress=False),
}


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "y.npy", Y)
    return dpvi.open_npy(tmp_path)


def test_the_check_takes_a_source_and_reads_no_row(source, monkeypatch):
    monkeypatch.setattr(type(source), "take", lambda *_: pytest.fail("a row was read"))
    assert dpvi.check(mean, source).dimension == 1
    with pytest.raises(ModelError, match=r"Records are coupled|alone in the batch"):
        dpvi.check(lambda y: mean(y - y.mean()), source)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_others_say_how_to_load_it(source, function):
    with pytest.raises(ValueError, match=r"got a NpySource\. Records on disk .* source\.take\(numpy\.arange") as caught:
        function(source)
    assert str(len(Y)) not in str(caught.value)
