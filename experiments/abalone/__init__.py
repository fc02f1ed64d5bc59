"""Logistic regression on Abalone: accuracy against ε by clip norm and sampling rate (the poster of DP-ADVI)."""
