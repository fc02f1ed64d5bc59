"""A mixture of five Gaussians: test log-likelihood against the ε that is really spent (d3p, Figure 7)."""
