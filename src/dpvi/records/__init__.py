"""Records on their way in: arrays, declared tables, files on disk, who holds which rows, Poisson sampling."""

from dpvi import table as schema

__all__ = ["schema"]
