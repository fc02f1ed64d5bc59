"""Fits in a process of its own: ``python fit_worker.py OPTIONS_AS_JSON``; writes traces to the files named there.

XLA counts host devices, and JAX its processes, when they start, so neither can be tried inside the test session.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def start_jax(options: dict[str, Any]) -> None:
    """Strict JAX in 64-bit mode with the devices, or among the processes, that were asked for."""
    if "cores" in options and hasattr(os, "sched_setaffinity"):  # before XLA starts its threads, which inherit it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["cores"]])
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.get('devices', 1)}"
    import jax

    settings = {
        "jax_platforms": "cpu",
        "jax_numpy_dtype_promotion": "strict",
        "jax_enable_x64": True,
        "jax_compilation_cache_dir": options["cache"],
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
    if "process" in options:
        address = f"localhost:{options['port']}"
        times = {"initialization_timeout": 60, "heartbeat_timeout_seconds": 10}
        jax.distributed.initialize(address, options["num_processes"], options["process"], **times)


def last_process() -> bool:
    import jax

    return jax.process_index() == jax.process_count() - 1


def misbehaving(what: str, path: str) -> Any:
    """A driver that in the last process, half-way, ends it without a word, touches its file, or raises."""
    from dpvi import Directive

    def driver(released: Any) -> Any:
        if released.step >= released.steps_left and last_process():
            if what == "vanish":
                os.kill(os.getpid(), 9)
            if what == "raise":
                raise RuntimeError("a driver of its own")
            os.utime(path, (1, 1))
        return Directive(50)

    return driver


class Unreadable:
    """A mapped source whose rows the last process cannot read any more after ``num_reads``."""

    def __init__(self, source: Any, num_reads: int) -> None:
        self._left = num_reads
        self.shapes, self.num_records = source.shapes, source.num_records
        self.check_unchanged, self.extents, self._take = source.check_unchanged, source.extents, source.take

    def take(self, rows: Any) -> Any:
        from dpvi.records.sources import SourceError

        self._left -= 1
        if self._left < 0 and last_process():
            raise SourceError("records.bin has rows that cannot be read.")
        return self._take(rows)


def records_of(options: dict[str, Any], case: dict[str, Any], path: str) -> Any:
    """This process's records as the case has them: in memory, mapped from a file, or from one that cannot be read."""
    import jax
    import numpy as np
    from support.small_models import many_records

    from dpvi.records.sources.mapped import MappedSource

    here, records = jax.process_index(), many_records(options.get("num_records", 403))
    rows = slice(*case.get("rows", options["rows"]))
    if case.get("empty") == here:
        return records[:0]
    if here not in case.get("mapped", []):
        return records[rows]
    np.save(path, records[rows])
    mapped = np.load(path, mmap_mode="r")
    if case.get("counted"):
        mapped = (mapped[:, :1], mapped[:, 1])
    return Unreadable(MappedSource(mapped), case["num_reads"]) if "num_reads" in case else mapped


def model_and_plan(case: dict[str, Any]) -> tuple[Any, Any]:
    """Where covariates are to be ``counted``, a regression and a plan that pays for it."""
    from support.numpyro_models import linear
    from support.small_models import histogram_plan, location_model, private_plan

    from dpvi.declared.columns import Numeric
    from dpvi.declared.schedule import Schedule

    if case.get("counted"):
        measures = Schedule(move_share=0.0, num_blocks=2)
        return linear, histogram_plan((Numeric(-5, 5),), num_steps=case["num_steps"], schedule=measures)
    return location_model(), private_plan(case["num_steps"], case["sampling_rate"])


def fit_sets(case: dict[str, Any]) -> dict[str, Any]:
    import jax
    import numpy as np
    from support.small_models import many_records

    import dpvi

    model, plan = model_and_plan(case)
    same = case.get("same_data", False)
    data = many_records() if same else many_records().reshape(case["sets"], -1, 2)
    spread = {"seeds": range(case["sets"]), "progress": False, "devices": jax.devices()}
    results = dpvi.fit_many(model, data, plan, same_data=same, **spread)
    return {"noisy_sums": np.stack([result.trace.noisy_sums for result in results])}


def fit_one(options: dict[str, Any], case: dict[str, Any], path: str) -> dict[str, Any]:
    import jax

    import dpvi
    from dpvi.run import preparation

    preparation._MAX_PASS_ELEMENTS = case.get("pass_elements", 2**25)
    settings = {"seed": case["seed"], "devices": None if "process" in options else jax.devices()}
    if "driver" in case:
        settings["driver"] = misbehaving(case["driver"], path)
    if "own" in case:  # every process has its own value of these settings
        settings.update({name: values[jax.process_index()] for name, values in case["own"].items()})
    if isinstance(settings["devices"], int):
        settings["devices"] = jax.devices()[: settings["devices"]]
    model, plan = model_and_plan(case)
    result = dpvi.fit(model, records_of(options, case, path), plan, **settings)
    return {"iterates": result.trace.iterates, "noisy_sums": result.trace.noisy_sums}


def main(options: dict[str, Any]) -> None:
    start_jax(options)
    import numpy as np
    from support.labels import believe_plans

    believe_plans()
    for name, case in options["cases"].items():
        output = f"{options['output']}-{name}"
        try:
            written = fit_sets(case) if "sets" in case else fit_one(options, case, f"{output}-records.npy")
        except Exception as error:
            if case.get("driver") == "vanish":
                raise
            written = {"error": str(error)}
        np.savez(f"{output}.npz", **written)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(json.loads(sys.argv[1]))
