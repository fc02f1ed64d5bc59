"""The score posterior: released clipped scores modelled by simulation, clipping and noise included."""

from dpvi.posterior.score.blocks import Blocks, blocks_of, measured
from dpvi.posterior.score.check import BlockCheck, check_blocks
from dpvi.posterior.score.clip_norm import ClipNormChoice, choose_clip_norm
from dpvi.posterior.score.driver import ScoreDriver
from dpvi.posterior.score.gauss_newton import GaussNewton, gauss_newton, gauss_newton_many
from dpvi.posterior.score.model import Moments, ScoreModel
from dpvi.posterior.score.nuts import Drawn, sample_nuts
from dpvi.posterior.score.score_posterior import NotConvergedError, score_posterior

__all__ = [
    "BlockCheck",
    "Blocks",
    "ClipNormChoice",
    "Drawn",
    "GaussNewton",
    "Moments",
    "NotConvergedError",
    "ScoreDriver",
    "ScoreModel",
    "blocks_of",
    "check_blocks",
    "choose_clip_norm",
    "gauss_newton",
    "gauss_newton_many",
    "measured",
    "sample_nuts",
    "score_posterior",
]
