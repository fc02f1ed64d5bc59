"""The search for leaks is tried on leaks: what is left behind on purpose is found, and nothing else."""

from __future__ import annotations

import logging
import pickle
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from support.leaks import leaves, observe, of_figure
from support.marked import COUNT, LABEL, MARKER, SECRETS, SLOTS, Y
from tqdm import tqdm

matplotlib.use("Agg")


def _raise(text: str) -> Any:
    try:
        raise ValueError(text)
    except ValueError:
        raise RuntimeError("failed") from None  # the text is in __context__ all the same


def _warn_and_log(_: Path) -> None:
    warnings.warn(f"{COUNT + 1} records", stacklevel=1)
    logging.getLogger("somewhere").info("%s", MARKER)


def _bar(_: Path) -> None:
    list(tqdm(range(COUNT)))


def _save(folder: Path, **arrays: Any) -> None:
    np.savez(folder / "leak.npz", **arrays)


LEAKING = {
    "a printed number of records": lambda _: print(f"n={COUNT:,}"),
    "a shape": lambda _: np.zeros((3, COUNT)),
    "a batch size": lambda _: {"slots": SLOTS},
    "a mean without noise": lambda folder: _save(folder, mean=Y.mean(0).astype(np.float32)),
    "a mean in a closure": lambda _: _holding(Y.mean(0)),
    "a sum in a text": lambda folder: (folder / "sum.json").write_text(f'{{"sum": {Y.sum(0)[0]:.6g}}}'),
    "a pickled record": lambda folder: (folder / "x.pkl").write_bytes(pickle.dumps({"a": [Y[17]]})),
    "a label": lambda _: [{"level": f"was {LABEL}"}],
    "an exception below another": lambda _: _raise(f"{MARKER}"),
    "a warning": _warn_and_log,
    "a progress bar": _bar,
}


def _holding(array: Any) -> Any:
    return lambda: array


@pytest.mark.parametrize("name", LEAKING)
def test_the_search_finds_what_leaks(name, tmp_path, capfd):
    seen = observe(LEAKING[name], tmp_path / "out", capfd)
    assert SECRETS.found_in(seen.leaves())


def test_the_search_finds_what_a_figure_shows():
    for draw in (
        lambda axes: axes.plot([0, 1], [0, MARKER]),
        lambda axes: axes.scatter([1, 2], [COUNT, 3]),
        lambda axes: axes.set_title(f"{COUNT} records"),
        lambda axes: axes.hist(Y[:, 1], bins=1),
    ):
        figure, axes = plt.subplots()
        draw(axes)
        assert SECRETS.found_in(of_figure(figure))
        plt.close(figure)


def test_the_search_finds_nothing_in_innocent_numbers():
    innocent = {"a": np.arange(700.0), "text": "0.1237 12370 a1237 v8675309x", "settings": (0.5, 64)}
    assert SECRETS.found_in(leaves("here", innocent)) == []
