"""The virtual environments of the peers: each has dependencies of its own, and d3p imports on no current jax."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Environment:
    """What to install by name and version, and a line that imports what a contestant will need."""

    name: str
    packages: tuple[str, ...]
    check: str

    def interpreter(self, folder: Path) -> str:
        """Path of the environment's interpreter in ``folder``, making the environment first if it does not work yet.

        Raises
        ------
        RuntimeError
            If the environment cannot be made, for example without a package index.
        """
        python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
        if not self._works(python):
            _run(sys.executable, "-m", "venv", "--clear", str(folder))
            _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.packages)
            if not self._works(python):
                raise RuntimeError(f"{self.name} was installed but does not import")
        return python

    def _works(self, python: str) -> bool:
        if not Path(python).exists():
            return False
        command = [python, "-c", self.check]
        return subprocess.run(command, capture_output=True, check=False, env=_variables()).returncode == 0


# jax-chacha-prng and fourier-accountant come as wheels; setuptools only because Python 3.12 no longer brings it.
D3P = Environment(
    "d3p",
    (
        "d3p==0.2.0",
        "jax==0.4.30",
        "jaxlib==0.4.30",
        "numpyro==0.15.3",
        "numpy<2",
        "scipy<1.14",
        "jax-chacha-prng==1.4.3",
        "setuptools<70",
    ),
    "import d3p.svi, d3p.minibatch, d3p.random",
)
OPACUS = Environment("opacus", ("opacus==1.6.0", "torch==2.13.0"), "import opacus, torch")
JAX_PRIVACY = Environment("jax-privacy", ("jax-privacy==2.0.0",), "import jax_privacy, optax")
PYMC = Environment("pymc", ("pymc==5.28.5",), "import pymc")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_variables())
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise RuntimeError(f"`{' '.join(command[1:4])}` failed: {lines[-1]}")


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
