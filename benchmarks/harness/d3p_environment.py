"""The virtual environment d3p 0.2.0 needs: it does not import on a current jax, nor with numpy 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# jax-chacha-prng and fourier-accountant come as wheels; setuptools only because Python 3.12 no longer brings it.
PINS = (
    "d3p==0.2.0",
    "jax==0.4.30",
    "jaxlib==0.4.30",
    "numpyro==0.15.3",
    "numpy<2",
    "scipy<1.14",
    "jax-chacha-prng==1.4.3",
    "setuptools<70",
)


def interpreter(folder: Path) -> str:
    """Path of the environment's interpreter, making the environment first if it does not work yet.

    Raises
    ------
    RuntimeError
        If the environment cannot be made, for example without a package index.
    """
    binary = folder / ("Scripts" if os.name == "nt" else "bin")
    python = str(binary / "python")
    if not _works(python):
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINS)
        if not _works(python):
            raise RuntimeError("d3p was installed but does not import")
    return python


def _works(python: str) -> bool:
    if not Path(python).exists():
        return False
    command = [python, "-c", "import d3p.svi, d3p.minibatch, d3p.random"]
    return subprocess.run(command, capture_output=True, check=False, env=_environment()).returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise RuntimeError(f"`{' '.join(command[1:4])}` failed: {lines[-1]}")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
