"""From a CSV to a page and to synthetic tables, with commands alone; and what every command says to wrong input."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.pages import check_page

import dpvi
from dpvi.cli import demo
from dpvi.cli.main import COMMANDS, build_parser, main
from dpvi.cli.run_file import read_run_file
from dpvi.table import Schema

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "my-csv.md"
FORMULA = "earns_much ~ age + hours + schooling + sector"
MODEL = """
import numpyro, numpyro.distributions as dist

def hours_alone(hours):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("records", hours.shape[0]):
        numpyro.sample("hours", dist.Normal(mean, 0.3), obs=hours)

value = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the commands of the page leave, a ledger, and the result of a function in a file."""
    made = tmp_path_factory.mktemp("six")
    before = Path.cwd()
    os.chdir(made)
    steps = ["--sampling-rate", "0.05", "--num-steps", "40", "--clip-norm", "1"]
    try:
        for line in re.findall(r"```sh\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
            program, *arguments = shlex.split(line)
            fewer = ["--components", "2", *steps] if "table" in arguments else []  # than the page's minute
            assert (program, main([*arguments, *fewer])) == ("dpvi", 0)
            if "draft" in arguments:
                shutil.copy("schema.toml", "draft.toml")
        ledger = dpvi.Ledger("people.ledger", epsilon=3.0, delta=1e-5)
        ledger.commit(ledger.reserve(dpvi.Result.load("result.npz").plan))
        Path("model.py").write_text(MODEL)
        budget = ["--schema", "schema.toml", "--epsilon", "2", "--delta", "1e-6", "--quiet"]
        own = ["--model", "model.py:hours_alone", "--output", "own.npz"]
        assert main(["fit", "people.csv", *budget, *own, *steps, "--unit", "one household"]) == 0
    finally:
        os.chdir(before)
    return made


@pytest.fixture
def there(folder, tmp_path, monkeypatch):
    """A copy of that folder to work in."""
    copy = tmp_path / "work"
    shutil.copytree(folder, copy)
    monkeypatch.chdir(copy)
    return copy


def names_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_from_a_table_to_a_page(there, capsys):
    page = check_page(Path("report.html").read_text(encoding="utf-8"))
    for words in (
        FORMULA,
        "bernoulli, link logit",
        "On one scale",
        "By sector",
        "dpvi fit result.run.toml",
        "Normal(0, 2.5)",
    ):
        assert words in page.text, words
    assert main(["summary", "result.npz", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    age = told["estimates"]["age"]
    assert age["lower"] < 0.03 < age["upper"]  # what the people were drawn with
    assert age["sampling_sd"] ** 2 + age["privacy_sd"] ** 2 == pytest.approx(age["sd"] ** 2)
    for name in ("table", "own"):
        assert main(["report", f"{name}.npz", "--output", f"{name}-page.html", "--title", "<b>"]) == 0
        assert "<b>" in check_page(Path(f"{name}-page.html").read_text(encoding="utf-8")).text
    assert "one household" in Path("own-page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "columns"), [("result", 5), ("table", 6)])
def test_from_a_result_to_synthetic_tables(there, name, columns, capsys):
    arguments = ["synth", f"{name}.npz", "--number", "2", "--records", "500", "--output", "made", "--seed", "1"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"] == 2
    assert names_of(there / "made") == ["about.json", "dataset_0.csv", "dataset_1.csv", "index.html", "schema.toml"]
    schema = Schema.load("made/schema.toml")
    assert len(schema.columns) == columns
    tables = [schema.encode(f"made/dataset_{index}.csv", outside="raise") for index in range(2)]
    assert all(len(each["age"]) == 500 for each in tables)
    assert not np.array_equal(tables[0]["age"], tables[1]["age"])
    page = check_page(Path("made/index.html").read_text(encoding="utf-8"))
    assert "What the tables cannot show" in page.text
    assert ("released counts" in page.text) == (name == "result")


def test_a_formula_without_a_given_size_draws_as_many_as_were_released(there):
    assert main(["synth", "result.npz", "--number", "1", "--format", "parquet", "--output", "more"]) == 0
    rows = Schema.load("more/schema.toml").encode("more/dataset_0.parquet")["age"]
    assert abs(len(rows) - demo.NUM_PEOPLE) < 300
    assert len(rows) != demo.NUM_PEOPLE  # it was noisy


def test_the_file_beside_a_result_repeats_the_run(there, capsys):
    settings = read_run_file(Path("own.run.toml"))
    assert (settings.model, settings.num_steps, settings.data) == ("model.py:hours_alone", 40, "people.csv")
    assert settings.schema["columns"] == Schema.load("schema.toml").to_dict()["columns"]
    assert main(["fit", "own.run.toml", "--output", "again.npz", "--quiet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["private"]
    assert dpvi.Result.load("again.npz").plan == dpvi.Result.load("own.npz").plan
    again = read_run_file(Path("again.run.toml"))
    assert again.to_text("x") == settings.to_text("x").replace("own.npz", "again.npz")


def test_other_commands_answer_programs_too(there, capsys):
    assert main(["ledger", "show", "people.ledger", "--json"]) == 0
    assert [each["state"] for each in json.loads(capsys.readouterr().out)["runs"]] == ["spent"]
    assert main(["verify", "result.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(1)
    asked = ["--formula", "earns_much ~ age", "--epsilon", "0.1", "--delta", "1e-6", "--records", "2000"]
    assert main(["preview", "--schema", "schema.toml", *asked, "--json", "--output", "widths.svg"]) == 0
    found = json.loads(capsys.readouterr().out)
    private, without = (found[kind][0]["width"]["age"] for kind in ("private", "without_privacy"))
    assert private > 1.2 * without > 0
    assert Path("widths.svg").read_text().startswith("<?xml")
    assert (
        main(
            [
                "evaluate",
                "own.npz",
                "--model",
                "model.py:hours_alone",
                "--datasets",
                "3",
                "--records",
                "400",
                "--quiet",
                "--json",
            ]
        )
        == 0
    )
    assert list(json.loads(capsys.readouterr().out)["held"]) == ["mean"]
    assert main(["evaluate", "result.npz", "--datasets", "2", "--records", "400", "--quiet", "--json"]) == 0
    named = ["intercept", "age", "hours", "schooling", "sector[T.public]", "sector[T.self-employed]"]
    assert list(json.loads(capsys.readouterr().out)["held"]) == named


def budget(*more: str, epsilon: str = "1") -> list[str]:
    return ["--schema", "schema.toml", "--epsilon", epsilon, "--delta", "1e-6", "--quiet", "--output", "new.npz", *more]


def prepare_bad_files() -> None:
    text = Path("people.csv").read_text()
    Path("semicolons.csv").write_text(text.replace(",", ";"))
    Path("latin.csv").write_bytes(text.replace("private", "privé").encode("latin-1"))
    Path("binary.csv").write_bytes(b"age,hours\n\x00\x01,2\n")
    Path("text.parquet").write_text(text)
    Path("lacking.csv").write_text(text.replace("schooling", "education", 1))
    Path("other.csv").write_text(text.replace("self-employed", "freelance"))
    Path("ragged.csv").write_text(text + "1,2\n")
    Path("words.csv").write_text(text.replace("\n78,", "\nold,", 1).replace("\n36,", "\nyoung,", 1))
    Path("empty.csv").write_text("")
    Path("torn.npz").write_bytes(Path("result.npz").read_bytes()[:-400])
    Path("alone.npz").write_bytes(Path("table.npz").read_bytes())
    Path("broken.py").write_text("def f(:\n")
    Path("bad.run.toml").write_text("epsilon = [")
    Path("newer.run.toml").write_text("format_version = 99\n")
    arrays = dict(np.load("result.npz"))
    header = json.loads(arrays["header"].tobytes())
    header["format_version"] = 99
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez("newer.npz", **arrays)


FIT, NEW = ("--formula", FORMULA), ("--output", "new")
ASKED = ("--formula", "earns_much ~ age", "--delta", "1e-6", "--records", "100")
REFUSED = {
    "no table": (["fit", "absent.csv", *budget(*FIT)], "There is no file absent.csv"),
    "no schema": (["fit", "people.csv", *FIT, "--epsilon", "1", "--delta", "1e-6"], "see dpvi schema draft"),
    "a schema that is not there": (["fit", "people.csv", *budget(*FIT), "--schema", "x.toml"], "no file x.toml"),
    "a draft": (["fit", "people.csv", *budget(*FIT), "--schema", "draft.toml"], "set confirmed_public = true"),
    "a table for a schema": (["fit", "people.csv", *budget(*FIT), "--schema", "people.csv"], "not TOML"),
    "no budget": (["fit", "people.csv", "--schema", "schema.toml", *FIT], "--epsilon and --delta"),
    "no model": (["fit", "people.csv", *budget()], "either --formula"),
    "two models": (["fit", "people.csv", *budget(*FIT, "--model", "table")], "either --formula"),
    "a delimiter": (["fit", "semicolons.csv", *budget(*FIT)], "not divided by commas"),
    "an encoding": (["fit", "latin.csv", *budget(*FIT)], "not text in UTF-8"),
    "no text": (["fit", "binary.csv", *budget(*FIT)], "lacks"),
    "no parquet": (["fit", "text.parquet", *budget(*FIT)], "not a Parquet file"),
    "a column that is not there": (["fit", "lacking.csv", *budget(*FIT)], "lacks 'schooling'"),
    "a column that is not declared": (["fit", "people.csv", *budget("--formula", "earns_much ~ wage")], "'wage'"),
    "a response that is not declared": (["fit", "people.csv", *budget("--formula", "wage ~ age")], "must begin"),
    "a level outside": (["fit", "other.csv", *budget(*FIT)], "outside its declared levels"),
    "lines of other lengths": (["fit", "ragged.csv", *budget(*FIT)], "repair the file"),
    "words among numbers": (["fit", "words.csv", *budget(*FIT)], "must hold numbers"),
    "nothing": (["fit", "empty.csv", *budget(*FIT)], "is empty"),
    "a family": (["fit", "people.csv", *budget(*FIT, "--family", "poisson")], "needs a count column"),
    "no formula": (["fit", "people.csv", *budget("--formula", "earns_much ~ age +")], ""),
    "steps of a formula": (["fit", "people.csv", *budget(*FIT, "--num-steps", "5")], "takes no --num-steps"),
    "a budget that is passed": (
        ["fit", "people.csv", *budget(*FIT, "--ledger", "people.ledger", epsilon="4")],
        "does not hold this run",
    ),
    "a negative budget": (["fit", "people.csv", *budget(*FIT, epsilon="-1")], "epsilon must"),
    "no ledger": (["fit", "people.csv", *budget(*FIT, "--ledger", "no.ledger")], "no.ledger"),
    "a result that is there": (["fit", "people.csv", *budget(*FIT, "--output", "table.npz")], "is there already"),
    "a folder that is not there": (["fit", "people.csv", *budget(*FIT, "--output", "no/x.npz")], "There is no folder"),
    "a file for a folder": (["fit", "people.csv", *budget(*FIT, "--output", "people.csv/x.npz")], "There is no folder"),
    "no such model": (["fit", "people.csv", *budget("--model", "mixture")], "FILE.py:NAME"),
    "no file of a model": (["fit", "people.csv", *budget("--model", "no.py:f")], "There is no file no.py"),
    "no function": (["fit", "people.csv", *budget("--model", "model.py:value")], "it has hours_alone"),
    "a model that is no Python": (["fit", "people.csv", *budget("--model", "broken.py:f")], "could not be run"),
    "a broken run file": (["fit", "bad.run.toml"], "is not the TOML of a run"),
    "a run file of another version": (["fit", "newer.run.toml"], "format 99"),
    "a schema for a run file": (["fit", "schema.toml"], "give it with --schema"),
    "a secret seed": (["fit", "people.csv", *budget(*FIT, "--seed", str(2**130))], "history of the shell"),
    "an option": (["fit", "people.csv", "--epsilon", "much"], "see dpvi fit --help"),
    "no command": (["fitt"], "see dpvi --help"),
    "no result": (["report", "absent.npz"], "There is no file absent.npz"),
    "a table for a result": (["report", "people.csv"], "is not a dpvi result"),
    "a damaged result": (["summary", "torn.npz"], "is damaged"),
    "a result of another version": (["synth", "newer.npz", *NEW], "which this version reads"),
    "a place for a page": (["report", "result.npz", "--output", "no/page.html"], "There is no folder"),
    "a probability": (["summary", "own.npz", "--probability", "2"], "between 0 and 1"),
    "tables that are there": (["synth", "result.npz", "--output", "."], "is there already"),
    "no size": (["synth", "table.npz", *NEW], "--records"),
    "no number": (["synth", "result.npz", "--number", "0", *NEW], "--number must be"),
    "a negative size": (["synth", "result.npz", "--records", "-5", *NEW], "--records must be"),
    "a table in a page's place": (["report", "result.npz", "--output", "people.csv"], "is no page"),
    "a folder for a page": (["report", "result.npz", "--output", "."], "is a folder; give a file"),
    "a result alone": (["synth", "alone.npz", "--records", "5", *NEW], "run file"),
    "clusters": (["evaluate", "table.npz", "--records", "50"], "fit the response by a formula"),
    "a picture": (["preview", "--schema", "schema.toml", *ASKED, "--output", "widths.txt"], ".png, .pdf, .svg"),
    "a preview of nothing": (["preview", "--schema", "schema.toml", *ASKED, "--formula", "wage ~ age"], "must begin"),
    "no plan": (["plan", "--verify", "absent.json"], "There is no file"),
    "a table for a plan": (["plan", "--verify", "people.csv"], "not JSON"),
    "a table for a ledger": (["ledger", "show", "people.csv"], "people.csv"),
    "a key": (["verify", "result.npz", "--key", "absent.pem"], "is not signed"),
    "a draft that is there": (["schema", "draft", "people.csv", "--output", "schema.toml"], "schema.toml"),
    "a confirmed schema of no columns": (["schema", "confirm", "people.csv"], "not TOML"),
    "a table outside its schema": (["schema", "check", "schema.toml", "other.csv"], "'sector'"),
    "an audit of a table": (["audit", "people.csv"], "not JSON"),
    "a table that is there": (["demo", "--csv", "people.csv"], "is there already"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_input_is_answered_by_one_sentence_and_leaves_nothing(name, there, capfd):
    arguments, words = REFUSED[name]
    prepare_bad_files()
    before = {path: (there / path).stat().st_mtime_ns for path in names_of(there)}
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    said = [line for line in capfd.readouterr().err.splitlines() if "cpu_aot_loader" not in line]
    assert code == 2
    assert len([line for line in said if not line.startswith("Warning: ")]) == 1, said
    assert words in said[-1]
    assert said[-1].startswith("dpvi")
    assert "Traceback" not in "".join(said)
    assert {path: (there / path).stat().st_mtime_ns for path in names_of(there)} == before


def test_a_paid_result_is_not_lost_where_there_is_no_space(there, capfd, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write, calls = dpvi.Result.save, []

    def full(self, path):
        calls.append(path)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(self, path)

    monkeypatch.setattr(dpvi.Result, "save", full)
    assert main(["fit", "own.run.toml", "--output", "again.npz", "--quiet"]) == 2
    assert "its budget is spent" in capfd.readouterr().err
    (kept,) = tmp_path.glob("again-*.npz")
    assert dpvi.Result.load(kept).plan == dpvi.Result.load("own.npz").plan
    assert not Path("again.npz").exists()
    assert not Path("again.run.toml").exists()


def test_every_command_shows_an_example(capsys):
    parser = build_parser()
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        with pytest.raises(SystemExit):
            parser.parse_args([name, "--help"])
        shown = capsys.readouterr().out
        assert f"\nexample:\n  dpvi {name}" in shown, name


def test_what_an_example_says_is_understood():
    """Every example parses, so that none can be left behind by an option that was renamed."""
    found = []
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        for action in build_parser()._actions[-1].choices[name].epilog.splitlines()[1:]:
            found.append(action.strip())
            build_parser().parse_args(shlex.split(action)[1:])
    assert len(found) >= len(COMMANDS)
