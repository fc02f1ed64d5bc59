"""Every check returns the plain Python number or one sentence that names the setting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpvi.declared import validation

BAD = {
    validation.epsilon: [0, -1, math.nan, math.inf, 10**400],
    validation.delta: [0, 1, -0.1, math.nan, 2],
    validation.sampling_rate: [0, 1.0000001, -0.5, math.nan, math.inf],
    validation.num_steps: [0, -3, 1.5, math.nan, math.inf],
    validation.num_records: [0, -3, 1.5, math.nan],
    validation.clip_norm: [0, -1, math.nan, math.inf],
    validation.noise_multiplier: [0, -1, math.nan, math.inf],
}


@pytest.mark.parametrize(("check", "value"), [(check, value) for check, values in BAD.items() for value in values])
def test_out_of_range(check, value):
    with pytest.raises(ValueError, match=f"^{check.__name__} must ") as caught:
        check(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("check", BAD)
@pytest.mark.parametrize("value", ["1", None, True, [1], object(), 1j])
def test_not_a_number(check, value):
    with pytest.raises(TypeError, match=f"^{check.__name__} must be a number, got "):
        check(value)


@pytest.mark.parametrize("kind", [int, float, np.int64, np.float32, np.array])
def test_scalars_of_any_library_become_plain_numbers(kind):
    assert type(validation.num_steps(kind(7))) is int
    assert type(validation.clip_norm(kind(7))) is float
    assert validation.num_steps(kind(7)) == validation.clip_norm(kind(7)) == 7


@pytest.mark.parametrize("value", ["fixed_size", "shuffle", None, 3, ["add_remove"]])
def test_adjacency(value):
    with pytest.raises(ValueError, match=r"^adjacency must be 'add_remove' or 'substitute'"):
        validation.adjacency(value)
    assert validation.adjacency("substitute") == "substitute"
