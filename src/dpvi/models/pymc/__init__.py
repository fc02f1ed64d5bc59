"""PyMC models as a prior and one term per record; PyMC itself is imported when :func:`from_pymc` is called."""

from dpvi.models.pymc.model import PyMCModel, from_pymc

__all__ = ["PyMCModel", "from_pymc"]
