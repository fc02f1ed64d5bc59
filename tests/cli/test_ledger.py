"""``dpvi ledger`` from the outside."""

from __future__ import annotations

import dpvi
from dpvi.cli.main import main
from dpvi.ledger import Ledger

DELTA = 1e-6


def test_a_ledger_is_begun_once_shown_and_mended(capsys, tmp_path):
    path = str(tmp_path / "people.ledger")
    create = ["ledger", "create", path, "--epsilon", "1", "--delta", "1e-6", "--unit", "one patient"]
    assert main(create) == 0
    assert (
        "Ledger 'people': epsilon = 1 at delta = 1e-06, for adding or removing one patient." in capsys.readouterr().out
    )
    assert main(create) == 2
    assert "a ledger is begun once" in capsys.readouterr().err
    run = Ledger(path).reserve(dpvi.plan(epsilon=0.5, delta=DELTA, unit="one patient"))
    assert main(["ledger", "show", path, "--verify"]) == 0
    shown = capsys.readouterr().out
    assert "run-1  reserved  27.5 %" in shown
    assert "(ε = 1, δ = 1e-06)-differential privacy" in shown
    assert "Every run is charged what it costs." in shown
    assert main(["ledger", "release", path, run, "--because", "power failed"]) == 0
    assert "on your word that nothing of it was published or seen" in capsys.readouterr().out
    assert main(["ledger", "release", path, run]) == 2
    assert "is released" in capsys.readouterr().err
    assert main(["ledger", "show", str(tmp_path / "lost.ledger")]) == 2
    assert "would forget what was spent" in capsys.readouterr().err


def test_stored_plans_are_declared_together(capsys, tmp_path):
    path, plan = str(tmp_path / "people.ledger"), tmp_path / "plan.json"
    dpvi.plan(epsilon=0.4, delta=DELTA).save(plan)
    assert main(["ledger", "create", path, "--epsilon", "1", "--delta", "1e-6"]) == 0
    assert main(["ledger", "declare", path, str(plan), str(plan)]) == 0
    assert "declared-1: 2 runs fixed beforehand, 2 of them not made yet" in capsys.readouterr().out
    plan.write_text(plan.read_text().replace('"epsilon": 0.4', '"epsilon": 0.1'))
    assert main(["ledger", "declare", path, str(plan)]) == 2
    assert "its releases spend" in capsys.readouterr().err
