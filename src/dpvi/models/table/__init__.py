"""Generative models of whole tables."""

from dpvi.models.table.components import column_priors, component_law, ordinal_logits
from dpvi.models.table.model import TableModel
from dpvi.models.table.regression import Regression

__all__ = ["Regression", "TableModel", "column_priors", "component_law", "ordinal_logits"]
