"""How large the two parts of a record's gradient are, for every estimator (DPVIm, Figure L.1)."""
