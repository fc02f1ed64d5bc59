"""A process that begins a study and is killed when it has kept one group: ``study_worker.py FOLDER CACHE``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(folder: str, cache: str) -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    from support.labels import believe_plans
    from support.small_models import study

    from dpvi.run.study_folder import StudyFolder

    believe_plans()
    keep = StudyFolder.keep

    def keep_one(self, number, results):
        if number > 0:
            os.kill(os.getpid(), 9)  # the second group was fitted, and nothing of it was written
        keep(self, number, results)

    StudyFolder.keep = keep_one
    study(folder)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(*sys.argv[1:])
