"""``dpvi plan`` from the outside: what is printed, what is written, what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dpvi
from dpvi.cli.main import build_parser, main
from dpvi.declared.plan import Plan
from dpvi.declared.validation import CompilerError

SETTINGS = ["--delta", "1e-5", "--sampling-rate", "0.05", "--num-steps", "100", "--clip-norm", "3"]


def test_prints_the_guarantee_and_writes_the_plan(capsys, tmp_path):
    path = tmp_path / "plan.json"
    assert main(["plan", "--epsilon", "1", *SETTINGS, "--output", str(path)]) == 0
    output = capsys.readouterr().out
    plan = Plan.load(path)
    assert str(plan.guarantee) in output
    assert f"{plan.noise_multiplier:.6g}" in output
    assert main(["plan", "--verify", str(path)]) == 0
    assert "The claim holds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*SETTINGS[:-2], "--layer", "enc*=3", "--layer", "*=4"], "layer            enc*: clip norm 3, noise scale"),
        ([*SETTINGS, "--target-quantile", "0.9", "--expected-batch", "50"], "from 3 on, follows the 0.9 quantile"),
    ],
)
def test_other_kinds_of_clipping_cost_the_same_and_are_verified(arguments, words, capsys, tmp_path):
    path = tmp_path / "plan.json"
    assert main(["plan", "--noise-multiplier", "4", *arguments, "--output", str(path)]) == 0
    assert main(["plan", "--noise-multiplier", "4", *SETTINGS]) == 0
    assert main(["plan", "--verify", str(path)]) == 0
    made, plain, verified = capsys.readouterr().out.split("(ε = ")[1:]
    assert words in made
    assert words in verified
    assert made.split(",")[0] == plain.split(",")[0] == verified.split(",")[0]


def test_units_of_several_rows_are_named_and_stored(capsys, tmp_path):
    path = tmp_path / "plan.json"
    several = ["--unit", "one patient", "--rows-per-unit", "3"]
    assert main(["plan", "--epsilon", "1", "--delta", "1e-6", *several, "--output", str(path)]) == 0
    assert "adding or removing one patient with at most 3 rows changes" in capsys.readouterr().out
    assert Plan.load(path).rows_per_unit == 3
    assert main(["plan", "--verify", str(path)]) == 0
    assert main(["plan", "--epsilon", "1", *SETTINGS, *several, "--compare"]) == 2
    assert "units of one row" in capsys.readouterr().err


def test_compare_prints_every_accountant(capsys):
    assert main(["plan", "--epsilon", "1", *SETTINGS, "--compare"]) == 0
    output = capsys.readouterr().out
    for words in ("privacy loss distributions", "Rényi", "Gaussian limit", "advanced composition", "Not a bound"):
        assert words in output


def test_substitution_and_given_noise(capsys):
    assert main(["plan", "--noise-multiplier", "6", *SETTINGS, "--adjacency", "substitute"]) == 0
    output = capsys.readouterr().out
    assert "replacing one record" in output
    assert "noise multiplier 6\n" in output


def test_without_steps_a_plan_measures(capsys, tmp_path):
    path = tmp_path / "plan.json"
    assert main(["plan", "--epsilon", "1", "--delta", "1e-6", "--output", str(path)]) == 0
    made = capsys.readouterr().out
    assert "sum over all records" in made
    assert [f"release            {name}" in made for name in ("gradients", "histograms")] == [True] * 2
    assert main(["plan", "--verify", str(path)]) == 0
    assert main(["plan", "--epsilon", "1", "--delta", "1e-6", "--num-records", "90"]) == 0
    assert "histograms" not in capsys.readouterr().out.partition("(ε = 1")[2].partition("(ε = 1")[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "1", "--delta", "1e-6", "--num-steps", "9"], "also needs --sampling-rate, --clip-norm"),
        (["--noise-multiplier", "1", "--delta", "1e-6"], "noise_multiplier is a setting of steps"),
        (["--epsilon", "-1", *SETTINGS], "epsilon must be finite and greater than 0"),
        (["--epsilon", "nan", *SETTINGS], "epsilon must"),
        ([*SETTINGS], "exactly one of epsilon"),
        (["--epsilon", "1", *SETTINGS, "--delta", "1"], "delta must lie strictly"),
        (["--epsilon", "1", *SETTINGS, "--adjacency", "shuffle"], "adjacency must be"),
        (["--epsilon", "1", *SETTINGS[2:]], "also needs --delta"),
        (["--epsilon", "1", *SETTINGS, "--layer", "a=1"], "leave clip_norm out"),
        (["--epsilon", "1", *SETTINGS, "--layer", "a"], "takes PATTERN=NORM"),
        (["--epsilon", "1", *SETTINGS, "--target-quantile", "0.5"], "expected_batch"),
        (["--epsilon", "1", *SETTINGS, "--expected-batch", "5"], "--target-quantile too"),
        (["--verify", "missing.json"], "missing.json"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_written(arguments, words, capsys, tmp_path):
    path = tmp_path / "plan.json"
    assert main(["plan", *arguments, "--output", str(path)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not path.exists()


def test_a_plan_replaces_no_table(capsys, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("age\n4\n")
    assert main(["plan", "--epsilon", "1", *SETTINGS, "--output", str(table)]) == 2
    assert "is no plan" in capsys.readouterr().err
    assert table.read_text() == "age\n4\n"


def test_a_false_claim_is_refused(capsys, tmp_path):
    path = tmp_path / "plan.json"
    main(["plan", "--epsilon", "1", *SETTINGS, "--output", str(path)])
    path.write_text(path.read_text().replace('"epsilon": 1.0', '"epsilon": 0.5'))
    capsys.readouterr()
    assert main(["plan", "--verify", str(path)]) == 2
    assert "The plan claims epsilon = 0.5" in capsys.readouterr().err


def test_a_large_epsilon_is_warned_about_on_the_console(capsys):
    assert main(["plan", "--epsilon", "20", *SETTINGS]) == 0
    assert "Warning: epsilon = 20 is above 10" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[1]", '"ab"', "[{}]"])
def test_a_plan_whose_columns_are_none_is_refused(content, capsys, tmp_path):
    path = tmp_path / "plan.json"
    main(["plan", "--epsilon", "1", *SETTINGS, "--output", str(path)])
    path.write_text(path.read_text().replace('"covariates": null', f'"covariates": {content}'))
    capsys.readouterr()
    assert main(["plan", "--verify", str(path)]) == 2
    assert "not a complete dpvi plan" in capsys.readouterr().err


@pytest.mark.parametrize("error", [CompilerError("This JAX is not for us."), MemoryError("Too small a machine.")])
def test_what_a_fit_refuses_is_one_sentence_too(error, capsys, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("dpvi.fit", refuse, raising=False)
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 2
    assert capsys.readouterr().err == f"dpvi demo: {error}\n"
    assert not (tmp_path / "demo").exists()


def test_help_names_what_the_commands_do():
    words = build_parser().format_help()
    assert all(name in words for name in ("plan", "schema", "demo"))
    assert "\n    publish" not in words  # there is no such command


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert (stop.value.code, capsys.readouterr().out) == (0, f"dpvi {dpvi.__version__}\n")


def test_help_imports_no_numerical_package():
    script = (
        "import sys\nfrom dpvi.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'jax', 'numpy', 'scipy', 'dp_accounting'} & set(sys.modules)\nassert not heavy, heavy"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "plan" in output


def test_planning_imports_no_jax():
    arguments = ["plan", "--epsilon", "1", *SETTINGS, "--compare"]
    script = (
        f"import sys\nfrom dpvi.cli.main import main\nassert main({arguments!r}) == 0\nassert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
