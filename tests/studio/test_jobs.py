"""Jobs in processes of their own: answers, sentences, progress, and what is packed in the end."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
import zipfile

import pytest

from dpvi.cli.run_file import read_run_file
from dpvi.studio import jobs, worker
from dpvi.studio.bundle import write_bundle
from dpvi.studio.jobs import JobError, Jobs
from dpvi.studio.session import Session
from dpvi.table import Boolean, Categorical, Count, Numeric, Schema

SCHEMA = Schema({"ill": Boolean(), "age": Numeric(18, 90), "sex": Categorical(("f", "m")), "visits": Count(9)})


@pytest.fixture
def session(tmp_path):
    return Session(
        tmp_path, "people.csv", schema=SCHEMA, response="ill", predictors=["age"], family="bernoulli",
        formula="ill ~ age + C(sex) + visits",
    )  # fmt: skip


def in_place_of_the_worker(monkeypatch, code: str) -> Jobs:
    """Jobs whose process runs ``code`` instead."""
    start = asyncio.create_subprocess_exec

    async def other(*_, **pipes):
        return await start(sys.executable, "-c", code, **pipes)

    monkeypatch.setattr(jobs.asyncio, "create_subprocess_exec", other)
    return Jobs()


def answer_of(job: dict, tmp_path, capsys) -> dict:
    """What the worker prints."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    assert worker.main(str(path)) == 0
    return json.loads(capsys.readouterr().out)


def test_progress_is_told_and_the_last_line_is_the_answer(monkeypatch):
    code = (
        "import sys; print('noise'); sys.stderr.write('\\r a  40%|###| 4/10\\r a 100%|###| 10/10'); print('{\"a\": 1}')"
    )
    told: list[float] = []
    running = in_place_of_the_worker(monkeypatch, code)
    assert asyncio.run(running.run("fit", {}, told.append)) == {"a": 1}
    assert told[-1] == 1.0
    assert not running.busy


def test_what_ends_without_an_answer_is_told_in_one_sentence(monkeypatch):
    running = in_place_of_the_worker(monkeypatch, "raise SystemExit('Ada Lovelace, 41')")
    with pytest.raises(JobError, match="ended unexpectedly") as found:
        asyncio.run(running.run("fit", {}))
    assert "Ada" not in str(found.value)


def test_a_job_is_stopped_and_a_second_one_waits(monkeypatch):
    running = in_place_of_the_worker(monkeypatch, "import time; time.sleep(600)")

    async def both():
        first = asyncio.create_task(running.run("fit", {}))
        while not running.busy:
            await asyncio.sleep(0.01)
        with pytest.raises(JobError, match="still going on"):
            await running.run("check", {})
        running.stop()
        await first

    with pytest.raises(JobError, match="Stopped"):
        asyncio.run(both())


def test_a_question_is_checked_before_anything_is_spent(session, tmp_path, capsys):
    good = answer_of({"kind": "check", **session.job()}, tmp_path, capsys)
    assert good["terms"] == ["age", "C(sex)[T.m]", "visits"]
    assert "adding or removing one person" in good["guarantee"]
    for formula, words in (("ill ~ age + weight", "weight"), ("ill ~ age +", "formula"), ("ill ~ scale(age)", "scale")):
        session.formula = formula
        assert words in answer_of({"kind": "check", **session.job()}, tmp_path, capsys)["error"]


TABLES = {
    "another level": ("ill,age,sex,visits\n1,41,Ada,2\n", "declared levels"),
    "a column that is not there": ("ill,age,sex\n1,41,f\n", "lacks"),
    "text among numbers": ("ill,age,sex,visits\n1,Ada,f,2\n", "age"),
    "a short line": ("ill,age,sex,visits\n1,41,f\n", "another number of cells"),
    "no records": ("ill,age,sex,visits\n", "no records"),
    "another encoding": ("ill,age,sex,visits\n1,41,Adä,2\n".encode("latin-1"), "not text in UTF-8"),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_do_not_fit_are_refused_without_a_value_of_theirs(case, session, tmp_path, capsys):
    content, words = TABLES[case]
    session.path.write_bytes(content if isinstance(content, bytes) else content.encode())
    answer = answer_of({"kind": "fit", "title": "", "command": "", **session.job()}, tmp_path, capsys)
    assert words in answer["error"]
    assert "Ad" not in answer["error"]
    assert not (tmp_path / "result.npz").exists()


def test_errors_of_files_are_sentences():
    assert "cannot be read as CSV" in worker._sentence(csv.Error("line contains NUL"))
    assert "check the path" in worker._sentence(PermissionError(13, "Permission denied", "people.ledger"))


def test_a_bundle_repeats_the_run_and_holds_no_record(session, tmp_path):
    with pytest.raises(ValueError, match="no run yet"):
        write_bundle(session)
    session.path.write_text("ill,age,sex,visits\n1,41.625,f,2\n")
    session.answer = {"guarantee": "(ε = 1, δ = 1e-06)-differential privacy"}
    for name in ("report.html", "result.npz"):
        (tmp_path / name).write_text("released")
    with zipfile.ZipFile(write_bundle(session)) as archive:
        archive.extractall(tmp_path / "out")
        content = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(content) == {
        *("report.html", "result.npz", "result.run.toml", "schema.toml", "notebook.ipynb", "README.txt")
    }
    assert not any("41.625" in text for text in content.values())
    settings = read_run_file(tmp_path / "out" / "result.run.toml")
    assert (settings.formula, settings.family, settings.epsilon) == (session.formula, "bernoulli", 1.0)
    assert settings.declared == Schema.load(tmp_path / "out" / "schema.toml") == SCHEMA
    cells = json.loads(content["notebook.ipynb"])["cells"]
    assert eval(cells[-1]["source"].removeprefix("fitted.predict")) == {"age": [54.0], "sex": ["f"], "visits": [4.5]}
