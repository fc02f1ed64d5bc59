"""Records that stay on disk until they are drawn."""

from dpvi.records.sources.base import RowSource, SourceError
from dpvi.records.sources.npy import open_npy
from dpvi.records.sources.tables import open_arrow, open_parquet

__all__ = ["RowSource", "SourceError", "open_arrow", "open_npy", "open_parquet"]
