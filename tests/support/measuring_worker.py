"""A measuring fit in one of two processes: ``python measuring_worker.py PORT PROCESS CACHE OUTPUT [FAULT]``."""

from __future__ import annotations

import sys
from pathlib import Path


def run(port: str, process: str, cache: str, output: str, fault: str = "") -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    times = {"initialization_timeout": 60, "heartbeat_timeout_seconds": 10}
    jax.distributed.initialize(f"localhost:{port}", 2, int(process), **times)

    import numpy as np
    from support.labels import believe_plans
    from support.measuring import METRIC, QUERY, asking, measuring_plan, regression, regression_data

    import dpvi
    from dpvi.release.requests import Scores
    from dpvi.run import fitting

    def rounding_differently(scores, histograms):
        """The same questions, but for the last digits of what this process would ask."""
        if fault == "bad request":
            yield Scores(QUERY[:1], METRIC, 1)
        strategy = asking(scores, histograms)
        released = None
        while True:
            try:
                request = strategy.send(released)
            except StopIteration:
                return
            released = yield request._replace(metric=request.metric * (1 + 1e-12 * int(process)))

    believe_plans()
    fitting.make_strategy = rounding_differently
    x, y = regression_data(301)
    own = slice(0, 200) if process == "0" else slice(200, 301)
    result = dpvi.fit(regression, (x[own], y[own]), measuring_plan(), seed=5, progress=False)
    assert result.trace.measurements is not None
    assert result.trace.histograms is not None
    np.savez(output, histograms=result.trace.histograms, **result.trace.measurements._asdict())


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]
    run(*sys.argv[1:])
