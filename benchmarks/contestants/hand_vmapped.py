"""The yardstick of many fits: the hand-written private step under ``vmap``, for this one model.

The mechanism is that of :mod:`contestants.hand_written`: Poisson batch, per-record score, clip, sum, noise, aligned
gradient of the mean field, Adam, and a trace of iterates, query points and noisy sums on the host. The same shortcuts:
threefry in place of a cipher, float32 gaps, a draw beyond the physical batch is cut off, non-finite scores are not
looked for. ``spread`` lays the fits over all devices.
"""

from __future__ import annotations

import jax
import numpy as np
from harness.studies import Study, data_sets

from contestants.hand_written import make_fit

SCORE = "vmap_grad"


def run(study: Study, draws: str, spread: bool) -> None:
    """All fits and their traces on the host, compilation included."""
    x, y = data_sets(study)
    many = jax.vmap(make_fit(study.problem, study.num_steps, SCORE, draws))
    if spread:
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("fits",))
        fits = jax.sharding.PartitionSpec("fits")
        many = jax.shard_map(many, mesh=mesh, in_specs=fits, out_specs=fits, check_vma=False)
    (parameters, _), trace = jax.jit(many)(jax.random.split(jax.random.key(0), study.num_sets), x, y)
    jax.tree.map(np.asarray, (parameters, trace))
