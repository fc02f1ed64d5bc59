"""Whether the compiler keeps gradients of single records apart.

On processors, jaxlib 0.10.2 to 0.11.2 compile some batches of gradients wrongly: where a part that is the same for all
records is added to one that is not, and there are a thousand records or more, every record is given the gradient of one
of them. A clipped sum of those moves by far more than the clip norm when that record leaves. Nothing that is written in
Python can bound it, so such a JAX must not run.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.core.validation import CompilerError

_NUM_RECORDS = 4096


@lru_cache(maxsize=1)
def check_compiler() -> None:
    """Refuse a JAX that mixes up records; once per process, a tenth of a second."""
    if jax.default_backend() == "cpu" and records_are_mixed_up():
        raise CompilerError(
            f"JAX {jax.__version__} computes gradients of single records wrongly on this processor, so that no bound "
            "on one record's influence holds; install jax 0.10.1, or 0.12 or later, or set the environment variable "
            "XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= before Python starts."
        )


def records_are_mixed_up() -> bool:
    """Whether compiled gradients of different records are as different as they are by hand."""
    records = np.random.default_rng(0).normal(size=(_NUM_RECORDS, 2)).astype(np.float32)
    with jax.enable_x64(False):
        compiled = jax.jit(jax.vmap(jax.grad(_term), (None, 0)))(jnp.float32(0.7), jnp.asarray(records))
    return not np.allclose(compiled, _gradient(0.7, records), rtol=1e-3, atol=1e-3)


_FACTOR = np.array([[1.0, 0.0], [0.4, 0.5]], np.float32)


def _term(scale: jax.Array, record: jax.Array) -> jax.Array:
    """−(r₁ − 1ᵀLr)² + ‖L‖² with L = scale · factor: a part of each record's own, and one that is the same for all."""
    factor = jnp.broadcast_to(jnp.asarray(_FACTOR) * scale, (1, 2, 2))
    moved = jnp.squeeze(factor @ record[None, :, None], -1).sum(-1)
    return -jnp.sum(jnp.square(record[0] - moved)) + jnp.sum(jnp.square(factor))


def _gradient(scale: float, records: np.ndarray) -> np.ndarray:
    """The derivative of :func:`_term` with respect to ``scale``, by hand."""
    moved = records @ _FACTOR.sum(axis=0)
    return 2 * (records[:, 0] - scale * moved) * moved + 2 * scale * np.sum(_FACTOR**2)
