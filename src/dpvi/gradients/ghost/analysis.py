"""Which parameters meet a record in contractions alone, and where taps are needed for all others.

Every path from a parameter to the term starts with moves (slices, reshapes, transposes) and then meets a first
equation that does more. If that is a contraction with data, its rows give the gradient; anything else gets a tap on
the parameters themselves, whose gradient is the gradient of the record, formed as `vmap` would. Both kinds together
are all paths, each once, so their sum is the gradient, whatever the model.

Norms need more: gradients that reach one parameter by two ways have to be added before they are squared. A matrix is
therefore kept only if nothing else uses any of its parameters, and contractions of one matrix are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from dpvi.gradients.ghost.contractions import Contraction, Matrix, read_contraction, share
from dpvi.gradients.ghost.replay import Places
from dpvi.gradients.ghost.views import View, moved
from dpvi.gradients.ghost.whole_rows import is_worth_it


class Copies(NamedTuple):
    """Parameters of one layer whose gradients are formed for every record."""

    positions: np.ndarray  # of each column
    taps: tuple[int, ...]  # taps on variables that fill the columns
    entries: tuple[np.ndarray, ...]  # which entries of each tap
    columns: tuple[np.ndarray, ...]  # and where they go
    is_one_tap: bool  # one tap as it is, which is the rule: a bias


@dataclass(frozen=True)
class Analysis:
    """How a term uses its parameters."""

    size: int
    matrices: tuple[Matrix, ...]
    copies: tuple[Copies, ...]
    places: Places


class _Uses(NamedTuple):
    contractions: list[Contraction]
    others: dict[Any, View]  # variables that meet something else first
    views: dict[Any, View]  # all variables that are views
    moves: set[int]  # equations between them


def analyse(closed: core.ClosedJaxpr, labels: np.ndarray | None = None) -> Analysis:
    """Read the flat jaxpr of a term whose first input is the parameter vector.

    Parameters
    ----------
    closed
        From :func:`dpvi.gradients.ghost.replay.flatten`.
    labels
        Layer of each parameter, where layers are clipped apart; a matrix that lies in several is not kept.
    """
    jaxpr = closed.jaxpr
    size = jaxpr.invars[0].aval.shape[0]
    contractions, others, views, moves = _uses(jaxpr, size)
    while True:
        matrices, refused = _matrices(contractions, others, size, labels)
        if not refused:
            break
        contractions = [use for matrix in matrices for use in matrix.uses]
        for use in refused:
            variable = jaxpr.eqns[use.equation].invars[use.weight]
            others[variable] = views[variable]
    reads = {use.equation: 1 - use.weight for matrix in matrices for use in matrix.uses}
    in_order = {index: reads[index] for index in sorted(reads)}
    places = Places(in_order, tuple(others), frozenset(moves))
    labels = np.zeros(size, int) if labels is None else labels
    return Analysis(size, tuple(matrices), tuple(_copies(list(others.values()), labels)), places)


def _uses(jaxpr: Any, size: int) -> _Uses:
    views: dict[Any, View] = {jaxpr.invars[0]: np.arange(size)}
    uses = _Uses([], {}, views, set())

    def view_of(atom: Any) -> View | None:
        return None if isinstance(atom, core.Literal) else views.get(atom)

    for index, equation in enumerate(jaxpr.eqns):
        seen = [view_of(atom) for atom in equation.invars]
        if all(view is None for view in seen):
            continue
        outputs = moved(equation, seen)
        if outputs is not None:
            views.update(zip(equation.outvars, outputs, strict=True))
            uses.moves.add(index)
            continue
        contraction = read_contraction(index, equation, seen)
        if contraction is not None:
            uses.contractions.append(contraction)
        else:
            uses.others.update({a: v for a, v in zip(equation.invars, seen, strict=True) if v is not None})
    uses.others.update({atom: view for atom in jaxpr.outvars if (view := view_of(atom)) is not None})
    for variable in [variable for variable, view in uses.others.items() if view.size == 0]:
        del uses.others[variable]
    return uses


def _matrices(
    contractions: Sequence[Contraction], others: dict[Any, View], size: int, labels: np.ndarray | None
) -> tuple[list[Matrix], list[Contraction]]:
    """Contractions joined to matrices that can be kept, and those that cannot be."""
    by_parameters: dict[bytes, list[Contraction]] = {}
    for contraction in contractions:
        key = np.sort(contraction.positions, axis=None).tobytes()
        by_parameters.setdefault(key, []).append(contraction)
    groups = list(by_parameters.values())
    users = np.zeros(size, np.int32)
    for view in others.values():
        users[view.reshape(-1)] += 2  # whatever else a parameter is used for, it is too much
    for group in groups:
        users[group[0].positions.reshape(-1)] += 1
    kept, refused = [], []
    for group in groups:
        matrix = share(group)
        alone = bool(np.all(users[group[0].positions] == 1))
        if matrix is not None and alone and _pays(matrix) and _in_one_layer(matrix, labels):
            kept.append(matrix)
        else:
            refused.extend(group)
    return kept, refused


def _pays(matrix: Matrix) -> bool:
    batched, inner, outer = matrix.positions.shape
    return matrix.gram_pays and is_worth_it(batched, matrix.rows, inner, outer)


def _in_one_layer(matrix: Matrix, labels: np.ndarray | None) -> bool:
    return labels is None or np.unique(labels[matrix.positions]).size == 1


def _copies(views: Sequence[View], labels: np.ndarray) -> Iterator[Copies]:
    """Taps that share no parameter stay apart, which saves moving them; all others are joined, layer by layer."""
    users = np.zeros(labels.size, np.int32)
    flat = [view.reshape(-1) for view in views]
    for positions in flat:
        np.add.at(users, positions, 1)
    shared = []
    for index, positions in enumerate(flat):
        if np.all(users[positions] == 1) and np.unique(labels[positions]).size == 1:
            everything = np.arange(positions.size)
            yield Copies(positions, (index,), (everything,), (everything,), is_one_tap=True)
        else:
            shared.append(index)
    for layer in np.unique(np.concatenate([labels[flat[index]] for index in shared])) if shared else ():
        entries = {index: np.flatnonzero(labels[flat[index]] == layer) for index in shared}
        taps = tuple(index for index in shared if entries[index].size)
        positions = np.unique(np.concatenate([flat[index][entries[index]] for index in taps]))
        columns = tuple(np.searchsorted(positions, flat[index][entries[index]]) for index in taps)
        yield Copies(positions, taps, tuple(entries[index] for index in taps), columns, is_one_tap=False)
