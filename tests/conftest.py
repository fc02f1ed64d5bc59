"""Strict JAX for every test; 64-bit mode on request, because float32 is what users run."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_platforms", "cpu")

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in 64-bit mode."""
    with jax.enable_x64(True):
        yield
