"""A fit over a mapped file in a process of its own: ``python memory_worker.py FILE ROWS``; prints its peak memory."""

from __future__ import annotations

import re
import sys
from pathlib import Path

COLUMNS = 100


def main(path: str, num_records: int) -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    import numpy as np
    from support.labels import believe_plans
    from support.small_models import location_model, private_plan

    import dpvi

    believe_plans()
    records = np.memmap(path, np.float32, "r", shape=(num_records, COLUMNS))
    plan = private_plan(200, sampling_rate=300 / num_records)
    result = dpvi.fit(location_model(COLUMNS), records, plan, progress=False)
    assert np.isfinite(result.trace.final).all()
    print(peak_gigabytes())


def peak_gigabytes() -> float:
    """Of this program alone: ``ru_maxrss`` would count what the process held that started it, too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) / 2**20


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1], int(sys.argv[2]))
