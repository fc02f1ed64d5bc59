"""Hierarchical logistic regression on small data: AUC against ε, size and iterations (d3p, Figures 4 to 6)."""
