"""``python -m experiments.vae``: train and time the auto-encoder, and write numbers, tables and figure."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from experiments.common import sized_command as shared
from experiments.vae.contestants import make_plan
from experiments.vae.report import figure, table
from experiments.vae.settings import DATASETS, PARTS, PRECISIONS, SIZES, Settings, num_parameters
from experiments.vae.study import chunk_megabytes, run_readings, run_timings, run_training

_FOLDER = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m experiments.vae", description=__doc__)
    made.add_argument("--size", choices=("full", "small"), default="full", help="full: as published; small: for a CPU")
    made.add_argument("--quick", action="store_true", help="a tiny network on few images, to see that it runs")
    made.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    made.add_argument("--datasets", nargs="+", choices=tuple(DATASETS), default=list(DATASETS), metavar="DATA")
    made.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["default"], metavar="PRECISION")
    made.add_argument("--epochs", type=float, default=None, help="in place of the size's own")
    made.add_argument("--repeats", type=int, default=None, help="timed trainings, after one that compiles")
    made.add_argument("--chunk-megabytes", type=int, default=None, help="memory for the draws and rows of a chunk")
    made.add_argument("--output", type=Path, default=None, help="folder of the results (default: beside this file)")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; rows of earlier calls with the same settings and folder are kept and gone on with."""
    given = parser().parse_args(arguments)
    size = "quick" if given.quick else given.size
    changes = {"num_epochs": given.epochs, "repeats": given.repeats}
    settings = replace(SIZES[size], **{name: value for name, value in changes.items() if value is not None})
    output = given.output or _FOLDER / ("results" if size == "full" else f"results_{size}")
    content = open_results(output / "results.json", settings, size, given.chunk_megabytes)

    def keep(content: dict[str, Any]) -> None:
        shared.write_json(content, output)
        (output / "table.md").write_text(table(content), encoding="utf-8")

    with chunk_megabytes(given.chunk_megabytes):
        if "training" in given.parts:
            run_training(settings, given.datasets, given.precisions, content, keep)
        if "readings" in given.parts:
            run_readings(settings, given.datasets, content, keep)
        run_timings(settings, given.parts, content, keep)
    print(table(content))
    if content["batches"]:
        try:
            figure(content, output / "batch_size.png")
        except ImportError as error:  # numbers are written; a machine for computing need not plot
            print(error)


def open_results(path: Path, settings: Settings, size: str, megabytes: int | None) -> dict[str, Any]:
    """The content of an earlier call, or a new one; refused where settings or machine differ."""
    described = {
        "settings": settings.to_dict(),
        "chunk_megabytes": megabytes,
        "machine": f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}",
    }
    if path.exists():
        content = json.loads(path.read_text(encoding="utf-8"))
        if any(content[name] != value for name, value in described.items()):
            raise ValueError(f"{path} holds a study with other settings; choose another --output or remove it.")
        return content
    command = f"python -m experiments.vae {'--quick' if size == 'quick' else f'--size {size}'}"
    for name, value, usual in (
        ("epochs", settings.num_epochs, SIZES[size].num_epochs),
        ("repeats", settings.repeats, SIZES[size].repeats),
        ("chunk-megabytes", megabytes, None),
    ):
        command += f" --{name} {value:g}" if value is not None and value != usual else ""
    return {
        "command": command,
        "size": size,
        **described,
        "jax": jax.__version__,
        "compilation_cache": bool(jax.config.jax_compilation_cache_dir),
        "epsilon": make_plan(settings).epsilon,
        "num_parameters": num_parameters(settings),
        "training": [],
        "readings": [],
        "samplers": {},
        "memory": {},
        "batches": [],
    }


if __name__ == "__main__":
    main()
