"""The wizard in a real browser, from a file to a bundle, with what people get wrong on the way."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import numpy as np
import pytest
from support.browser import Browser, until
from support.launch import REPOSITORY, environment
from support.pages import needs_chromium

import dpvi.regression

SECRET = 7313.0625
AGREED = "The bounds and levels are public knowledge, and I may spend this budget on these people."
pytestmark = needs_chromium


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A table whose last record lies far beyond all bounds."""
    rng = np.random.default_rng(11)
    age, charge = rng.uniform(18, 70, 2000), rng.choice(["theft", "drug", "other"], 2000)
    recid = rng.uniform(size=2000) < 1 / (1 + np.exp(0.06 * (age - 40)))
    age[-1] = SECRET
    rows = [f"{a},{c},{int(r)},{i}" for i, (a, c, r) in enumerate(zip(age, charge, recid, strict=True))]
    path = tmp_path_factory.mktemp("table") / "people.csv"
    path.write_text("\n".join(["age,charge,recid,number", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """The address of a studio, and what its console says and its folders hold in the end."""
    folder = tmp_path_factory.mktemp("temporary")
    cache = {"JAX_COMPILATION_CACHE_DIR": str(REPOSITORY / ".pytest_cache" / "compiled")}
    settings = {name: value for name, value in environment().items() if not name.startswith("PYTEST")}
    process = subprocess.Popen(
        [sys.executable, "-m", "dpvi.cli.main", "studio", "--no-browser"],
        env={**settings, **cache, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert "Traceback" not in said
    assert str(SECRET) not in said
    assert list(folder.iterdir()) == []  # the table is gone


@pytest.fixture(scope="module")
def browser(studio):
    with Browser() as opened:
        until(lambda: opened.open(studio) or "From a table" in opened.text())
        yield opened


def declare(browser):
    browser.choose("kind of age", "Number")
    browser.type("smallest value of age", "18")
    browser.type("largest value of age", "90")
    browser.choose("kind of charge", "Categories")
    browser.type("levels, separated by commas of charge", "theft, drug")
    browser.choose("kind of recid", "Yes / no")


def test_from_a_file_to_a_bundle(browser, studio, people, tmp_path):
    browser.save_downloads(tmp_path)
    browser.click("Continue")
    browser.wait_for("Drop a CSV file first.")
    wrong = tmp_path / "wrong.csv"
    wrong.write_bytes(b"PK\x03\x04")
    browser.drop(wrong)
    browser.wait_for("wrong.csv is an Excel workbook or another archive and not a CSV file")
    browser.drop(people)
    browser.wait_for("people.csv: 4 columns")
    assert "theft" not in browser.text()
    browser.click("Continue")
    browser.wait_for("Say what is publicly known")
    browser.click("Continue")
    browser.wait_for("Declare at least two columns")
    declare(browser)
    browser.click("Continue")
    browser.wait_for("Which column is to be explained")
    browser.click("Continue")
    browser.wait_for("Choose a response")
    browser.choose("Response", "recid")
    browser.choose("Predictors", "age", "charge")
    browser.type("Formula", "recid ~ age + weight")
    browser.click("Continue")
    browser.wait_for("weight")
    browser.type("Formula", "recid ~ age + C(charge)")
    browser.click("Continue")
    browser.wait_for("Epsilon bounds what anybody can learn")
    browser.type("Epsilon", "-1")
    browser.click("Continue")
    browser.wait_for("Epsilon must be a number above zero.")
    browser.type("Epsilon", "1")
    browser.click("Continue")
    browser.wait_for("adding or removing one person changes")
    browser.click("Run and spend the budget")
    browser.wait_for("Tick the box first")
    browser.click(AGREED)
    browser.click("Run and spend the budget")
    browser.wait_for("outside its declared levels")  # a charge that nobody declared
    for _ in range(3):
        browser.click("Back")
    browser.type("levels, separated by commas of charge", "theft, drug, other")
    for words in ("Which column is to be explained", "Epsilon bounds", "adding or removing one person changes"):
        browser.click("Continue")
        browser.wait_for(words)
    browser.click("Run and spend the budget")
    browser.wait_for("Download everything")
    browser.click("Download everything")
    until(lambda: (tmp_path / "dpvi-bundle.zip").exists())
    check_bundle(tmp_path)
    port = studio.split(":")[2].split("/")[0]
    assert all(f"127.0.0.1:{port}" in each or each.startswith(("data:", "blob:")) for each in browser.requests)
    assert browser.complaints == []


def check_bundle(folder):
    """It holds a fit with a promise, a page, and no value that only a record has."""
    with zipfile.ZipFile(folder / "dpvi-bundle.zip") as archive:
        archive.extractall(folder / "out")
    fitted = dpvi.regression.load(folder / "out" / "result.npz")
    assert fitted.guarantee.epsilon == pytest.approx(1)
    table = fitted.summary()
    place = table.names.index("age")
    assert table.lower[place] < -0.06 < table.upper[place]
    assert "<html" in (folder / "out" / "report.html").read_text()
    for path in (folder / "out").iterdir():
        assert str(SECRET).encode() not in path.read_bytes()


def test_nobody_else_comes_in(browser, studio):
    address = studio.split("?")[0]
    with Browser() as stranger:
        until(lambda: stranger.open(address) or "belongs to whoever started it" in stranger.text())
        assert "people.csv" not in stranger.text()
