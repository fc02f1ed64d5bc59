"""What a script for NumPyro's SVI passes, as a private run takes it: optimiser, loss, key, settings among the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import Trace_ELBO, TraceMeanField_ELBO
from numpyro.optim import Minimize, _NumPyroOptim

from dpvi.gradients.guided import Guided
from dpvi.models.constants import bound_call, by_position
from dpvi.records.frames import arguments_of, is_table

_KEY_WORDS = 4  # the most that a key of JAX has, so that as a seed it stays below 2^128


def as_optax(optim: Any) -> optax.GradientTransformation:
    """An optimiser of NumPyro's as one of optax's; optax's own as they are."""
    if isinstance(optim, optax.GradientTransformation):
        return optim
    if isinstance(optim, Minimize) or getattr(optim, "update_with_value", False):
        raise TypeError(
            f"{type(optim).__name__} evaluates the loss, which is not released; use an optimiser that steps along "
            "gradients, such as optax.adam(0.01)."
        )
    if not isinstance(optim, _NumPyroOptim):
        raise TypeError(f"optim must be an optax or NumPyro optimiser, got {type(optim).__name__}.")

    def update(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        after = optim.update(gradient, state)
        return optim.get_params(after) - params, after

    return optax.GradientTransformation(optim.init, cast(Any, update))


def estimator_of(loss: Any) -> Guided:
    """The gradient of a loss: its draws per step, and whether divergences are drawn or in closed form."""
    if loss is None:
        return Guided()
    if type(loss) not in (Trace_ELBO, TraceMeanField_ELBO):
        raise TypeError(
            "DPSVI maximises the ELBO by gradients of per-record terms; loss must be None, TraceMeanField_ELBO() or "
            f"Trace_ELBO(), got {type(loss).__name__}."
        )
    return Guided(loss.num_particles, closed_form=type(loss) is TraceMeanField_ELBO)


def seed_of(rng_key: Any) -> int | None:
    """All bits of a JAX key as one number; None stays None."""
    if rng_key is None:
        return None
    try:
        typed = jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key)
        words = np.asarray(jax.random.key_data(rng_key) if typed else rng_key)
        if words.dtype != np.uint32 or words.ndim != 1 or len(words) > _KEY_WORDS:
            raise TypeError("not one key")
        return int.from_bytes(words.astype("<u4").tobytes(), "little")
    except (AttributeError, TypeError):
        raise TypeError(
            "rng_key must be None, which takes 256 bits from the operating system, or, for runs that are NOT PRIVATE, "
            "one key from jax.random.key; "
            f"got {type(rng_key).__name__}. The number of steps is the plan's and no argument."
        ) from None


def bound(model: Callable, guide: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Callable, Callable]:
    """Data for ``fit``, with model and guide as functions of it: constants among the arguments are bound to them."""
    if len(args) == 1 and not kwargs and is_table(args[0]):
        return arguments_of(model, args[0]), model, guide
    found = bound_call(args, kwargs, (model, guide), None)
    if found is not None:
        return found.data, *found.functions
    if args and kwargs:
        data, (model, guide) = by_position(args, kwargs, (model, guide))
        return data, model, guide
    return args if args else kwargs, model, guide
