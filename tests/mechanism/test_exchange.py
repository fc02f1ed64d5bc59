"""Every device holds what all devices sent, in the order of devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.mechanism.exchange import everyones

OWN = jnp.arange(24.0).reshape(3, 4, 2)  # three devices, an array of (4, 2) each


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_all_devices_hold_the_same_in_the_same_order(backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    found = jax.vmap(lambda own: everyones(own, "devices"), axis_name="devices")(OWN)
    np.testing.assert_array_equal(found, np.broadcast_to(OWN, (3, 3, 4, 2)))
