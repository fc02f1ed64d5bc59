"""Full-rank and low-rank covariance on simulated linear regression (DPVIm, Figure 6)."""
