"""d3p's documented examples, for ``DPSVI`` and for ``fit``: ``python -m examples.logistic_regression [--full]``."""
