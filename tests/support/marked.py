"""Records with a value, a number and a label that nobody would meet by chance, and what must not be found of them."""

from __future__ import annotations

import numpy as np
from support.leaks import secrets_of
from support.small_models import private_plan

from dpvi.records.sampling import poisson_sampler

MARKER, COUNT, LABEL = 8675309.25, 1237, "Zyxwvut-Marker"
RATE = 0.5
PLAN = private_plan(12, sampling_rate=RATE, noise_multiplier=5.0)
random = np.random.default_rng(4)
Y = random.normal([0.5, -1.0], 1.0, (COUNT, 2))
Y[17, 0] = MARKER
SLOTS = poisson_sampler(COUNT, RATE).physical_size
SECRETS = secrets_of(Y, MARKER, {SLOTS}, (LABEL,))
