"""Models that a file can hold, because data alone says what they are: a formula over declared columns.

A recipe is JSON in the header of a result. Nothing in it is executed, and what does not describe a model of this
library is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

_LARGEST = 2**20  # characters


def recipe_of(model: Any) -> dict[str, Any] | None:
    """The recipe of ``model``, or ``None`` where it is a program that no file can hold."""
    from dpvi.models.formula import FormulaModel

    function = getattr(model, "function", model)
    if type(function) is not FormulaModel:  # a class of the user's own may hold anything
        return None
    return json.loads(json.dumps(function.recipe(), allow_nan=False))


def model_of(recipe: Any) -> Callable[..., Any]:
    """The model that a recipe describes.

    Raises
    ------
    ValueError
        With one sentence, where it describes none.
    """
    if not isinstance(recipe, Mapping) or len(json.dumps(recipe)) > _LARGEST:
        raise ValueError("A recipe must be a JSON object of moderate size.")
    kinds = {"glm": _formula_model}
    kind = recipe.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"This version knows recipes of kind {', '.join(map(repr, kinds))}, got {kind!r}.")
    return kinds[kind](recipe)


def _formula_model(recipe: Mapping[str, Any]) -> Callable[..., Any]:
    from dpvi.models.formula import model_of_recipe

    try:
        return model_of_recipe(recipe)
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"This recipe is not complete: {type(error).__name__}.") from None
