"""What both sides of the privacy boundary share: the plan, the guarantee, the trace.

Import from the modules themselves; ``core.plan``, ``core.guarantee`` and ``core.validation`` load no jax.
"""
