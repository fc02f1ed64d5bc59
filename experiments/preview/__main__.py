"""``python -m experiments.preview``: previewed widths beside those of fits, on Adult, Abalone and RAND HIE."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.preview.cases import CASES
from experiments.preview.report import table
from experiments.preview.study import EPSILONS, run_study

HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> Path:
    """Run the command; cells that the file has already are kept."""
    parser = argparse.ArgumentParser(prog="python -m experiments.preview", description=__doc__)
    parser.add_argument("--tables", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--repeats", type=int, default=2, help="runs per cell, of fits and of previews")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "results.json"
    run_study(path, tuple(given.tables), tuple(given.epsilons), given.repeats)
    text = table(path)
    (given.output / "table.md").write_text(text)
    print(text)
    return path


if __name__ == "__main__":
    main()
