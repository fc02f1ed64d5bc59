"""PyMC and PyTensor, imported where they are needed and not before."""

from __future__ import annotations

import importlib
from typing import Any


def imported(name: str) -> Any:
    """A module of PyMC or PyTensor, which are optional."""
    return importlib.import_module(name)


def traversal() -> Any:
    """The module of ``graph_inputs`` and ``ancestors``, which moved in PyTensor 2.35."""
    try:
        return imported("pytensor.graph.traversal")
    except ImportError:
        return imported("pytensor.graph.basic")
