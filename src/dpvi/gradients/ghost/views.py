"""Which parameters an array consists of, followed through equations that only move data.

A view is an integer array of the shape of the value it describes: entry e says that the value's entry e is parameter
e of the flat vector, unchanged. Unravelling a vector into weights is slices, reshapes and transposes, so weights are
views; a product, a sum or an exponential of parameters is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

View = np.ndarray


def moved(equation: Any, views: Sequence[View | None]) -> list[View] | None:
    """Views of the outputs of ``equation``, or None where it does more than move parameters.

    Parameters
    ----------
    equation
        An equation of a jaxpr.
    views
        One per input; None for an input that is not a view.
    """
    known = [view for view in views if view is not None]
    if len(known) != len(views):
        return None
    name, params = equation.primitive.name, equation.params
    if name == "concatenate":
        return [np.concatenate(known, axis=params["dimension"])]
    if name == "split":
        ends = np.cumsum(params["sizes"])[:-1]
        return np.split(known[0], ends, axis=params["axis"])
    if name == "convert_element_type":
        same = equation.invars[0].aval.dtype == equation.outvars[0].aval.dtype
        return [known[0]] if same else None
    if name not in _MOVES or len(known) != 1:
        return None
    view = _MOVES[name](known[0], params)
    # an equation that repeats a parameter, as the broadcast of a bias does, uses it: its gradients have to be added
    return [view] if view is not None and view.shape == equation.outvars[0].aval.shape else None


def has_repeats(view: View) -> bool:
    """Whether a parameter stands in ``view`` twice."""
    positions = np.sort(view, axis=None)
    return bool(np.any(positions[1:] == positions[:-1]))


def _reshape(view: View, params: Mapping[str, Any]) -> View | None:
    return view.reshape(params["new_sizes"]) if params.get("dimensions") is None else None


def _slice(view: View, params: Mapping[str, Any]) -> View:
    strides = params["strides"] or (1,) * view.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return view[tuple(slice(*each) for each in bounds)]


def _broadcast(view: View, params: Mapping[str, Any]) -> View | None:
    shape = tuple(params["shape"])
    return view.reshape(shape) if view.size == np.prod(shape, dtype=int) else None


_MOVES: Mapping[str, Callable[[View, Mapping[str, Any]], View | None]] = {
    "reshape": _reshape,
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
    "transpose": lambda view, params: view.transpose(params["permutation"]),
    "squeeze": lambda view, params: np.squeeze(view, tuple(params["dimensions"])),
    "rev": lambda view, params: np.flip(view, tuple(params["dimensions"])),
    "copy": lambda view, params: view,
    "copy_p": lambda view, params: view,
}
