"""US Census 1990, one per cent sample: 2,458,285 persons, 68 attributes as small whole numbers.

C. Meek, B. Thiesson and D. Heckerman, UCI Machine Learning Repository, doi:10.24432/C5VP42, CC BY 4.0.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from studies.datasets.files import DataFile, locate
from studies.datasets.tables import Table

# No address: the checksum of the file served there is not known, and nothing unchecked is downloaded.
FILE = DataFile(
    "uscensus1990_sample",
    ("USCensus1990.data.txt", "USCensus1990.data.txt.gz", "uscensus1990_sample.csv", "uscensus1990_sample.csv.gz"),
    "the UCI repository, https://archive.ics.uci.edu/dataset/116/us+census+data+1990",
)

# The categories of DPVIm's regression with the level that has no weight of its own, its binary columns, and its filter.
CATEGORICAL_REFERENCES = {
    "dAncstry1": 1,
    "dAncstry2": 1,
    "iMarital": 0,
    "dAge": 2,
    "iFertil": 0,
    "iEnglish": 0,
    "iImmigr": 0,
    "iYearsch": 1,
}
BINARY = ("iSex", "iVietnam", "iKorean", "iMobillim")
RESPONSE = "poverty"

_MILITARY = "iMilitary"
_NO_MILITARY_BACKGROUND = (0, 4)  # below 16 years of age, and never in service
_POVERTY, _POVERTY_LEVEL = "dPoverty", 2


def us_census_1990(path: str | Path | None = None, *, columns: Sequence[str] | None = None) -> Table:
    """Raw columns, int32.

    Parameters
    ----------
    path
        The file ``USCensus1990.data.txt``, or a folder that holds it; gzipped or not. Without it see
        :func:`~studies.datasets.files.locate`.
    columns
        Names of the columns to read; all by default, which takes 680 MB for the full file.
    """
    found = locate(FILE, path)
    opener = gzip.open if found.suffix == ".gz" else open
    with opener(found, "rt", encoding="utf-8") as stream:
        assert isinstance(stream, io.TextIOBase)
        names = stream.readline().strip().split(",")
        wanted = list(names if columns is None else columns)
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ValueError(f"The file has no column {', '.join(map(repr, unknown))}; its columns are {names}.")
        values = np.loadtxt(stream, np.int32, delimiter=",", usecols=[names.index(name) for name in wanted], ndmin=2)
    return {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(wanted)}


def military_poverty(path: str | Path | None = None) -> Table:
    """DPVIm's table: persons with a military background, twelve predictors, and ``poverty`` as the response.

    Kept are rows whose ``iMilitary`` is neither 0 nor 4. The response is 1 where ``dPoverty`` is below 2, else 0.

    References
    ----------
    DPVIm, section 4.3.
    """
    predictors = (*CATEGORICAL_REFERENCES, *BINARY)
    table = us_census_1990(path, columns=(*predictors, _MILITARY, _POVERTY))
    keep = ~np.isin(table[_MILITARY], _NO_MILITARY_BACKGROUND)
    kept = {name: table[name][keep] for name in predictors}
    return kept | {RESPONSE: (table[_POVERTY][keep] < _POVERTY_LEVEL).astype(np.int32)}
