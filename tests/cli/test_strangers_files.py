"""A result from a stranger, with the settings and a program beside it: reading it runs no program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dpvi
from dpvi.cli.main import main
from dpvi.cli.run_file import RunSettings
from dpvi.table import Numeric, Schema

PROGRAM = """from pathlib import Path

Path("ran").touch()


def model(pay):
    raise RuntimeError
"""


def model(pay):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", pay.shape[0]):
        numpyro.sample("pay", dist.Normal(mean, 1.0), obs=pay)


@pytest.fixture(scope="module")
def received(tmp_path_factory):
    folder = tmp_path_factory.mktemp("received")
    pay = np.random.default_rng(0).normal(size=300).astype(np.float32)
    dpvi.fit(model, {"pay": pay}, dpvi.plan(1.0, 1e-5, 0.2, 20, 2.0), progress=False).save(folder / "result.npz")
    settings = RunSettings(
        data="people.csv",
        output="result.npz",
        epsilon=1.0,
        delta=1e-5,
        schema=Schema({"pay": Numeric(-3, 3)}).to_dict(),
        model="program.py:model",
    )
    (folder / "result.run.toml").write_text(settings.to_text("result.run.toml"))
    (folder / "program.py").write_text(PROGRAM)
    return folder


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["summary", "result.npz"], 0),
        (["report", "result.npz", "--output", "page.html"], 0),
        (["synth", "result.npz", "--output", "tables", "--records", "20"], 2),
        (["evaluate", "result.npz", "--datasets", "2", "--records", "50"], 2),
    ],
)
def test_reading_a_result_runs_no_program_beside_it(received, monkeypatch, capsys, command, status):
    monkeypatch.chdir(received)
    assert main(command) == status
    assert not Path("ran").exists()
    assert "--model program.py:model" in capsys.readouterr().err


def test_it_is_run_where_somebody_names_it(received, monkeypatch, capsys):
    monkeypatch.chdir(received)
    assert main(["summary", "result.npz", "--model", "program.py:model"]) == 2
    assert Path("ran").exists()
    Path("ran").unlink()
