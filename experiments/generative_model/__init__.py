"""A mixture with a Poisson regression, fitted by every gradient estimator and shared as synthetic data (DPVIm, 4.2)."""
