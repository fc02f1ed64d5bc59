"""Signatures of stored results: Ed25519, by the ``cryptography`` package.

A checksum shows that a file was changed by accident; whoever changes it on purpose computes a new one. A signature can
only be made by whoever holds the private key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_PURPOSE = b"dpvi result\n"  # so that no other thing signed with the same key passes for a result


def sign(digest: bytes, key: Any) -> bytes:
    """The signature of a result's digest under a private key: a PEM file, or an object with ``sign``."""
    return (key if hasattr(key, "sign") else _key(key, private=True)).sign(_PURPOSE + digest)


def is_valid(digest: bytes, signature: bytes, key: Any) -> bool:
    """Whether the holder of the private half of ``key``, a PEM file or an object with ``verify``, signed ``digest``."""
    public = key if hasattr(key, "verify") else _key(key, private=False)
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature, _PURPOSE + digest)
    except InvalidSignature:
        return False
    return True


def _key(path: str | Path, private: bool) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ImportError("Signatures need the package cryptography: pip install 'dpvi[sign]'.") from None

    content, kind = Path(path).read_bytes(), "private" if private else "public"
    try:
        if private:
            key = serialization.load_pem_private_key(content, password=None)
        else:
            key = serialization.load_pem_public_key(content)
    except TypeError:
        raise ValueError(
            f"{path} is encrypted. Read it with its password by cryptography's load_pem_private_key, and pass that key."
        ) from None
    except ValueError:
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise ValueError(f"{path} must be a PEM file with an Ed25519 {kind} key, and is not.")
    return key
