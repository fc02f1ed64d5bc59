"""Privacy accounting: how much noise a budget needs, what noise spends, and plans that hold both together. No jax."""

from dpvi.declared.guarantee import Guarantee
from dpvi.declared.validation import PrivacyWarning
from dpvi.privacy.accounting import delta, epsilon
from dpvi.privacy.calibration import noise_multiplier
from dpvi.privacy.comparison import compare
from dpvi.privacy.planning import plan, plan_nonprivate, verify
from dpvi.privacy.together import joint_guarantee, plan_together

__all__ = [
    "Guarantee",
    "PrivacyWarning",
    "compare",
    "delta",
    "epsilon",
    "joint_guarantee",
    "noise_multiplier",
    "plan",
    "plan_nonprivate",
    "plan_together",
    "verify",
]
