"""The settings of a run as one TOML file: ``dpvi fit`` writes it beside every result, and reads it to repeat the run.

It holds what the command line said and the schema, and nothing that was read from records.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpvi.table import toml
from dpvi.table.base import SchemaError

if TYPE_CHECKING:
    from dpvi.table import Schema

FORMAT_VERSION = 1
_HEAD = "# This file repeats a run: dpvi fit {name}. It holds nothing that was read from the records.\n"
_KINDS = {"int": int, "float": (int, float), "str": str}


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides a run, but for the records and the noise."""

    data: str
    output: str
    epsilon: float
    delta: float
    schema: dict[str, Any] = field(default_factory=dict)
    formula: str = ""
    family: str = ""
    trials: str = ""
    model: str = ""  # "table", or FILE.py:NAME
    response: str = ""
    components: int = 0
    sampling_rate: float = 0.0
    num_steps: int = 0
    clip_norm: float = 0.0
    num_records: int = 0  # only where it is public
    unit: str = ""
    rows_per_unit: int = 1
    ledger: str = ""
    seed: int = -1  # only one that can be guessed is written down

    @property
    def declared(self) -> Schema:
        """The schema."""
        from dpvi.table import Schema

        return Schema.from_dict(self.schema)

    def to_text(self, name: str) -> str:
        """As TOML, defaults left out."""
        defaults = {each.name: each.default for each in fields(self)}
        plain = {key: value for key, value in asdict(self).items() if key != "schema" and value != defaults[key]}
        lines = [_HEAD.format(name=name), f"format_version = {FORMAT_VERSION}"]
        lines += [f"{key} = {toml.value_text(value)}" for key, value in plain.items()]
        entries = {key: value for key, value in self.schema.items() if key != "columns"}
        lines += ["", "[schema]", *(f"{key} = {toml.value_text(value)}" for key, value in entries.items())]
        return "\n".join(lines) + "\n" + toml.columns_text(self.schema["columns"], "schema.columns")


def read_run_file(path: Path) -> RunSettings:
    """Read settings back, refused with one sentence where they are not such."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not the TOML of a run ({error}); dpvi fit writes one beside every result."
        ) from None
    version = content.pop("format_version", None)
    if "columns" in content:
        raise ValueError(f"{path} is a schema and not the settings of a run; give it with --schema.")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} holds settings of format {version!r}; this version of dpvi reads format {FORMAT_VERSION}."
        )
    schema = content.pop("schema", None)
    if not isinstance(schema, dict) or not isinstance(schema.get("columns"), dict):
        raise SchemaError(f"{path} lacks the schema of its table, [schema.columns.<name>]; copy it from schema.toml.")
    kinds = {each.name: str(each.type) for each in fields(RunSettings) if each.name != "schema"}
    for name, value in content.items():
        if name not in kinds:
            raise ValueError(f"{path} has an entry {name!r}, which no run has; it may have {', '.join(kinds)}.")
        if isinstance(value, bool) or not isinstance(value, _KINDS[kinds[name]]):
            raise ValueError(f"{path} has {name} = {value!r}, which must be of type {kinds[name]}.")
    lacking = [name for name in ("data", "output", "epsilon", "delta") if name not in content]
    if lacking:
        raise ValueError(f"{path} lacks {', '.join(lacking)}; dpvi fit writes whole files beside every result.")
    return RunSettings(**content, schema=schema)


def beside(result: str | Path) -> Path:
    """Where the settings of a result are kept: ``adult.npz`` has ``adult.run.toml``."""
    return Path(result).with_suffix(".run.toml")
