"""The study as a table: a block for each setting, a row for each method."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from experiments.rivals.problems import PROBLEMS
from experiments.rivals.published import FIGURES, NEWTON_INFLATION, Figure
from experiments.rivals.settings import OURS, REFERENCE, SETTINGS, Setting

_PURE = "diffprivlib"  # needs no δ
_HEAD = (
    "| method | ε | δ | data sets | truth inside | non-private inside | width (median) | ÷ non-private | RMSE "
    "| seconds | verdict |"
)


class Row(NamedTuple):
    """One method in one setting; what it does not give is None."""

    method: str
    num_data_sets: int
    coverage: float | None
    coverage_error: float
    answer: float | None
    answer_error: float
    privacy_answer: float | None
    width: float | None
    median_width: float | None
    error: float | None
    seconds: float | None


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    lines = [
        "# Rivals at their own settings",
        "",
        f"Made by `{content['command']}` on {content['machine']}. 95 % intervals, averaged over the coefficients that "
        "are looked at; ε and δ for adding or removing one record; mean ± standard error over data sets. What is not "
        'marked "published" was run here. "Non-private inside" is the share of intervals that hold the estimate of the '
        "same model without privacy, in brackets that of dpvi's privacy part alone. RMSE is to the truth.",
        "",
    ]
    for name in content["settings"]["settings"]:
        lines += [*_block(name, rows_of(content, name)), ""]
    return "\n".join([*lines, *_notes()]) + "\n"


def rows_of(content: dict[str, Any], setting: str) -> list[Row]:
    """What was run, methods in the order of the settings, ours last."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for cell in content["cells"]:
        if cell["setting"] == setting:
            cells.setdefault(cell["method"], []).append(cell)
    order = [REFERENCE, *SETTINGS[setting].methods]
    found = [name for name in order if name in cells] + sorted(name for name in cells if name not in order)
    return [_row(name, cells[name]) for name in found]


def verdict(coverage: float | None, coverage_error: float, width: float | None, ours: Row | None) -> str:
    """Whether the rival is narrower than ours at its own coverage.

    Examples
    --------
    >>> ours = Row("dpvi", 40, 0.95, 0.02, 0.9, 0.02, None, 0.5, 0.5, 0.1, 3.0)
    >>> verdict(0.82, 0.01, 0.4, ours)
    'narrower (0.80 ×), but covers less'
    >>> verdict(0.99, 0.01, 1.0, ours)
    'wider (2.00 ×)'
    """
    if ours is None or ours.width is None or ours.coverage is None:
        return "dpvi not run"
    if width is None:
        return "no intervals"
    ratio, margin = width / ours.width, 2 * math.hypot(coverage_error, ours.coverage_error)
    nominal = min(0.95, ours.coverage)
    if ratio >= 1:
        honest = coverage is None or ours.coverage >= min(0.95, coverage) - margin
        return f"wider ({ratio:.2f} ×)" + ("" if honest else ", but dpvi covers less")
    worse = coverage is not None and coverage < nominal - margin
    return f"narrower ({ratio:.2f} ×)" + (", but covers less" if worse else "")


def _row(method: str, cells: list[dict[str, Any]]) -> Row:
    def joined(name: str) -> np.ndarray | None:
        return np.concatenate([cell[name] for cell in cells]) if all(name in cell for cell in cells) else None

    def share(name: str) -> tuple[float | None, float]:
        values = joined(name)
        return (None, 0.0) if values is None else (float(values.mean()), share_error(values))

    widths, privacy = joined("width"), joined("answer_inside_privacy")
    errors, seconds = joined("squared_error"), joined("seconds")
    return Row(
        method,
        len(errors),
        *share("truth_inside"),
        *share("answer_inside"),
        None if privacy is None else float(privacy.mean()),
        None if widths is None else float(widths.mean()),
        None if widths is None else float(np.median(widths)),
        math.sqrt(float(errors.mean())),
        float(np.median(seconds)),
    )


def share_error(values: np.ndarray) -> float:
    """Standard error of a mean of shares, as if of four more data sets two had been inside, so that it is never zero.

    Examples
    --------
    >>> round(share_error(np.ones(16)), 3)
    0.069
    """
    padded = np.concatenate([values, (0.0, 0.0, 1.0, 1.0)])
    return float(np.std(padded, ddof=1) / math.sqrt(len(padded)))


