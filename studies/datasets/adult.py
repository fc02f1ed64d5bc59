"""Adult: 48,842 persons of the 1994 Current Population Survey, and whether they earned more than 50,000 dollars.

B. Becker and R. Kohavi (1996), UCI Machine Learning Repository, doi:10.24432/C5XW20, CC BY 4.0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.datasets.files import DataFile, locate, read_bytes
from studies.datasets.tables import Split, Table, complete_rows, parse_table

_ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_ORIGIN = "the UCI repository, https://archive.ics.uci.edu/dataset/2/adult"

FILES = {
    "train": DataFile(
        "adult",
        ("adult.data", "adult.data.gz", "adult_train.csv", "adult_train.csv.gz"),
        _ORIGIN,
        _ADDRESS + "adult.data",
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    ),
    "test": DataFile(
        "adult",
        ("adult.test", "adult.test.gz", "adult_test.csv", "adult_test.csv.gz"),
        _ORIGIN,
        _ADDRESS + "adult.test",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    ),
}

LABEL = "income"
POSITIVE = ">50K"

_NAMES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    LABEL,
)
_NUMERIC = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}


def adult(path: str | Path | None = None, *, download: bool = False, drop_missing: bool = True) -> Split:
    """The official training and test parts as raw columns.

    Parameters
    ----------
    path
        A folder with ``adult.data`` and ``adult.test``, or with the same rows under a header as ``adult_train.csv`` and
        ``adult_test.csv``; gzipped or not. Without it see :func:`~studies.datasets.files.locate`.
    download
        Whether to fetch what is not found from the UCI repository into the cache.
    drop_missing
        Leave out rows with a missing category, "?", as all published experiments do: 30,162 and 15,060 remain of 32,561
        and 16,281.

    Returns
    -------
    A :class:`~studies.datasets.tables.Split` of tables with 15 columns, ``income`` among them.
    """
    return Split(*(_read(locate(FILES[part], path, download), drop_missing) for part in ("train", "test")))


def adult_labels(table: Table) -> np.ndarray:
    """1 where the income is above 50,000 dollars, else 0, int32."""
    return (table[LABEL] == POSITIVE).astype(np.int32)


def _read(path: Path, drop_missing: bool) -> Table:
    table = parse_table(read_bytes(path).decode("utf-8"), _NAMES, _NUMERIC)
    table[LABEL] = np.char.rstrip(table[LABEL], ".")  # the test file ends its labels with a full stop
    return complete_rows(table) if drop_missing else table
