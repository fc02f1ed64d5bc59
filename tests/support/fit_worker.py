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


def vanishing(released: Any) -> Any:
    """A driver that ends the last process, at once and without a word, half-way."""
    import jax

    from dpvi import Directive

    if released.step >= released.steps_left and jax.process_index() == jax.process_count() - 1:
        os.kill(os.getpid(), 9)
    return Directive(50)


def main(options: dict[str, Any]) -> None:
    start_jax(options)
    import jax
    import numpy as np
    from support.labels import believe_plans
    from support.small_models import location_model, many_records, private_plan

    import dpvi

    believe_plans()
    for name, case in options["cases"].items():
        output = f"{options['output']}-{name}"
        if "sets" in case:
            same = case.get("same_data", False)
            data = many_records() if same else many_records().reshape(case["sets"], -1, 2)
            plan = private_plan(case["num_steps"], case["sampling_rate"])
            options_of_all = {"seeds": range(case["sets"]), "progress": False, "devices": jax.devices()}
            results = dpvi.fit_many(location_model(), data, plan, same_data=same, **options_of_all)
            np.savez(f"{output}.npz", noisy_sums=np.stack([result.trace.noisy_sums for result in results]))
            continue
        records = many_records()[slice(*options["rows"])]
        if case.get("mapped"):
            np.save(f"{output}-records.npy", records)
            records = np.load(f"{output}-records.npy", mmap_mode="r")
        try:
            result = dpvi.fit(
                location_model(),
                records[:0] if case.get("empty") == jax.process_index() else records,
                private_plan(case["num_steps"], case["sampling_rate"]),
                devices=None if "process" in options else jax.devices(),
                driver=vanishing if case.get("vanish") else None,
                seed=jax.process_index() if case["seed"] == "own" else case["seed"],
            )
        except Exception as error:
            if case.get("vanish"):
                raise
            np.savez(f"{output}.npz", error=str(error))
            continue
        np.savez(f"{output}.npz", iterates=result.trace.iterates, noisy_sums=result.trace.noisy_sums)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(json.loads(sys.argv[1]))
