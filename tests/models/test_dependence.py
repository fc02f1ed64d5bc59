"""Data flow through every kind of inner jaxpr."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dpvi.models.dependence import depends

A = jnp.arange(3.0)
N = jnp.int32(2)


def _scan_carry(a, n):
    return lax.scan(lambda c, x: (c + n, x), jnp.int32(0), a)


def _scan_late(a, n):
    # The integer reaches the first carry only after passing through the second.
    def body(carry, _):
        first, second = carry
        return (first + second, n), None

    return lax.scan(body, (jnp.int32(0), jnp.int32(0)), None, length=3)[0][0], a.sum()


def _while(a, n):
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (jnp.int32(0), a.sum()))


def _while_clean(a, n):
    return *lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (jnp.int32(0), a.sum())), n


def _cond_index(a, n):
    return lax.cond(n > 1, lambda: 1.0, lambda: 2.0), a.sum()


def _cond_branch(a, n):
    return lax.cond(a[0] > 1, lambda: n, lambda: jnp.int32(0)), a.sum()


def _fori(a, n):
    return lax.fori_loop(0, 3, lambda i, c: c + n, jnp.int32(0)), a.sum()


@jax.custom_jvp
def _custom(a, n):
    return a * n.astype(a.dtype)


_custom.defjvp(lambda primals, tangents: (_custom(*primals), tangents[0]))

CASES = [
    (lambda a, n: (a[n], a.sum()), [True, False]),
    (lambda a, n: jax.jit(lambda u, v: (u, v * 2))(a, n), [False, True]),
    (lambda a, n: (jnp.where(n > 0, 1.0, 2.0), jnp.zeros_like(n)), [True, False]),
    (lambda a, n: (lax.stop_gradient(n) * 0, a), [True, False]),
    (_scan_carry, [True, False]),
    (_scan_late, [True, False]),
    (_while, [True, True]),
    (_while_clean, [False, False, True]),
    (_cond_index, [True, False]),
    (_cond_branch, [True, False]),
    (_fori, [True, False]),
    (lambda a, n: (_custom(a, n), jax.nn.relu(a)), [True, False]),
    (lambda a, n: jax.checkpoint(lambda u, v: (u.sum(), v + 1))(a, n), [False, True]),
    (lambda a, n: (n, n + 0, jnp.float32(1.0)), [True, True, False]),
]


@pytest.mark.parametrize(("function", "expected"), CASES)
def test_dependence_on_the_integer(function, expected):
    jaxpr = jax.make_jaxpr(function)(A, N)
    assert depends(jaxpr, [False, True]) == expected
    assert not any(depends(jaxpr, [False, False]))
