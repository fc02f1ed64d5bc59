"""``dpvi verify``: what a saved result promises, computed again from what it holds, and whether it is signed."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dpvi.cli.parser import add_command, add_json


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "verify",
        help="compute again what a saved result promises, and check its signature",
        description="Compute again what a saved result promises and print it. Exit status 0: it holds as printed; 2: "
        "the file was changed, claims too much, is not signed by the key, or its run is not private.",
        example="dpvi verify result.npz --key public.pem",
    )
    add_json(parser)
    parser.add_argument("file", metavar="FILE", help="a result, from Result.save")
    parser.add_argument("--key", metavar="PUBLIC", help="PEM file of the Ed25519 public key that must have signed it")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Load, and print what holds."""
    from dpvi.posterior import Result

    result = Result.load(options.file, verify_key=options.key)
    guarantee = result.guarantee
    if options.json:
        promised = {"epsilon": guarantee.epsilon, "delta": guarantee.delta} if guarantee.private else {}
        signed = {"signed": result.signature is not None, "signature_checked": options.key is not None}
        print(json.dumps({"private": guarantee.private, **promised, **signed, "guarantee": str(guarantee)}, indent=2))
    elif options.key:
        print(guarantee, f"Signed by the key in {options.key}.", sep="\n\n")
    else:
        known = "there is a signature, which --key would check" if result.signature else "there is no signature"
        print(guarantee, end="\n\n")
        print(f"The file is consistent in itself. Whoever forges one makes it so, too; {known}.")
    if not result.guarantee.private:
        raise ValueError(f"{options.file} is what it says, but it is NOT PRIVATE: do not publish it.")
    return 0
