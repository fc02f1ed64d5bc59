"""Options of the compiler that are asked for only where it knows them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.backend import compiling
from dpvi.backend.compiling import SharedProgram

ONES = np.ones(3, np.float32)


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


def times(captured):
    return SharedProgram(lambda x: x * captured)


def test_functions_that_say_the_same_share_a_program():
    first, second = times(np.arange(3, dtype=np.float32)), times(np.arange(3, dtype=np.float32))
    assert first(ONES).tolist() == second(ONES).tolist() == [0, 1, 2]
    assert first.compiled(ONES) is second.compiled(ONES)
    assert first(np.ones(1, np.float32)).shape == (3,)
    assert first.num_compiled == 2


@pytest.mark.parametrize("size", [3, 5000])  # a text may leave out what is in the middle of large arrays
def test_what_is_captured_tells_programs_apart(size):
    one = np.zeros(size, np.float32)
    other = one.copy()
    other[size // 2] = 1e-30
    x = np.ones(size, np.float32)
    assert not np.any(times(one)(x))
    assert np.count_nonzero(times(other)(x)) == 1
    assert times(2.0)(x)[0] != times(2.0000002)(x)[0]
    assert np.count_nonzero(times(jnp.asarray(other))(x)) == 1


def test_what_changes_in_place_or_by_its_name_is_seen_by_the_next_function():
    captured, settings = np.zeros(3, np.float32), {"power": 1}

    def function(x):
        return x ** settings["power"] + captured

    assert SharedProgram(function)(2 * ONES).tolist() == [2, 2, 2]
    captured += 1
    settings["power"] = 2
    assert SharedProgram(function)(2 * ONES).tolist() == [5, 5, 5]


def test_programs_that_call_python_back_are_not_shared():
    def calling(back):
        return SharedProgram(lambda x: jax.pure_callback(back, jax.ShapeDtypeStruct(x.shape, x.dtype), x))

    assert calling(lambda x: np.asarray(x) + 1)(ONES).tolist() == [2, 2, 2]
    assert calling(lambda x: np.asarray(x) - 1)(ONES).tolist() == [0, 0, 0]


def test_modes_options_and_types_have_programs_of_their_own():
    program, wide = SharedProgram(lambda x: x / 3), np.ones(1)
    with jax.enable_x64(True):
        assert program(wide).dtype == np.float64
    assert program(wide).dtype == np.float32
    assert program.num_compiled == 2
    options = {"xla_backend_optimization_level": 0}
    assert SharedProgram(lambda x: x / 3, options).compiled(ONES) is not SharedProgram(lambda x: x / 3).compiled(ONES)


def test_a_program_may_be_a_part_of_another():
    assert jax.jit(times(ONES))(2 * ONES).tolist() == [2, 2, 2]
    assert jax.grad(lambda x: jnp.sum(times(ONES)(x)))(2 * ONES).tolist() == [1, 1, 1]


def test_only_the_last_programs_are_kept(monkeypatch):
    monkeypatch.setattr(compiling, "_MOST_SHARED", 2)
    compiling.forget_programs()
    for captured in (1.0, 2.0, 3.0):
        times(captured)(ONES)
    assert len(compiling._SHARED) == 2


def test_programs_that_use_other_arguments_or_other_trees_are_told_apart():
    """JAX leaves unused arguments out of a program, and its text does not say which: a wrong column would answer."""
    other = 5 * ONES
    assert SharedProgram(lambda a, b: 2 * a)(ONES, other).tolist() == (2 * ONES).tolist()
    assert SharedProgram(lambda a, b: 2 * b)(ONES, other).tolist() == (2 * other).tolist()
    assert SharedProgram(lambda both: both[0] - both[1])((ONES, other)).tolist() == (ONES - other).tolist()
    named = SharedProgram(lambda both: both["a"] - both["b"])({"a": ONES, "b": other})
    assert named.tolist() == (ONES - other).tolist()
