"""Calibration of predictions on Adult: Table 3 of noise-aware DPVI, every method beside the paper's number."""
