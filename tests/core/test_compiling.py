"""Options of the compiler that are asked for only where it knows them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from dpvi.core import compiling


@pytest.fixture(autouse=True)
def asked_anew():
    compiling.plain_fusions.cache_clear()
    yield
    compiling.plain_fusions.cache_clear()


def test_programs_compile_with_the_options():
    program = jax.jit(lambda x: jnp.cumsum(x)[::2], compiler_options=compiling.plain_fusions())
    assert program(jnp.arange(4)).tolist() == [0, 3]


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setattr(compiling, "_PLAIN_FUSIONS", {"xla_cpu_no_such_option": True})
    assert compiling.plain_fusions() == {}


def test_accelerators_are_not_asked(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiling.plain_fusions() == {}
