"""Logistic regression on Adult with five gradient estimators (DPVIm, Figure 5)."""
