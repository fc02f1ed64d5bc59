"""Pages say what is there: the tree of the architecture page, links between pages, and what blocks of code print."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import jax
import pytest

from dpvi.declared.validation import PrivacyWarning

REPOSITORY = Path(__file__).parents[1]
PAGES = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
_COLUMN = 24  # where names of modules begin in the tree


def listed(page: str) -> dict[str, list[str]]:
    """``{folder: modules}`` of the tree that a page shows."""
    tree = page.partition("src/dpvi/\n")[2].partition("studies/ ")[0]
    found: dict[str, list[str]] = {}
    folder = ""
    for line in tree.splitlines():
        if not line[2].isspace():
            folder = line.split()[0].strip("/")
        if len(line) > _COLUMN and line[_COLUMN - 1].isspace():  # else a folder with a long name and nothing beside it
            found.setdefault(folder, []).extend(re.split(r",\s*", line[_COLUMN:].split("  ")[0].strip()))
    return found


def there() -> dict[str, list[str]]:
    """The same, from the folders."""
    source = REPOSITORY / "src" / "dpvi"
    found: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        if path.stem != "__init__":
            found.setdefault(path.parent.relative_to(source).as_posix(), []).append(path.stem)
    return found


def differences(page: str) -> list[str]:
    shown, found = listed(page), there()
    return [
        f"{folder}: {name}"
        for folder in {*shown, *found}
        for name in {*shown.get(folder, ())} ^ {*found.get(folder, ())}
    ]


def test_the_architecture_page_lists_every_module_and_no_other():
    page = (REPOSITORY / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    assert differences(page) == []
    assert all(len(names) == len(set(names)) for names in listed(page).values())
    assert differences(page.replace("bounded_sum, exchange", "bounded_sum")) == ["mechanism: exchange"]
    assert differences(page.replace("chacha_kernel", "chacha_core")) != []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    assert missing == []


def test_every_page_is_linked_from_another():
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
        if "://" not in target
    }
    assert [page.name for page in PAGES if page.name != "README.md" and page.resolve() not in linked] == []


def _without_numbers(text: str) -> list[list[str]]:
    """Words of every line, with numbers replaced: they differ by rounding from machine to machine."""
    lines = [re.sub(r"-?\d+(\.\d+)?(e[+-]\d+)?", "#", line).split() for line in text.splitlines()]
    return [line for line in lines if line]


def _run(name: str, num_blocks: int, capsys: pytest.CaptureFixture[str]) -> dict:
    """Run the blocks of a page in order, compare what they print, and return their variables."""
    page = (REPOSITORY / "docs" / "how-to" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|text)\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == num_blocks
    namespace: dict = {"__name__": "a page"}
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces 1.0
        warnings.simplefilter("ignore", PrivacyWarning)
        for kind, content in blocks:
            if kind == "python":
                exec(compile(content, name, "exec"), namespace)
            else:
                assert _without_numbers(capsys.readouterr().out) == _without_numbers(content)
    return namespace


def test_what_follows_a_fit_runs_and_prints_what_the_page_shows(capsys):
    namespace = _run("after-the-fit.md", 11, capsys)
    summary = namespace["posterior"].summary()
    assert summary.lower[0] < 1 < summary.upper[0]  # what the page's records were drawn with
    assert summary.lower[1] < -1 < summary.upper[1]


def test_a_pymc_model_is_fitted_as_the_page_shows(capsys, monkeypatch):
    monkeypatch.setenv("PYTENSOR_FLAGS", "cxx=,blas__ldflags=")  # PyTensor would look for both, and needs neither here
    pytest.importorskip("pymc", reason="PyMC is optional and not installed here: pip install 'dpvi[pymc]'")
    namespace = _run("pymc-models.md", 6, capsys)
    summary = namespace["posterior"].summary()
    assert summary.lower[0] < 1 < summary.upper[0]  # what the page's records were drawn with
