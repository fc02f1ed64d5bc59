"""Abalone: 4,177 shells, their sizes and weights, and rings to be told from them.

W. Nash and others (1994), UCI Machine Learning Repository, doi:10.24432/C55C7W, CC BY 4.0.
"""

from __future__ import annotations

from pathlib import Path

from studies.datasets.files import DataFile, locate, read_bytes
from studies.datasets.tables import Table, parse_table

FILE = DataFile(
    "abalone",
    ("abalone.data", "abalone.data.gz", "abalone.csv", "abalone.csv.gz"),
    "the UCI repository, https://archive.ics.uci.edu/dataset/1/abalone",
    "https://archive.ics.uci.edu/ml/machine-learning-databases/abalone/abalone.data",
    "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
)

_NAMES = (
    "Sex",
    "Length",
    "Diameter",
    "Height",
    "Whole_weight",
    "Shucked_weight",
    "Viscera_weight",
    "Shell_weight",
    "Rings",
)


def abalone(path: str | Path | None = None, *, download: bool = False) -> Table:
    """Nine raw columns: ``Sex`` ("M", "F" or "I" for infant), seven measurements and ``Rings``.

    Parameters
    ----------
    path
        The file, or a folder that holds it. Without it see :func:`~studies.datasets.files.locate`.
    download
        Whether to fetch the file from the UCI repository into the cache where it is not found.
    """
    return parse_table(read_bytes(locate(FILE, path, download)).decode("utf-8"), _NAMES, set(_NAMES[1:]))
