"""Running a guide and then its model on the guide's draws, and where those draws come from.

Randomness is assigned by site. A site outside the record plate draws from the key that all records of a step share; a
site inside it draws from a key of the record's own, as does ``numpyro.prng_key()``, whose n-th call gives the same key
in guide and model. Sites in the body of a loop follow the same rule; keys that its body asks for with ``prng_key`` are
shared by all records. A record's key is a hash of the step's seed and of what the record holds: for every seed a term
is then a function of its own record alone, so that adding or removing a record leaves all other terms as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.primitives import Messenger

from dpvi.models.numpyro import execution

NUM_SEED_NORMALS = 4  # 23 random bits each in float32, so that a step's seed has all 64 bits of a key
_RECORDS = 0x7265636F  # keeps the keys of records apart from those of shared sites
_LOOPS = 0x6C6F6F70  # and those of loops apart from both
_SALTS = (0x9E3779B9, 0x85EBCA77)


def shared_key(eta: jax.Array) -> jax.Array:
    """The key of a step's shared draws, from the bits of ``eta``, four standard normals."""
    return jax.random.wrap_key_data(_hashes(_words(eta)), impl="threefry2x32")


def record_key(eta: jax.Array, record: Any) -> jax.Array:
    """The key of a record's own draws at a step: equal for equal records, and else another."""
    words = jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(record)])
    # hashes and an exclusive or, and no cipher: keys need to differ, and what draws from them is one
    return jax.random.wrap_key_data(_hashes(_words(eta)) ^ _hashes(words) ^ np.uint32(_RECORDS), impl="threefry2x32")


def _words(leaf: jax.Array) -> jax.Array:
    if leaf.dtype == jnp.dtype(bool):
        return jnp.ravel(leaf.astype(jnp.uint32))
    return jnp.ravel(jax.lax.bitcast_convert_type(leaf, jnp.uint32))


def _hashes(words: jax.Array) -> jax.Array:
    """Two sums of well mixed words, each with its place: one pass over a record, whatever its length."""
    places = np.arange(1, words.shape[0] + 1, dtype=np.uint32) * np.array(_SALTS, np.uint32)[:, None]
    mixed = words ^ jnp.asarray(places)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return jnp.sum(mixed ^ (mixed >> np.uint32(16)), axis=1, dtype=jnp.uint32)


class RecordDraws(Messenger):
    """Gives every random site its key: shared outside the record plate, the record's own inside."""

    def __init__(self, function: Callable, shared: jax.Array, own: jax.Array, plate: str | None):
        self._shared, self._own, self._plate = shared, own, plate
        self._num_keys = self._num_loops = 0
        super().__init__(function)

    def process_message(self, msg: dict) -> None:
        if msg["type"] not in ("sample", "prng_key", "plate", "control_flow"):
            return
        if msg["value"] is not None or msg["kwargs"].get("rng_key") is not None:
            return
        if msg["type"] == "prng_key":
            self._num_keys += 1
            msg["kwargs"]["rng_key"] = jax.random.fold_in(self._own, self._num_keys)
            return
        if msg["type"] == "control_flow":  # has no name, and each needs a key of its own
            self._num_loops += 1
            msg["kwargs"]["rng_key"] = jax.random.fold_in(jax.random.fold_in(self._shared, _LOOPS), self._num_loops)
            msg["kwargs"]["substitute_stack"].append(("substitute", self._within_a_loop))
            return
        local = self._plate is not None and execution.membership(msg, self._plate) is not None
        name = np.uint32(zlib.crc32(str(msg.get("name")).encode()))
        msg["kwargs"]["rng_key"] = jax.random.fold_in(self._own if local else self._shared, name)

    def _within_a_loop(self, site: dict) -> Any:
        """A record's own draw in the body of a scan, whose sites handlers outside are not shown one by one."""
        local = self._plate is not None and execution.membership(site, self._plate) is not None
        if site["type"] != "sample" or site["value"] is not None or not local:
            return None
        key = site["kwargs"]["rng_key"]  # of this site and turn, from the key that all records share
        for word in jax.random.key_data(self._own):
            key = jax.random.fold_in(key, word)
        return site["fn"](rng_key=key, sample_shape=site["kwargs"]["sample_shape"])


def run_guide(
    guide: Callable,
    batch: Any,
    parameters: Mapping[str, Any],
    keys: tuple[jax.Array, jax.Array],
    plate: str | None,
    values: Mapping[str, Any] | None = None,
) -> dict[str, dict]:
    """The guide's messages on a batch of records.

    Parameters
    ----------
    parameters
        ``{site: value}`` for ``param`` sites.
    keys
        The shared key and the records' own.
    plate
        The guide's record plate, None where it has none.
    values
        ``{site: value}`` for sites that are not to be drawn.
    """
    fill = _fill(parameters, values or {}, _length(batch), plate)
    return execution.execute(RecordDraws(guide, *keys, plate), batch, fill)


def run_model(
    function: Callable,
    batch: Any,
    parameters: Mapping[str, Any],
    keys: tuple[jax.Array, jax.Array],
    plate: str,
    guide_trace: Mapping[str, dict],
) -> dict[str, dict]:
    """The model's messages on a batch of records, its latent sites at the guide's values."""
    fill = _fill(parameters, drawn(guide_trace), _length(batch), plate)
    return execution.execute(RecordDraws(function, *keys, plate), batch, fill)


def drawn(trace: Mapping[str, dict]) -> dict[str, Any]:
    """``{site: value}`` of what a run drew."""
    return {
        name: message["value"]
        for name, message in trace.items()
        if message["type"] == "sample" and not message["is_observed"]
    }


def shape_of(message: dict) -> tuple[int, ...]:
    """The shape that the distribution of a site gives its value."""
    return message["fn"].shape(message["kwargs"].get("sample_shape", ()))


def stand_in(message: dict, value: Any) -> Any:
    """The guide's draw for a site of the model, or zeros where it has another shape than the site.

    Only where guide and model are first looked at: the model runs on, and discovery says what does not fit.
    """
    in_a_loop = message["infer"].get("_scan_current_index") is not None  # which takes its turn's part of the value
    if value is None or in_a_loop or same_shape(jnp.shape(value), shape_of(message)):
        return value
    return jnp.zeros(shape_of(message), jnp.result_type(value))


def same_shape(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Equal but for leading axes of length one, which change no density."""
    length = max(len(shape), len(other))
    return (1,) * (length - len(shape)) + shape == (1,) * (length - len(other)) + other


def _fill(parameters: Mapping[str, Any], values: Mapping[str, Any], num_records: int, plate: str | None) -> Callable:
    def fill(message: dict) -> Any:
        if message["type"] == "plate":  # another one may subsample what is no record, at a size that is the batch's
            return execution.whole_batch(message, num_records) if message["name"] == plate else None
        if message["type"] == "param":
            return parameters.get(message["name"])
        if message["type"] == "sample" and not message["is_observed"]:
            return values.get(message["name"])
        return None

    return fill


def _length(batch: Any) -> int:
    return jax.tree.leaves(batch)[0].shape[0]
