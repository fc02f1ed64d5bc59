"""Rivals that publish intervals or estimates under differential privacy, each at its own published setting."""
