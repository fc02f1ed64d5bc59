"""Table 2 of the noise-aware DPVI paper: Bayesian linear regression with ten covariates at ε = 0.1, 0.3 and 1."""
