"""``dpvi verify`` from the outside: what it prints, and its exit status."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.small_models import trace_of

import dpvi
from dpvi.cli.main import main
from dpvi.declared.guarantee import Circumstances

pytestmark = pytest.mark.usefixtures("accounted")


@pytest.fixture
def saved(tmp_path):
    """A private result and its file."""
    result = dpvi.Result(
        plan=dpvi.plan(epsilon=1.0, delta=1e-5, sampling_rate=1.0, num_steps=4, clip_norm=1.0),
        circumstances=Circumstances("none"),
        trace=trace_of(np.zeros((4, 2), np.float32)),
        family=dpvi.MeanField(),
        estimator={"name": "Aligned", "num_draws": 1},
        sites=(),
        structure=(),
    )
    result.save(tmp_path / "result.npz")
    return result, tmp_path / "result.npz"


def test_it_prints_what_holds(saved, capsys):
    result, path = saved
    assert main(["verify", str(path)]) == 0
    shown = capsys.readouterr().out
    assert str(result.guarantee) in shown
    assert "there is no signature" in shown


def test_units_of_several_rows_are_verified_as_such(saved, capsys, tmp_path):
    settings = {"sampling_rate": 0.5, "num_steps": 4, "clip_norm": 1.0, "unit": "one patient", "rows_per_unit": 3}
    result = dataclasses.replace(saved[0], plan=dpvi.plan(epsilon=1.0, delta=1e-5, **settings))
    result.save(tmp_path / "units.npz")
    assert main(["verify", str(tmp_path / "units.npz")]) == 0
    assert "adding or removing one patient with at most 3 rows changes" in capsys.readouterr().out
    # a plan that claims the same for more rows does not load
    more = tuple(dataclasses.replace(each, rows_per_unit=4) for each in result.plan.releases)
    dataclasses.replace(result, plan=dataclasses.replace(result.plan, releases=more)).save(tmp_path / "more.npz")
    assert main(["verify", str(tmp_path / "more.npz")]) == 2
    assert "its releases spend" in capsys.readouterr().err


def test_a_signature(saved, capsys, tmp_path):
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    result, path = saved
    private, public = ed25519.Ed25519PrivateKey.generate(), tmp_path / "public.pem"
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(private.public_key().public_bytes(*form))
    assert main(["verify", str(path), "--key", str(public)]) == 2
    assert "is not signed" in capsys.readouterr().err
    result.sign(private).save(path)
    assert main(["verify", str(path), "--key", str(public)]) == 0
    assert f"Signed by the key in {public}." in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert "there is a signature, which --key would check" in capsys.readouterr().out


def test_a_file_that_was_changed_is_refused(saved, capsys):
    _, path = saved
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"epsilon": 1.0', b'"epsilon": 0.1'))
    assert path.read_bytes() != content
    assert main(["verify", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dpvi verify: ")


def test_a_run_that_is_not_private_does_not_pass(saved, capsys):
    result, path = saved
    dataclasses.replace(result, circumstances=Circumstances("guessable")).save(path)
    assert main(["verify", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("NOT PRIVATE")
    assert "it is NOT PRIVATE: do not publish it" in captured.err
