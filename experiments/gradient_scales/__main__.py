"""``python -m experiments.gradient_scales``: how large the two parts of a record's gradient are."""

from __future__ import annotations

import time
from collections.abc import Sequence

from experiments.adult_logistic.problem import make_problem
from experiments.common import sized_command as shared
from experiments.gradient_scales.report import figure, table
from experiments.gradient_scales.study import SIZES, study

_MODULE = "experiments.gradient_scales"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; it takes seconds, so it starts anew each time."""
    parser = shared.sized_parser(_MODULE, __doc__, SIZES, data="Adult", cells=False)
    parser.add_argument("--download", action="store_true", help="fetch Adult where it is missing")
    given = parser.parse_args(arguments)
    size = shared.size_of(given)
    started = time.perf_counter()
    problem = make_problem(SIZES[size].simulated_records, given.data, given.download)
    content = study(problem, SIZES[size])
    content |= {"data": problem.name, "num_records": len(problem.labels), "command": shared.command(_MODULE, size)}
    content["seconds"] = round(time.perf_counter() - started, 1)
    output = given.output or shared.results_folder(_MODULE, size)
    shared.finish(content, output, table, lambda content, folder: figure(content, folder / "norms.png"))


if __name__ == "__main__":
    main()
