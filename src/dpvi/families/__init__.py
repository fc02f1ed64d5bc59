"""Variational families: one file each, all maps z = h(ξ, η) of flat vectors."""

from dpvi.families.base import Family
from dpvi.families.fullrank import FullRank
from dpvi.families.lowrank import LowRank
from dpvi.families.meanfield import MeanField

__all__ = ["Family", "FullRank", "LowRank", "MeanField"]
