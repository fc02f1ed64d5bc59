"""Programs that are compiled once for all fits and processes of a command."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

import jax
from jax.experimental.compilation_cache import compilation_cache


@contextlib.contextmanager
def shared_programs() -> Iterator[None]:
    """Keep compiled programs in a folder of this command, unless the process has such a folder already.

    ``fit`` builds its program anew each time, and compiling takes as long as some thousand steps; groups and cells of
    one size compile to the same programs.
    """
    if jax.config.jax_compilation_cache_dir is not None:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        settings = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0.1}
        before = {name: getattr(jax.config, name) for name in settings}
        for name, value in settings.items():
            jax.config.update(name, value)
            os.environ[name.upper()] = str(value)  # for processes that start later
        compilation_cache.reset_cache()  # JAX looks for the folder once, when it first compiles
        try:
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
                del os.environ[name.upper()]
            compilation_cache.reset_cache()
