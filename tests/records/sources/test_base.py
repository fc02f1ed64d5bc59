"""What all sources share: a walk over all rows."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dpvi.records.sources import base
from dpvi.records.sources.base import blocks

ROWS = {"x": np.arange(60.0).reshape(20, 3), "y": np.arange(20, dtype=np.int32)}  # 28 bytes a row


class InMemory:
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), ROWS)
    num_records = 20

    def take(self, rows):
        return jax.tree.map(lambda leaf: leaf[rows], ROWS)

    def check_unchanged(self):
        pass


@pytest.mark.parametrize(
    ("most_rows", "most_bytes", "length"), [(7, 10**6, 7), (100, 10**6, 20), (100, 28 * 6, 6), (100, 1, 1)]
)
def test_blocks_hold_every_row_once_and_few_bytes(monkeypatch, most_rows, most_bytes, length):
    monkeypatch.setattr(base, "BLOCK_ROWS", most_rows)
    monkeypatch.setattr(base, "BLOCK_BYTES", most_bytes)
    found = list(blocks(InMemory()))
    assert len(found[0]["y"]) == length
    for name, rows in ROWS.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in found]), rows)
