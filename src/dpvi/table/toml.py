"""A schema as TOML: read by the standard library, written by the few lines a schema needs."""

from __future__ import annotations

import dataclasses
import datetime
import json
import tomllib
from collections.abc import Mapping
from typing import Any

from dpvi.table.base import Column, SchemaError
from dpvi.table.levels import Boolean, Categorical, Ordinal
from dpvi.table.quantities import Count, Date, Numeric

FORMAT_VERSION = 1
KINDS: Mapping[str, type[Column]] = {kind.kind: kind for kind in (Numeric, Count, Date, Categorical, Ordinal, Boolean)}
_ENTRIES = {"format_version", "missing_markers", "columns", "confirmed_public"}


def to_text(content: Mapping[str, Any], comments: Mapping[tuple[str, str], str] | None = None) -> str:
    """TOML for the entries of a schema.

    Parameters
    ----------
    content
        From :meth:`Schema.to_dict`.
    comments
        ``{(column, entry): text}``, written behind that entry.
    """
    lines = [f"{key} = {value_text(value)}" for key, value in content.items() if key != "columns"]
    return "\n".join(lines) + "\n" + columns_text(content["columns"], "columns", comments)


def columns_text(columns: Mapping[str, Any], table: str, comments: Mapping[tuple[str, str], str] | None = None) -> str:
    """TOML for the entries of columns, each in a table ``[table.<name>]``."""
    notes, lines = comments or {}, []
    for name, entries in columns.items():
        lines += ["", f"[{table}.{_text(name)}]"]
        for key, value in entries.items():
            note = notes.get((name, key))
            lines.append(f"{key} = {value_text(value)}{f'  # {note}' if note else ''}")
    return "\n".join(lines) + "\n"


def from_text(text: str) -> dict[str, Any]:
    """The entries of a schema from TOML, refused where they are those of an unconfirmed draft or of something else."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(f"This is not a schema: it is not TOML ({error}).") from None
    unknown = sorted(content.keys() - _ENTRIES)
    if unknown or not isinstance(content.get("columns"), dict):
        raise SchemaError(
            "A schema has entries format_version, missing_markers and tables [columns.<name>], "
            f"got {', '.join(map(repr, unknown)) or 'no columns'}."
        )
    if content.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise SchemaError(
            f"This schema has format {content['format_version']!r}; this version of dpvi reads format {FORMAT_VERSION}."
        )
    if content.get("confirmed_public", True) is not True:
        raise SchemaError(
            "This schema is a draft whose bounds and levels were read from the records: replace each by public "
            "knowledge or confirm that it may be published, then set confirmed_public = true."
        )
    return content


def columns_from_dict(content: Mapping[str, Any]) -> dict[str, Column]:
    """The declarations of ``content["columns"]``."""
    columns = {}
    for name, entries in content["columns"].items():
        kind = KINDS.get(str(entries.get("kind"))) if isinstance(entries, Mapping) else None
        if kind is None:
            raise SchemaError(f"Column {name!r} needs kind = one of {', '.join(map(repr, KINDS))}.")
        allowed = {entry.name for entry in dataclasses.fields(kind)}
        unknown = sorted(entries.keys() - allowed - {"kind"})
        if unknown:
            raise SchemaError(
                f"Column {name!r} is {kind.kind} and takes {', '.join(sorted(allowed))}, "
                f"got {', '.join(map(repr, unknown))}."
            )
        try:
            columns[name] = kind(**{key: value for key, value in entries.items() if key != "kind"})
        except (SchemaError, TypeError) as error:
            raise SchemaError(f"Column {name!r}: {_reason(error, kind)}") from None
    return columns


def _reason(error: Exception, kind: type[Column]) -> str:
    if isinstance(error, SchemaError):
        return str(error)
    needed = [entry.name for entry in dataclasses.fields(kind) if entry.default is dataclasses.MISSING]
    return f"{kind.kind} columns need {', '.join(needed)}."


def value_text(value: Any) -> str:
    """A text, number, truth value, day or list of such as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return repr(value)  # int and finite float: Python writes them as TOML does


def _text(text: str) -> str:
    # TOML's basic strings are JSON's, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
