"""Synthetic data sets as files: a folder with one file each, or one long table."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpvi.table import Count, SchemaError
from dpvi.table.writing import FORMATS, Decoded, write

if TYPE_CHECKING:
    from dpvi.synthetic.generate import SyntheticData


def save_each(data: SyntheticData, directory: Path, format: str) -> None:
    """One file per data set, ``schema.toml`` and ``about.json`` in a new directory that appears when it is complete."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(map(repr, FORMATS))}, got {format!r}.")
    if directory.exists():
        raise FileExistsError(f"{directory} exists already; choose a new directory, so that no data sets are mixed.")
    temporary = directory.with_name(directory.name + ".partial")
    digits = len(str(data.num_datasets - 1))
    try:
        temporary.mkdir(parents=True)
        for index in range(data.num_datasets):
            path = temporary / f"dataset_{index:0{digits}d}.{format}"
            write(iter([data.schema.decode_columns(data.encoded(index))]), path, _marker(data))
        data.schema.save(temporary / "schema.toml")
        (temporary / "about.json").write_text(_about(data), encoding="utf-8")
        os.replace(temporary, directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_long(data: SyntheticData, path: Path, dataset_column: str) -> None:
    """All data sets below each other in one file."""
    if dataset_column in data.schema.columns:
        raise SchemaError(f"The table has a column {dataset_column!r} already; name another one with dataset_column.")

    def numbered() -> Iterator[dict[str, Decoded]]:
        for index in range(data.num_datasets):
            columns = data.schema.decode_columns(data.encoded(index))
            number = np.full(data.num_records, index)
            yield {
                dataset_column: Decoded(Count(max(1, data.num_datasets)), number, np.zeros(len(number), bool)),
                **columns,
            }

    write(numbered(), path, _marker(data))


def _marker(data: SyntheticData) -> str:
    return data.schema.missing_markers[0] if data.schema.missing_markers else ""


def _about(data: SyntheticData) -> str:
    content = {
        "num_datasets": data.num_datasets,
        "num_records": data.num_records,
        "posterior": data.method,
        "guarantee": str(data.guarantee),
        "analysis": "Pool estimates over the data sets with T = (1 + 1/M) B - U; one data set alone understates error.",
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
