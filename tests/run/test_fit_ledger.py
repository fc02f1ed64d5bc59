"""Fits that are charged to a ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer.autoguide import AutoNormal

import dpvi
from dpvi.ledger import Ledger, LedgerError
from dpvi.run import fitting

DELTA = 1e-4
SETTINGS = {"sampling_rate": 0.5, "num_steps": 4, "clip_norm": 1.0}
PLAN = dpvi.plan(epsilon=0.4, delta=DELTA, **{**SETTINGS, "sampling_rate": 1.0})
RECORDS = np.random.default_rng(0).normal(size=40).astype(np.float32)


def model(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "people.ledger", epsilon=1.0, delta=DELTA)


def states(ledger):
    return [entry.state for entry in ledger.entries.values()]


def test_a_fit_is_reserved_before_it_reads_and_spent_when_it_is_done(ledger, monkeypatch):
    seen, real = [], fitting.Run

    def looking(*arguments, **options):
        seen.append(states(ledger))
        return real(*arguments, **options)

    monkeypatch.setattr(fitting, "Run", looking)
    result = dpvi.fit(model, (RECORDS,), PLAN, ledger=ledger, progress=False)
    assert seen == [["reserved"]]
    assert states(ledger) == ["spent"]
    assert result.plan == PLAN


def test_nothing_is_reserved_for_a_run_that_was_refused(ledger, monkeypatch):
    with pytest.raises(dpvi.ModelError):
        dpvi.fit(lambda y: None, (RECORDS,), PLAN, ledger=ledger)
    with pytest.raises(LedgerError, match="NOT PRIVATE"):
        dpvi.fit(model, (RECORDS,), PLAN, ledger=ledger, seed=1)
    with pytest.raises(TypeError, match="ledger must be a dpvi"):
        dpvi.fit(model, (RECORDS,), PLAN, ledger="people.ledger")
    with pytest.raises(ValueError, match="A ledger is of one data set"):
        dpvi.fit_many(model, (RECORDS.reshape(2, 20),), PLAN, ledger=ledger)

    def reads(*_, **__):
        raise AssertionError("records were brought in for a run that the ledger does not hold")

    monkeypatch.setattr(fitting, "prepare", reads)
    with pytest.raises(LedgerError, match="does not hold this run"):
        dpvi.fit(model, (RECORDS,), dpvi.plan(epsilon=1.1, delta=DELTA), ledger=ledger)
    assert states(ledger) == []


def test_a_fit_that_fails_after_it_began_stays_reserved(ledger, monkeypatch):
    def fails(*_, **__):
        raise MemoryError("as where memory ends")

    monkeypatch.setattr(fitting, "Run", fails)
    with pytest.raises(MemoryError) as caught:
        dpvi.fit(model, (RECORDS,), PLAN, ledger=ledger, progress=False)
    assert "dpvi ledger release" in caught.value.__notes__[0]
    assert states(ledger) == ["reserved"]


def test_fits_of_one_data_set_are_one_entry(ledger):
    dpvi.fit_many(model, (RECORDS,), [PLAN] * 3, same_data=True, ledger=ledger, progress=False)
    (entry,) = ledger.entries.values()
    assert (entry.state, len(entry.releases)) == ("spent", 3)
    assert entry.charge.signal_squared == pytest.approx(3 * 4 / PLAN.noise_multiplier**2)


def test_dpsvi_is_spent_after_its_last_step(ledger):
    svi = dpvi.DPSVI(model, AutoNormal(model), optax.adam(0.1), plan=PLAN, ledger=ledger)
    state = svi.init(None, RECORDS)
    assert states(ledger) == []
    for step in range(PLAN.num_steps):
        state = svi.update(state, RECORDS)
        assert states(ledger) == (["spent"] if step + 1 == PLAN.num_steps else ["reserved"])
    with pytest.raises(LedgerError, match="NOT PRIVATE"), pytest.warns(dpvi.PrivacyWarning):
        dpvi.DPSVI(model, AutoNormal(model), optax.adam(0.1), plan=PLAN, ledger=ledger).init(jax.random.key(0), RECORDS)


def test_a_ledger_needs_no_jax(tmp_path):
    program = (
        "import sys; from dpvi.ledger import Ledger; import dpvi; "
        f"ledger = Ledger({str(tmp_path / 'a.ledger')!r}, epsilon=1.0, delta=1e-6); "
        "ledger.reserve(dpvi.plan(epsilon=0.5, delta=1e-6)); exit('jax' in sys.modules)"
    )
    source = str(Path(dpvi.__file__).parents[1])
    assert subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": source}, check=False).returncode == 0
