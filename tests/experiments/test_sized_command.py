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


def part(folder, cells, machine="2 cores, cpu", settings=Settings(), **more):
    content = {"settings": settings.to_dict(), "machine": machine, "cells": cells, **more}
    shared.write_json(content, folder)
    return folder


def test_parts_are_joined_each_row_once_and_the_studys_own_rows_stay(tmp_path):
    names = {"cells": ("method", "epsilon")}
    row = {"method": "aligned", "epsilon": 1.0}
    own = part(tmp_path / "own", [row | {"seconds": 1.0}], clip_norm=3.0)
    first = part(tmp_path / "first", [row | {"seconds": 9.0}, row | {"epsilon": 2.0}], "16 cores, cpu", spent=0.5)
    second = part(tmp_path / "second", [{"method": "vanilla", "epsilon": 1.0}], "16 cores, cpu")
    content = shared.join_results(own / "results.json", [first, second], Settings(), names)
    assert [(each["method"], each["epsilon"]) for each in content["cells"]] == [
        ("aligned", 1.0),
        ("aligned", 2.0),
        ("vanilla", 1.0),
    ]
    assert content["cells"][0]["seconds"] == 1.0
    assert (content["machine"], content["clip_norm"], content["spent"]) == ("2 cores, cpu; 16 cores, cpu", 3.0, 0.5)
    alone = shared.join_results(tmp_path / "none" / "results.json", [second], Settings(), names)
    assert alone["machine"] == "16 cores, cpu"
    with pytest.raises(ValueError, match="other settings"):
        shared.join_results(own / "results.json", [first], Settings(6), names)
    with pytest.raises(ValueError, match="nothing to join"):
        shared.join_results(tmp_path / "none" / "results.json", [], Settings(), names)


def test_a_machine_without_matplotlib_writes_numbers_and_table(tmp_path, capsys):
    def figures(content, folder):
        raise ImportError("Plots need matplotlib.")

    shared.finish({"cells": []}, tmp_path, lambda content: "a table", figures)
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "table.md"}
    assert "matplotlib" in capsys.readouterr().out
