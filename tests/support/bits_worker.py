"""One fit on one device, on eight and in parts, compiled as for users: ``python bits_worker.py`` prints digests."""

from __future__ import annotations

import hashlib
import json
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from support.labels import believe_plans

import dpvi
from dpvi.declared.plan import GaussianRelease, Plan

WAYS = {
    "one device": {},
    "eight devices": {"devices": jax.devices()},
    "parts of 64": {"microbatch_size": 1},
    "all in one part": {"microbatch_size": 2048},
}


def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def digest(trace) -> str:
    """Of every array that is released, block sums included."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tuple(trace)):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


def main() -> None:
    believe_plans()
    rng = np.random.default_rng(0)
    digests = {}
    for sampling_rate, num_records in ((0.1, 2003), (1.0, 1007)):
        x = rng.normal(size=(num_records, 30)).astype(np.float32)
        y = (rng.uniform(size=num_records) < 0.3).astype(np.int32)
        release = GaussianRelease("gradients", sampling_rate, 60, 2.0, 1.0)
        plan = Plan(epsilon=1.0, delta=1e-6, releases=(release,), accountant="a label")
        digests[str(sampling_rate)] = {
            way: digest(dpvi.fit(model, (x, y), plan, seed=1, progress=False, **options).trace)
            for way, options in WAYS.items()
        }
    print(json.dumps(digests))


if __name__ == "__main__":
    main()
