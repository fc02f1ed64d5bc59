"""Running a NumPyro model with chosen values, and reading the log-density of each site.

Two rules decide everything. A term belongs to a record exactly when the record plate is in its site's
``cond_indep_stack``: ``is_observed`` would put factors and log-determinants into the likelihood. And the
log-determinant of a bijection belongs to the prior, whatever scale or mask surrounds the site: it is a change of
variables.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import handlers
from numpyro.distributions import biject_to

from dpvi.models.sites import Site, is_real

_LOG_DET = "_dpvi_log_det_"
LOG_DETERMINANT = "log-determinant of the bijections"


def execute(function: Callable, batch: Any, fill: Callable, *, key: jax.Array | None = None) -> dict[str, dict]:
    """Run ``function`` on a batch of records under ``fill`` and return its messages by name.

    Parameters
    ----------
    function
        The NumPyro model. A tuple of records is passed as positional arguments, a dict as keyword arguments, anything
        else as the only argument.
    batch
        Records with a leading axis.
    fill
        Called with each message; returns the value to use or None.
    key
        A PRNG key for sites that ``fill`` leaves open.
    """
    model = handlers.substitute(function, substitute_fn=fill)
    recorder = handlers.trace(model if key is None else handlers.seed(model, key))
    args = batch if isinstance(batch, tuple) else () if isinstance(batch, dict) else (batch,)
    kwargs = batch if isinstance(batch, dict) else {}
    # NumPyro's distributions mix integers and floats freely, so a strict setting around us cannot hold inside them.
    with jax.numpy_dtype_promotion("standard"):
        return recorder.get_trace(*args, **kwargs)


def fill_from(z: jax.Array, sites: Mapping[str, Site], given: Mapping[str, Any], num_records: int) -> Callable:
    """Give every latent site its part of z, mapped to its support; the log-determinant is recorded beside it.

    ``given`` sites (the unobserved half of ``obs_mask``, networks whose weights are drawn) get a value that enters no
    term that is kept.
    """

    def fill(message: dict) -> Any:
        if message["type"] == "plate":
            return whole_batch(message, num_records)
        if message["type"] == "param":
            return given.get(message["name"])
        if message["type"] != "sample" or message["is_observed"]:
            return None
        name = message["name"]
        if name in given:
            return given_value(given[name], message)
        return to_support(message, sites[name].of(z)) if name in sites else None

    return fill


def given_value(value: Any, message: dict) -> jax.Array:
    """A value of a site for any number of records; in a loop that of all turns, of which NumPyro takes one."""
    shape = message["fn"].shape()
    turns = jnp.shape(value)[:1] if jnp.ndim(value) > len(shape) else ()
    return jnp.broadcast_to(value, (*turns, *shape))


def to_support(message: dict, value: jax.Array) -> jax.Array:
    """Map an unconstrained value to the site's support, and leave the log-determinant in the trace."""
    support = message["fn"].support
    step = message["infer"].get("_scan_current_index")
    bijection = biject_to(support)
    if step is not None and jnp.ndim(value) > len(bijection.inverse_shape(message["fn"].shape())):
        value = value[step]
    if is_real(support):
        return value
    constrained = bijection(value)
    # A deterministic site, unlike a factor, feels no mask and no scale and survives numpyro's scan.
    numpyro.deterministic(_LOG_DET + message["name"], jnp.sum(bijection.log_abs_det_jacobian(value, constrained)))
    return constrained


def is_deterministic(message: dict) -> bool:
    """Whether the model itself named this value with ``numpyro.deterministic``."""
    return message["type"] == "deterministic" and not message["name"].startswith(_LOG_DET)


def whole_batch(message: dict, num_records: int) -> jax.Array | None:
    """Indices of a plate that subsamples the records: all of them, because batches are drawn outside the model."""
    size, subsample_size = message["args"]
    if subsample_size is None or subsample_size == size:
        return None
    if subsample_size == num_records:
        return jnp.arange(subsample_size)
    if size == num_records:
        message["args"] = (size, None)
        return jnp.arange(size)
    return None


