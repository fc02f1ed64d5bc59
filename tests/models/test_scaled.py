"""Records that count by a constant factor: warned of before a run, with weights and subsampling left in peace."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from support.small_models import location_model, private_plan

import dpvi
from dpvi.declared.validation import IntervalWarning
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.scaled import warn_of_scales

NUMBER = 400
ONE = jax.ShapeDtypeStruct((), np.dtype("float32"))


def model(y, weight=None, subsample_size=None):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0], subsample_size=subsample_size):
        if weight is None:
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)
        else:
            with handlers.scale(scale=weight):
                numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)


def by_sum(y):
    """One site more than the scaled one."""
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("first", dist.Normal(centre, 1.0), obs=y)
        with handlers.scale(scale=np.float32(3)):
            numpyro.sample("second", dist.Normal(centre, 1.0), obs=y)


@pytest.mark.parametrize("guide", [None, AutoNormal(model)], ids=["family", "guide"])
def test_the_mean_over_records_is_warned_of_before_a_run(guide):
    """The plan is refused after the model was checked, so that no run needs to be compiled."""
    plan = dataclasses.replace(private_plan(3), num_records=7)
    with (
        pytest.warns(
            IntervalWarning, match=r"counts 0\.0025 times at 'y', because of handlers.scale: .* drowns"
        ) as told,
        pytest.raises(ValueError, match="another number of records"),
    ):
        dpvi.fit(handlers.scale(model, scale=1 / NUMBER), np.zeros(NUMBER), plan, guide=guide, progress=False)
    assert told[0].filename == __file__


def test_a_factor_above_one_narrows_the_posterior():
    with pytest.warns(IntervalWarning, match="counts 3 times at 'second', .* as narrow as if") as told:
        warn_of_scales(NumPyroModel(by_sum, ONE))
    assert len(told) == 1


def test_weights_of_records_and_subsampling_are_meant_so():
    """Warnings are errors here."""
    warn_of_scales(NumPyroModel(model, ONE))
    warn_of_scales(NumPyroModel(model, (ONE, ONE)))
    warn_of_scales(NumPyroModel(functools.partial(model, subsample_size=2), {"y": ONE}))
    warn_of_scales(NumPyroModel(handlers.scale(model, scale=1.0), ONE))
    warn_of_scales(location_model())
    warn_of_scales(GuidedModel(model, AutoNormal(model), ONE))
