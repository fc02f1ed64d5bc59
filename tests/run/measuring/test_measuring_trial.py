"""The trial of compiled programs: a program that mixes records, or lets one through too long, reads none."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.measuring import METRIC, QUERY, regression, regression_data, regression_model, requests

from dpvi.declared.validation import CompilerError, PrivacyWarning
from dpvi.models.numpyro import NumPyroModel
from dpvi.release.requests import Scores
from dpvi.run.measuring import contributions as module
from dpvi.run.measuring.contributions import Contributions
from dpvi.run.measuring.trial import check_apart


def unread():
    raise AssertionError("records were read")
    yield


@pytest.mark.parametrize("fault", ["of the first record", "by the place", "with the others", "once too often"])
def test_records_that_are_not_kept_apart_are_found(monkeypatch, fault):
    class Faulty(Contributions):
        def _vectors(self, batch, query, metric):
            vectors = super()._vectors(batch, query, metric)
            slot = jnp.arange(len(vectors))[:, None]
            match fault:
                case "of the first record":
                    return jnp.broadcast_to(vectors[:1], vectors.shape)
                case "by the place":
                    return vectors * jnp.where(slot == len(vectors) - 1, 1 + 1e-7, 1.0)
                case "with the others":
                    return vectors + 1e-8 * jnp.nan_to_num(jnp.roll(vectors, 1, axis=0), posinf=0, neginf=0)
            return vectors

    if fault == "once too often":
        honest = module.bounded_sum
        monkeypatch.setattr(
            module, "bounded_sum", lambda *given: honest(*given)._replace(total=2 * honest(*given).total)
        )
    faulty = Faulty(regression_model(), most_slots=64)
    with pytest.raises(CompilerError, match="longer than the clip norm" if "too" in fault else "records beside it"):
        faulty.total(Scores(QUERY, METRIC, 1), unread())


def test_an_honest_program_is_tried_once(monkeypatch):
    calls, honest = [], module.check_apart

    def counted(*given):
        calls.append(given[3])
        honest(*given)

    monkeypatch.setattr(module, "check_apart", counted)
    tried = Contributions(regression_model(), most_slots=64)
    tried.try_scores()
    for request in (*requests(), *requests()):
        tried.total(request, [regression_data(10)])
    assert calls == [1, 2**29, 2**29, 2**29]


def test_programs_of_a_kind_are_compiled_once():
    tried = Contributions(regression_model(), most_slots=64)
    tried.try_scores()
    for scale in (0.1, 1.0, 3.0):
        tried.total(Scores(scale * QUERY, METRIC / scale, 1), [regression_data(200)])
    assert tried._compiled[Scores].num_compiled == 1


def test_the_program_that_is_tried_is_the_one_that_reads_records(x64):
    leaves = jax.ShapeDtypeStruct((3,), np.dtype("float64")), jax.ShapeDtypeStruct((), np.dtype("int64"))
    tried, (x, y) = Contributions(NumPyroModel(regression, leaves), most_slots=64), regression_data(10)
    for request in requests():
        tried.total(request, [(x.astype(np.float64), y.astype(np.int64))])
        assert tried._compiled[type(request)].num_compiled == 1
    with pytest.raises(CompilerError, match="other types than those that the program of this model was tried on"):
        tried.total(Scores(QUERY, METRIC, 1), [(x, y)])


def test_a_trial_in_which_nothing_is_added_says_so():
    model = regression_model()
    with pytest.warns(PrivacyWarning, match="could not be tried"):
        check_apart(lambda batch, included: np.zeros(3, np.int64), model, 64, 1)


def test_wide_models_are_worked_on_in_smaller_parts():
    whole = Contributions(regression_model())
    sizes = {k: whole.slots(module.CovariateMoments(np.eye(k), 1)) for k in (3, 100, 1000)}
    assert sizes[3] == 1024
    assert 64 <= sizes[100] < 512
    assert sizes[1000] == 8
