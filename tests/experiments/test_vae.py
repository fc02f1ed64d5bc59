"""The auto-encoder study: its network, its losses, and a command small enough for a test."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

from experiments.vae import __main__ as command
from experiments.vae import study
from experiments.vae.contestants import make_plan, not_private, prepared
from experiments.vae.network import guide
from experiments.vae.problem import Problem, loss_on_test_images, simulated
from experiments.vae.report import table
from experiments.vae.settings import SIZES, num_parameters

QUICK = SIZES["quick"]


def striped(settings) -> Problem:
    """Every image has dark and bright rows, always the same: easy to learn, unlike noise."""
    stripes = np.tile(np.repeat([0.02, 0.98], 28), 14).astype(np.float32)
    return Problem(*(np.tile(stripes, (size, 1)) for size in (settings.num_records, settings.num_test_records)))


@pytest.fixture(scope="module")
def guided() -> Any:
    return prepared(simulated(QUICK), QUICK, make_plan(QUICK))[0].model


def test_the_network_of_the_paper_has_688884_parameters(guided):
    assert num_parameters(SIZES["full"]) == 688_884
    assert num_parameters(QUICK) == guided.num_parameters


def test_guide_and_model_see_the_same_black_and_white_pixels(guided):
    grey, eta = jnp.full((1, 784), 0.5, jnp.float32), jax.random.normal(jax.random.key(0), (4,))
    xi = guided.initial(jax.random.key(1))
    guide_trace, model_trace = guided.run(xi, eta, guided.own_key(eta, grey[0]), grey)
    pixels = model_trace["image"]["value"]
    assert set(np.unique(pixels)) == {0.0, 1.0}

    def location(images):
        seeded = numpyro.handlers.seed(guide, jax.random.key(0))
        filled = numpyro.handlers.substitute(seeded, guided.parameters.constrain(xi))
        return numpyro.handlers.trace(filled).get_trace(images, 8, 2)["code"]["fn"].base_dist.loc

    seen = guide_trace["code"]["fn"].base_dist.loc
    np.testing.assert_allclose(seen, location(pixels), rtol=1e-5)
    assert not np.allclose(seen, location(1 - pixels), rtol=1e-2)


def test_training_lowers_the_loss_and_an_untrained_network_pays_for_every_pixel(guided):
    problem = striped(QUICK)
    trained = not_private(problem, replace(QUICK, num_epochs=20, learning_rate=0.01))(0)
    start = guided.parameters.constrain(guided.initial(jax.random.key(0)))
    entropy = -784 * (0.02 * np.log(0.02) + 0.98 * np.log(0.98))  # of the pixels: no code can do better
    loss, untrained = (loss_on_test_images(each, problem, QUICK) for each in (trained.parameters, start))
    assert entropy - 15 < loss < 1.5 * entropy
    assert untrained > 400


def test_the_command_writes_tables_and_a_second_call_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "load", lambda dataset, settings: simulated(settings))
    arguments = ["--quick", "--output", str(tmp_path), "--repeats", "1", "--datasets", "mnist"]
    command.main(arguments)
    path = tmp_path / "results.json"
    first = json.loads(path.read_text())
    assert [row["dataset"] for row in first["training"]] == ["mnist"]
    assert len(first["training"][0]["private"]["losses"]) == 2
    assert [(row["grey"], row["closed_form"]) for row in first["readings"]] == [
        (False, False),
        (True, False),
        (True, True),
    ]
    assert all(len(row["averaged_losses"]) == len(row["losses"]) == 1 for row in first["readings"])
    assert first["memory"]["private"]["total"] > first["memory"]["private"]["temporary"] > 0
    assert [row["batch_size"] for row in first["batches"]] == list(QUICK.batch_sizes)
    assert (tmp_path / "table.md").read_text() == table(first)
    assert (tmp_path / "batch_size.png").stat().st_size > 1_000
    command.main(arguments)
    assert json.loads(path.read_text()) == first
    with pytest.raises(ValueError, match="other settings"):
        command.main(["--quick", "--output", str(tmp_path), "--repeats", "2"])
    assert "Losses are not comparable" in capsys.readouterr().out
