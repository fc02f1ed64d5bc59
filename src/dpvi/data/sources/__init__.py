"""Records that stay on disk until they are drawn."""

from dpvi.data.sources.base import RowSource, SourceError
from dpvi.data.sources.npy import open_npy
from dpvi.data.sources.tables import open_arrow, open_parquet

__all__ = ["RowSource", "SourceError", "open_arrow", "open_npy", "open_parquet"]
