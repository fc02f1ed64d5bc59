"""Table 1 of the noise-aware DPVI paper: three conjugate exponential families at ε = 0.1."""
