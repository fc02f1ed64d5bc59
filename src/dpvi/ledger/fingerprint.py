"""A fingerprint by which a custodian recognises the records of a ledger, and nobody else learns anything."""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np

_SHORTEST_KEY = 16


def fingerprint(key: bytes, *arrays: Any) -> str:
    """HMAC-SHA256 of the arrays that hold the records, under a key of the custodian.

    A plain hash would not do: whoever guesses the records could check the guess.

    Parameters
    ----------
    key
        At least 16 bytes drawn at random, such as ``secrets.token_bytes(32)``. Keep it apart from the ledger.
    arrays
        The records, always in the same order.

    Guarantees
    ----------
    Without the key it cannot be told from a random number.

    Examples
    --------
    >>> key = bytes(range(32))
    >>> fingerprint(key, [1.0, 2.0]) == fingerprint(key, [1.0, 2.0]), fingerprint(key, [1.0, 2.0])[:8]
    (True, '7e537dfa')
    """
    if not isinstance(key, bytes) or len(key) < _SHORTEST_KEY:
        raise ValueError(
            f"The key of a fingerprint must be at least {_SHORTEST_KEY} random bytes, such as secrets.token_bytes(32): "
            "with one that can be guessed the fingerprint tells whether a guess about the records is right."
        )
    digest = hmac.new(key, b"dpvi ledger", "sha256")
    for each in arrays:
        array = np.ascontiguousarray(each)
        if array.dtype.hasobject:
            raise ValueError("A fingerprint is of arrays of numbers or of text of fixed length, not of Python objects.")
        digest.update(f"array {array.shape} {array.dtype.str}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
