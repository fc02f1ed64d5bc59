"""Synthetic data sets from a posterior, and valid answers from them."""

from dpvi.synthetic.generate import SyntheticData, synthesize
from dpvi.synthetic.glm import fit_glm, pool_glm
from dpvi.synthetic.rubin import Pooled, pool

__all__ = ["Pooled", "SyntheticData", "fit_glm", "pool", "pool_glm", "synthesize"]
