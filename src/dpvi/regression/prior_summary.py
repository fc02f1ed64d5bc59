"""What is thought of each parameter before the records are asked."""

from __future__ import annotations

from typing import NamedTuple


class PriorTable(NamedTuple):
    """One row per parameter: its name, its prior on the declared scale, and per unit of its column."""

    rows: tuple[tuple[str, str, str], ...]

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        heads = ("parameter", "prior on the declared scale", "prior in own units")
        widths = [max(len(row[place]) for row in (heads, *self.rows)) for place in range(3)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (heads, *self.rows)
        ]
        return "\n".join(
            [
                *lines,
                "The declared scale: a column runs over four units of its declared range, an indicator over one.",
            ]
        )