def _block(name: str, rows: list[Row]) -> list[str]:
    setting = SETTINGS[name]
    problem = PROBLEMS[setting.problem]
    parameters = len(problem.bounds) + (problem.kind == "linear")
    limit = math.sqrt(1 + parameters / (problem.num_records * setting.signal**2))
    own = [row for row in rows if row.method.startswith(OURS)]
    ours = next((row for row in own if row.method == OURS), own[0] if own else None)
    base = next((row.width for row in rows if row.method == REFERENCE), None)
    figures = [figure for figure in FIGURES if figure.setting == name]
    missing = [method for method in setting.methods if method not in {row.method for row in rows}]
    missing += [] if ours else [OURS]
    return [
        f"## {setting.title}: ε = {setting.epsilon:.3g}, δ = {setting.delta:.2g} (μ = {setting.signal:.3g})",
        "",
        f"Limit of width ÷ non-private, √(1 + d/(Nμ²)): {limit:.2f}.",
        "",
        _HEAD,
        "|" + " --- |" * 11,
        *(_line(row, setting, base, ours) for row in rows),
        *(_published(figure, base, ours) for figure in figures),
        *(["", f"Not run: {', '.join(missing)} (`--help` says what they need)."] if missing else []),
    ]


def _line(row: Row, setting: Setting, base: float | None, ours: Row | None) -> str:
    budget = ["none", "–"] if row.method == REFERENCE else [f"{setting.epsilon:.3g}", f"{setting.delta:.2g}"]
    if row.method == _PURE:
        budget[1] = "0"
    own = row.method == REFERENCE or row.method.startswith(OURS)
    if row.width is None and ours is not None and ours.error is not None and row.error is not None:
        said = f"no intervals; RMSE {row.error / ours.error:.2f} × ours"
    else:
        said = "" if own else verdict(row.coverage, row.coverage_error, row.width, ours)
    answer = "–" if row.answer is None else f"{row.answer:.3f} ± {row.answer_error:.3f}"
    if row.privacy_answer is not None:
        answer += f" ({row.privacy_answer:.3f})"
    cells = [
        f"**{row.method}**" if row.method.startswith(OURS) else row.method,
        *budget,
        str(row.num_data_sets),
        "–" if row.coverage is None else f"{row.coverage:.3f} ± {row.coverage_error:.3f}",
        answer,
        "–" if row.width is None else f"{row.width:.3g} ({row.median_width:.3g})",
        "–" if row.width is None or base is None else f"{row.width / base:.2f}",
        f"{row.error:.3g}",
        f"{row.seconds:.2g}",
        said,
    ]
    return "| " + " | ".join(cells) + " |"


def _published(figure: Figure, base: float | None, ours: Row | None) -> str:
    epsilon, _, delta = figure.budget.partition(", δ = ")
    said = "" if figure.coverage is None else verdict(figure.coverage, 0.0, figure.width, ours)
    cells = [
        figure.method,
        epsilon.removeprefix("ε = "),
        delta or "–",
        "–",
        "–" if figure.coverage is None else f"{figure.coverage:.3f}",
        "–",
        f"{figure.width:.3g}",
        "–" if base is None else f"{figure.width / base:.2f}",
        "–",
        "–" if figure.seconds is None else f"{figure.seconds:,.0f}",
        said,
    ]
    return "| " + " | ".join(cells) + " |"


def _notes() -> list[str]:
    sources = list(dict.fromkeys(figure.source for figure in FIGURES))
    inflation = ", ".join(f"{value:g} (T = {steps})" for steps, value in NEWTON_INFLATION.items())
    return [
        f"* Published figures: {'; '.join(sources)}.",
        "* Repro samples, DP-CI-ERM and diffprivlib need no δ, which is a stronger promise than that of the others at "
        "the same ε.",
        f"* Noisy Newton's published inflation of standard errors at n = 5,000, d = 4, ε = 1: {inflation}. The one "
        "here is our own program, with exact accounting for adding or removing a record and covariates of our choice.",
        "* BinAgg charges the d noisy sums of x in a bin as one release, and so spends 1.28 times the μ that it states "
        'for d = 3; "charged" is run at 1/1.28 of μ and spends the stated budget. Both publish the number of records.',
        "* Noisy moments and AdaSSP take the number of records as public, data augmentation also the law of x; "
        "its chains run side by side, and its seconds are a share of what all took.",
    ]
