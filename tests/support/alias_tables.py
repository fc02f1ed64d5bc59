"""Alias tables by 64-bit arithmetic, beside the 32-bit words in which the sampler keeps them."""

from __future__ import annotations

import numpy as np

from dpvi.records.sampling import AliasTable


def columns_of(table: AliasTable) -> tuple[np.ndarray, np.ndarray]:
    """Threshold and alias of every column as the table's words hold them, uint64."""
    entry, low = (np.asarray(leaf).astype(np.uint64) for leaf in table[:2])
    bits = np.uint64(table.columns_log2)
    return ((entry >> bits) << np.uint64(32)) | low, entry & ((np.uint64(1) << bits) - np.uint64(1))


def walker(thresholds: np.ndarray, aliases: np.ndarray, words: np.ndarray) -> np.ndarray:
    """What 64-bit ``words`` draw: the top bits choose the column, the rest is compared with its threshold."""
    rest_bits = np.uint64(64 - (len(thresholds).bit_length() - 1))
    column, rest = words >> rest_bits, words & ((np.uint64(1) << rest_bits) - np.uint64(1))
    return np.where(rest < thresholds[column], column, aliases[column]).astype(np.int64)


def tie_of(table: AliasTable) -> tuple[int, int, int]:
    """A column, the word that leaves it open, and the refinement from which on the alias is taken."""
    thresholds, aliases = columns_of(table)
    low = thresholds.astype(np.uint32)
    column = int(np.flatnonzero((low > 0) & (aliases != np.arange(aliases.size)))[0])
    return column, (column << (32 - table.columns_log2)) + (int(thresholds[column]) >> 32), int(low[column])
