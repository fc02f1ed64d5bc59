"""RAND Health Insurance Experiment: 5,912 persons under insurance plans drawn by lot, and the health care they used.

The extract of P. Deb and P. K. Trivedi (2002), Journal of Health Economics 21:601-625, as used by A. C. Cameron and
P. K. Trivedi (2005), Microeconometrics, chapters 16 and 20; collected by the RAND Corporation from 1974 to 1982, public
domain.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.datasets.files import DataFile, locate, read_bytes
from studies.datasets.tables import Table, parse_table, select_rows

# No address: the checksum of the file served there is not known, and nothing unchecked is downloaded.
FILE = DataFile(
    "rand_hie",
    ("rand_hie.csv", "rand_hie.csv.gz", "randdata.csv", "randdata.csv.gz"),
    "the data of Cameron and Trivedi's Microeconometrics, http://cameron.econ.ucdavis.edu/mmabook/mmadata.html",
)

PERSON, YEAR = "zper", "year"

_NAMES = (
    *("plan", "site", "coins", "tookphys", YEAR, PERSON, "black", "income", "xage", "female", "educdec", "time"),
    *("outpdol", "drugdol", "suppdol", "mentdol", "inpdol", "meddol", "totadm", "inpmis", "mentvis", "mdvis"),
    *("notmdvis", "num", "mhi", "disea", "physlm", "ghindx", "mdeoff", "pioff", "child", "fchild", "lfam", "lpi"),
    *("idp", "logc", "fmde", "hlthg", "hlthf", "hlthp", "xghindx", "linc", "lnum", "lnmeddol", "binexp"),
)


def rand_hie(path: str | Path | None = None, *, all_years: bool = False) -> Table:
    """45 raw columns, all numbers, NaN where a cell is empty.

    A row of the file is a person in a year. By default the first year of each person is kept, so that one record is one
    person: a guarantee for records is then one for persons, which it is not with ``all_years``.

    Parameters
    ----------
    path
        The file ``rand_hie.csv``, or a folder that holds it; gzipped or not. Without it see
        :func:`~studies.datasets.files.locate`.
    all_years
        Keep all 20,190 rows, three or more for most persons, instead of 5,912.
    """
    cells = parse_table(read_bytes(locate(FILE, path)).decode("utf-8"), _NAMES, set())
    table = {name: _numbers(name, column) for name, column in cells.items()}
    return table if all_years else select_rows(table, _first_years(table))


def _first_years(table: Table) -> np.ndarray:
    """The row of each person's first year, in the order of the file."""
    order = np.lexsort((table[YEAR], table[PERSON]))
    _, first = np.unique(table[PERSON][order], return_index=True)
    return np.sort(order[first])


def _numbers(name: str, column: np.ndarray) -> np.ndarray:
    try:
        return np.where(column == "", "nan", column).astype(np.float64)
    except ValueError:
        raise ValueError(f"Column {name!r} must hold numbers, and some of its cells do not.") from None
