"""What the commands of sized studies share: folders that do not collide, results that are gone on with or refused."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pytest

from experiments.common import sized_command as shared

SIZES = {"full": None, "small": None, "quick": None}


@dataclass(frozen=True)
class Settings:
    num_steps: int = 5

    def to_dict(self):
        return asdict(self)


def test_every_size_and_noise_has_a_folder_of_its_own():
    names = {
        shared.results_folder("experiments.full_rank", size, *shared.noise_marks(noise)).name
        for size in SIZES
        for noise in shared.ADJACENCIES
    }
    assert len(names) == len(SIZES) * len(shared.ADJACENCIES)
    assert "results" in names


def test_quick_is_an_option_and_not_a_size(capsys):
    parser = shared.sized_parser("experiments.full_rank", "text", SIZES, noise=True, data="Adult")
    assert shared.size_of(parser.parse_args(["--quick"])) == "quick"
    assert shared.size_of(parser.parse_args([])) == "small"
    with pytest.raises(SystemExit):
        parser.parse_args(["--size", "quick"])
    assert "invalid choice" in capsys.readouterr().err


def test_results_are_gone_on_with_and_refused_under_other_settings(tmp_path):
    def opened(settings):
        return shared.open_results(tmp_path / "results.json", "experiments.full_rank", settings, "full", {"noise": "x"})

    content = opened(Settings())
    assert content["command"] == "python -m experiments.full_rank --size full --noise x"
    content["cells"].append({"seconds": 3.0})
    said = []
    shared.keeper(tmp_path, lambda row: said.append(row) or "a line")(content)
    assert said == [{"seconds": 3.0}]
    assert opened(Settings()) == content
    with pytest.raises(ValueError, match="other settings"):
        opened(Settings(6))


def test_a_number_that_is_none_leaves_the_file_as_it_was(tmp_path):
    shared.write_json({"cells": [1.0]}, tmp_path)
    assert '"cells": [ 1.0 ]' in (tmp_path / "results.json").read_text()
    with pytest.raises(ValueError, match="not JSON compliant"):
        shared.write_json({"cells": [float("nan")]}, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == {"cells": [1.0]}
