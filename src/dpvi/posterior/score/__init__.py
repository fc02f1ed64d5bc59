"""The score posterior: released clipped scores modelled by simulation, clipping and noise included."""

from dpvi.posterior.score.blocks import Blocks, blocks_of
from dpvi.posterior.score.check import BlockCheck, check_blocks
from dpvi.posterior.score.driver import ScoreDriver
from dpvi.posterior.score.gauss_newton import GaussNewton, gauss_newton, score_posterior
from dpvi.posterior.score.model import Moments, ScoreModel
from dpvi.posterior.score.nuts import sample_nuts

__all__ = [
    "BlockCheck",
    "Blocks",
    "GaussNewton",
    "Moments",
    "ScoreDriver",
    "ScoreModel",
    "blocks_of",
    "check_blocks",
    "gauss_newton",
    "sample_nuts",
    "score_posterior",
]
