"""Logistic regression on simulated records, with an autoguide.

python -m examples.logistic_regression [--full] [--use fit] [--seed 0]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer.autoguide import AutoDiagonalNormal

import dpvi
from examples.common import arguments, train


def model(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0.0, 4.0).expand([x.shape[1]]).to_event(1))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 4.0))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Run the example; returns the accuracy on fresh records, of the fit and of the weights that made the records."""
    options = arguments(__doc__, given)
    num_records, width, num_steps = (10_000, 100, 10_000) if options.full else (2_000, 4, 1_000)
    random = np.random.default_rng(0)
    weights, intercept = random.normal(0, 1.5, width), 0.5

    def draw(count):
        x = random.normal(size=(count, width))
        return x, (random.uniform(size=count) < 1 / (1 + np.exp(-x @ weights - intercept))).astype(int)

    x, y = draw(num_records)
    plan = dpvi.plan(epsilon=2.0, delta=1e-5, sampling_rate=0.05, num_steps=num_steps, clip_norm=2.0)
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, num_steps, 0.02))
    posterior = train(options, model, AutoDiagonalNormal(model), optimizer, plan, x, y).posterior()
    draws = posterior.sample(500)
    new_x, new_y = draw(5_000)
    found = np.mean(draws["weights"], axis=0), np.mean(draws["intercept"])
    accuracy, best = (
        float(np.mean((new_x @ np.asarray(w) + float(b) > 0) == new_y)) for w, b in (found, (weights, intercept))
    )
    print(plan.guarantee)
    print(f"accuracy on fresh records: {accuracy:.3f}; of the weights that made them {best:.3f}")
    return {"accuracy": accuracy, "best": best}


if __name__ == "__main__":
    main()
