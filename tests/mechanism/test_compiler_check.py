"""A JAX that gives all records the gradient of one is not run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.small_models import RECORDS, exact_plan, location_model

import dpvi
from dpvi.mechanism import compiler_check
from dpvi.mechanism.compiler_check import CompilerError, check_compiler, records_are_mixed_up


@pytest.fixture(autouse=True)
def as_in_a_new_process():
    check_compiler.cache_clear()
    yield
    check_compiler.cache_clear()


def test_the_installed_jax_keeps_records_apart():
    assert not records_are_mixed_up()
    check_compiler()


def test_a_jax_that_does_not_is_refused_before_a_run(monkeypatch):
    """The named wrong answer: what jaxlib 0.10.2 computes, the gradient of one record for all."""

    def wrong(function, in_axes):
        batched = jax.vmap(function, in_axes)
        return lambda scale, records: jnp.broadcast_to(batched(scale, records)[:1], records.shape[:1])

    class Wrong:
        vmap = staticmethod(wrong)
        jit = staticmethod(lambda function: function)

        def __getattr__(self, name):
            return getattr(jax, name)

    monkeypatch.setattr(compiler_check, "jax", Wrong())
    with pytest.raises(CompilerError, match=r"install jax 0\.10\.1"):
        dpvi.fit(location_model(), RECORDS, exact_plan(4, 0.5), seed=0, progress=False)


def test_gradients_by_hand_are_those_of_the_term():
    records = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    one_by_one = [jax.grad(compiler_check._term)(jnp.float32(0.7), jnp.asarray(record)) for record in records]
    np.testing.assert_allclose(compiler_check._gradient(0.7, records), one_by_one, rtol=1e-4)
