"""Models after the tutorials of NumPyro, Pyro, Stan, BUGS and PyMC, in words of our own, and what becomes of them."""

from tutorials import dependent, discrete, hierarchies, regressions
from tutorials.entry import Entry

ENTRIES = [*regressions.ENTRIES, *hierarchies.ENTRIES, *discrete.ENTRIES, *dependent.ENTRIES]

__all__ = ["ENTRIES", "Entry"]