def membership(message: dict, plate: str) -> Any:
    """The frame of ``plate`` around a site, or None where the site lies outside it."""
    return next((frame for frame in message.get("cond_indep_stack", ()) if frame.name == plate), None)


def plates_of(trace: Mapping[str, dict]) -> dict[str, int]:
    """``{plate: size of its batch dimension}``; one in the body of a scan shows in its sites alone."""
    plates = {frame.name: frame.size for message in trace.values() for frame in message.get("cond_indep_stack", ())}
    return plates | {name: each["value"].shape[0] for name, each in trace.items() if each["type"] == "plate"}


def scaled_in_a_loop(trace: Mapping[str, dict], plate: str) -> list[str]:
    """Sites under a plate that is met in loops only, and scaled: by what part its subsampling, nobody can tell."""
    if plate in trace:
        return []
    inside = {name: each for name, each in trace.items() if membership(each, plate) is not None}
    return [name for name, each in inside.items() if each["type"] == "sample" and each["scale"] is not None]


def prior_terms(trace: Mapping[str, dict], plate: str) -> dict[str, jax.Array]:
    """``{site: scalar}`` for sample sites outside the record plate, log-determinants under ``LOG_DETERMINANT``."""
    terms = {}
    log_dets = []
    with jax.numpy_dtype_promotion("standard"):
        for name, message in trace.items():
            if name.startswith(_LOG_DET):
                log_dets.append(total(message["value"]))
            elif message["type"] == "sample" and membership(message, plate) is None:
                terms[name] = total(_log_prob(message, 1.0))
    if log_dets:
        terms[LOG_DETERMINANT] = sum(log_dets[1:], log_dets[0])
    return terms


def record_log_probs(trace: Mapping[str, dict], plate: str, left_out: Container[str]) -> list[tuple[jax.Array, int]]:
    """The log-densities inside the record plate, each with the (negative) axis of the records."""
    inside = []
    with jax.numpy_dtype_promotion("standard"):
        for name, message in trace.items():
            if message["type"] != "sample" or name in left_out:
                continue
            frame = membership(message, plate)
            if frame is not None:
                inside.append((_log_prob(message, _subsample_scale(trace.get(plate))), frame.dim))
    return inside


def total(log_prob: jax.Array) -> jax.Array:
    """The sum of all entries, without a reduction where there is one entry: that is the hot path."""
    return jnp.reshape(log_prob, ()) if jnp.size(log_prob) == 1 else jnp.sum(log_prob)


def is_unscaled(message: dict, trace: Mapping[str, dict], plate: str) -> bool:
    """Whether the density of a site inside the record plate counts once, whatever the plate subsamples."""
    return scale_of(message, trace, plate) is None


def scale_of(message: dict, trace: Mapping[str, dict], plate: str) -> Any:
    """What the density of a site inside the record plate is multiplied by beside its subsampling, None for one."""
    return _scale(message, _subsample_scale(trace.get(plate)))


def _subsample_scale(plate_message: dict | None) -> float:
    if plate_message is None:  # met in loops only, where it may not subsample
        return 1.0
    return plate_message["args"][0] / plate_message["value"].shape[0]


def _scale(message: dict, divide_by: float) -> Any:
    """What a log-density is multiplied by, None for one."""
    if message["scale"] is None:
        return None
    # A plate with subsample_size scales by N/B; the batch is drawn outside the model, so one record counts once.
    scale = message["scale"] / divide_by
    return None if isinstance(scale, (int, float)) and scale == 1 else scale


def _log_prob(message: dict, divide_by: float) -> jax.Array:
    distribution, value = message["fn"], message["value"]
    intermediates = message["intermediates"]
    log_prob = distribution.log_prob(value, intermediates) if intermediates else distribution.log_prob(value)
    scale = _scale(message, divide_by)
    return log_prob if scale is None else scale * log_prob
