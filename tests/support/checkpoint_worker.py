"""A run that somebody kills: it goes on from its checkpoint, is charged to a ledger, and saves its result.

``python checkpoint_worker.py FOLDER SEED`` with a number that cannot be guessed for SEED, or ``none``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist

import dpvi
from dpvi.run.program import chunk

STEPS = 3000


def model(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def main(folder: Path, seed: int | None) -> None:
    chunk._MAX_CHUNK = 32  # many places to stand still in a short run
    records = (np.random.default_rng(0).normal(size=400).astype(np.float32),)
    plan = dpvi.plan(1.0, 1e-5, 0.5, STEPS, 2.0, schedule=dpvi.Schedule(move_share=1))
    ledger = dpvi.Ledger(folder / "a.ledger", epsilon=1.6, delta=1e-4, share_for_sampling=0.1)
    path = folder / "a.checkpoint"
    print("begun", flush=True)
    result = dpvi.fit(
        model, records, plan, seed=seed, ledger=ledger, checkpoint=path, checkpoint_seconds=0.01, progress=False
    )
    result.save(folder / "result.npz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), None if sys.argv[2] == "none" else int(sys.argv[2]))
