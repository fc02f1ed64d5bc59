"""A ledger: what all runs on one protected data set may spend, and have spent. No jax."""

from dpvi.ledger.fingerprint import fingerprint
from dpvi.ledger.journal import LedgerError
from dpvi.ledger.ledger import Ledger

__all__ = ["Ledger", "LedgerError", "fingerprint"]
