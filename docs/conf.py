"""The documentation site: ``make docs``. Pages are Markdown where they are; the reference comes from docstrings."""

from __future__ import annotations

import dpvi

project = "dpvi"
author = "the dpvi authors"
release = version = dpvi.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**",
    "experiments/*/README.md",
    "experiments/*/results*/table.md",
    "benchmarks/results/*.md",
]
exclude_patterns = ["build", ".venv*"]
suppress_warnings = ["toc.not_included"]  # committed tables are linked from docs/results.md
html_theme = "furo"
html_title = "dpvi"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "none"  # docstrings say what arguments are
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Guarantees"]
