"""Audits: what the shipped mechanism gives away, measured on canaries, beside what its plan promises."""

from dpvi.auditing.modes import BACKGROUNDS, MODES, audit
from dpvi.auditing.report import Audit

__all__ = ["BACKGROUNDS", "MODES", "Audit", "audit"]
