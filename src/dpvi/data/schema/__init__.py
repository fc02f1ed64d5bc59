"""What is publicly known about a table, and the way from a table to arrays and back. Loads no jax."""

from dpvi.data.schema.base import Column, SchemaError
from dpvi.data.schema.design import Design
from dpvi.data.schema.draft import confirmed_text, draft_schema
from dpvi.data.schema.levels import Boolean, Categorical, Leveled, Ordinal
from dpvi.data.schema.quantities import Count, Date, Numeric
from dpvi.data.schema.table import Schema, observed_leaf

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
