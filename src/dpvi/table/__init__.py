"""What is publicly known about a table, and the way from a table to arrays and back. Loads no jax."""

from dpvi.table.base import Column, SchemaError
from dpvi.table.design import Design
from dpvi.table.draft import confirmed_text, draft_schema
from dpvi.table.levels import Boolean, Categorical, Leveled, Ordinal
from dpvi.table.quantities import Count, Date, Numeric
from dpvi.table.schema import Schema, observed_leaf

__all__ = [
    "Boolean",
    "Categorical",
    "Column",
    "Count",
    "Date",
    "Design",
    "Leveled",
    "Numeric",
    "Ordinal",
    "Schema",
    "SchemaError",
    "confirmed_text",
    "draft_schema",
    "observed_leaf",
]
