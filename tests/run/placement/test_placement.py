"""What a run may be spread over."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from support.small_models import location_model, many_records, private_plan

import dpvi
from dpvi.run.placement.hosts import from_all, from_first, losses_explained, ready_together, require_same
from dpvi.run.placement.placement import bring_in


def test_a_mesh_of_one_device_releases_what_no_mesh_does():
    options = {"model": location_model(), "data": many_records(50), "plan": private_plan(12), "seed": 1}
    alone = dpvi.fit(**options, progress=False).trace
    spread = dpvi.fit(**options, progress=False, devices=jax.devices()[:1]).trace
    np.testing.assert_array_equal(spread.noisy_sums, alone.noisy_sums)
    np.testing.assert_allclose(spread.iterates, alone.iterates, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("devices", [[], ["cpu"], 4, "all"], ids=repr)
def test_devices_are_devices(devices):
    with pytest.raises(TypeError, match=r"devices must be a list of different devices such as jax\.devices\(\)"):
        bring_in(many_records(50), devices)


def test_one_process_agrees_with_itself():
    values = np.arange(3.0)
    np.testing.assert_array_equal(from_first(values), values)
    np.testing.assert_array_equal(from_all(values), values[None])
    require_same({"plan": 1})
    with pytest.raises(ValueError, match="mine"), ready_together(), losses_explained():
        raise ValueError("mine")
