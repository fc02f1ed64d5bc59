"""Regressions from a formula over declared columns: one NumPyro model, made of public declarations alone."""

from dpvi.models.formula.errors import FormulaError
from dpvi.models.formula.families import FAMILIES
from dpvi.models.formula.model import FormulaModel, model_of_recipe

__all__ = ["FAMILIES", "FormulaError", "FormulaModel", "model_of_recipe"]
