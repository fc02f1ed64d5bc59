"""What the statement of a plan rests on, besides the mechanism doing what the plan says: one sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpvi.declared.clipping import PerLayer

if TYPE_CHECKING:
    from dpvi.declared.plan import Plan

RECORD = "one record"

_POISSON = (
    "Each release samples every record independently (Poisson sampling) and adds Gaussian noise to a clipped sum."
)
_ALL_RECORDS = (
    "Each release adds Gaussian noise to a sum over all records of vectors of bounded norm; what is asked next follows "
    "from what was released before."
)
_PUBLIC_SETTINGS = (
    "Every setting (model and what it closes over, prior, starting point, optimiser, clip norm, sampling rate, number "
    "of steps, column levels and bounds) was chosen without looking at the records."
)
_PUBLIC_MEASURING = (
    "Every setting (model and what it closes over, prior, shares of the budget, column levels and bounds) was chosen "
    "without looking at the records."
)
_PUBLIC_SIZE = "The number of records is declared public and is not protected: it is the same with and without {unit}."
_LAYERS = (
    "Each of {count} groups of parameters is clipped to a norm of its own, with noise in proportion to it; together "
    "they are one release of the stated noise multiplier."
)
_QUANTILE = (
    "Each step also releases a count of the sampled records that were left unclipped, and later clip norms follow from "
    "these noisy counts; a step's gradients and count are one release of the stated noise multiplier."
)
_ONE_ROW_EACH = "Each unit, {unit}, is exactly one row of the data."
_ROWS_EACH = (
    "No unit has more than {rows} rows of the data. Nothing here checks that: whoever holds the records vouches for it."
)
_EXACT = (
    "Sums are exact and noise meets them in double precision, on a public grid; how long a run takes and how much "
    "memory it needs are outside the statement."
)


def unit_of(plan: Plan) -> str:
    """Who is protected, as a noun phrase: where several rows may be one unit's, that is not one record."""
    return "one unit" if plan.rows_per_unit > 1 and plan.unit == RECORD else plan.unit


def rows_sentences(rows_per_unit: int) -> list[str]:
    """Who vouches for the number of rows of a unit, where it may have several."""
    return [_ROWS_EACH.format(rows=rows_per_unit)] if rows_per_unit > 1 else []


def assumptions_of(plan: Plan) -> tuple[str, ...]:
    """The sentences of a private plan."""
    measures = plan.measuring is not None
    sentences = [_ALL_RECORDS, _PUBLIC_MEASURING, _EXACT] if measures else [_POISSON, _PUBLIC_SETTINGS, _EXACT]
    sentences += rows_sentences(plan.rows_per_unit)
    if plan.rows_per_unit == 1 and plan.unit != RECORD:
        sentences.append(_ONE_ROW_EACH.format(unit=plan.unit))
    if plan.num_records is not None:
        sentences.append(_PUBLIC_SIZE.format(unit=unit_of(plan)))
    if isinstance(plan.clipping, PerLayer):
        sentences.append(_LAYERS.format(count=len(plan.clipping.norms)))
    elif plan.clipping is not None:
        sentences.append(_QUANTILE)
    return tuple(sentences)
