"""``dpvi audit``: what it prints, writes and returns."""

from __future__ import annotations

import json
import sys

import pytest

import dpvi
from dpvi.cli.main import main

QUICK = ["audit", "--sampling-rate", "1", "--trials", "2000", "--seed", "1"]


def test_it_prints_bound_confidence_and_promise_and_writes_what_is_asked_for(tmp_path, capsys):
    files = [tmp_path / "audit.json", tmp_path / "audit.png"]
    assert main([*QUICK, *(part for path in files for part in ("--output", str(path)))]) == 0
    printed = capsys.readouterr().out
    assert "promise    epsilon = 1 at delta = 1e-05" in printed
    assert "with confidence 99 %" in printed
    assert all(path.stat().st_size > 1000 for path in files)


def test_a_stored_plan_is_audited_and_printed_as_json(tmp_path, capsys):
    plan = dpvi.plan(4.0, 1e-5, 1.0, 10, 1.0)
    plan.save(tmp_path / "plan.json")
    assert main(["audit", str(tmp_path / "plan.json"), "--trials", "2000", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["promise"] == plan.epsilon
    assert content["holds"]


def test_a_broken_promise_is_exit_status_one(monkeypatch, capsys):
    from harness.audit_faults import numbers

    from dpvi.auditing import modes, step

    def half_the_noise(*arguments):
        return step.run_steps(*arguments, **numbers(noise=0.5))

    monkeypatch.setattr(modes, "run_steps", half_the_noise)
    assert main([*QUICK, "--epsilon", "4"]) == 1
    assert "THE PROMISE IS BROKEN" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--mode", "guess"], ["--output", "audit.txt"], ["no such file"]])
def test_refusals_are_one_sentence_and_status_two(wrong, capsys):
    assert main([*QUICK, *wrong]) == 2
    assert capsys.readouterr().err.startswith("dpvi audit: ")


def test_a_picture_without_matplotlib_is_refused_before_the_work(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("dpvi.auditing.audit", lambda *_, **__: pytest.fail("the audit was made first"))
    assert main([*QUICK, "--output", "audit.png"]) == 2
    assert "install dpvi[plot]" in capsys.readouterr().err
