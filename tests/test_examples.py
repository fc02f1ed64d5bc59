"""The examples run, in seconds, and arrive somewhere."""

from __future__ import annotations

import pytest

from examples import gaussian_mixture, logistic_regression, simple_gaussian_posterior, variational_auto_encoder

# a JAX key makes the run repeatable, and DPSVI warns
pytestmark = pytest.mark.filterwarnings("ignore:NOT PRIVATE:dpvi.PrivacyWarning")


@pytest.mark.parametrize("interface", ["DPSVI", "fit"])
def test_simple_gaussian_posterior(interface, capsys):
    found = simple_gaussian_posterior.main(["--seed", "0", "--use", interface])
    assert found["distance"] < 1.0 * found["exact_sd"]  # the prior's mean of zero misses by 0.6
    shown = capsys.readouterr().out
    assert "-differential privacy" in shown
    assert "NOT PRIVATE: sampling and noise came from a seed below 2^128" in shown


def test_logistic_regression():
    found = logistic_regression.main(["--seed", "0"])
    assert found["best"] > 0.6
    assert found["accuracy"] > found["best"] - 0.02


def test_gaussian_mixture():
    found = gaussian_mixture.main(["--seed", "0", "--use", "fit"])
    assert found["one_gaussian"] < found["best"] - 1.0
    assert found["fitted"] > found["best"] - 0.5


def test_variational_auto_encoder():
    found = variational_auto_encoder.main(["--seed", "0"])
    assert found["trained"] < 0.75 * found["start"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The noise of the steps:dpvi.ConvergenceWarning")
def test_pymc_logistic_regression(monkeypatch):
    monkeypatch.setenv("PYTENSOR_FLAGS", "cxx=,blas__ldflags=")  # PyTensor would look for both, and needs neither here
    pytest.importorskip("pymc", reason="PyMC is optional and not installed here: pip install 'dpvi[pymc]'")
    from examples import pymc_logistic_regression

    found = pymc_logistic_regression.main(["--seed", "0"])
    assert found["best"] > 0.7
    assert found["epsilon 4"] > found["best"] - 0.02
    assert found["epsilon 1"] > found["best"] - 0.05  # chance is a quarter below
