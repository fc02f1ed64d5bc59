"""Run by a Python that has diffprivlib, which dpvi has not: ``python diffprivlib_script.py FOLDER``.

Reads ``data.npz`` and ``request.json`` in the folder and writes ``answer.json``.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")  # it warns of values beyond declared bounds and clips them
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    data = np.load(folder / "data.npz")
    answer: dict[str, list[Any]] = {"slopes": [], "intercepts": [], "seconds": []}
    for number, (x, y) in enumerate(zip(data["x"], data["y"], strict=True)):
        started = time.perf_counter()
        fitted = _regression(request, request["first_seed"] + number).fit(x, y)
        answer["seconds"].append(time.perf_counter() - started)
        answer["slopes"].append(np.ravel(fitted.coef_).tolist())
        answer["intercepts"].append(float(np.ravel(fitted.intercept_)[0]) if request["intercept"] else 0.0)
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _regression(request: dict[str, Any], seed: int) -> Any:
    from diffprivlib.models import LinearRegression, LogisticRegression

    lower, upper = np.asarray(request["bounds"]).T
    options = {"epsilon": request["epsilon"], "fit_intercept": request["intercept"], "random_state": seed}
    if request["kind"] == "logistic":
        norm = float(np.linalg.norm(np.maximum(np.abs(lower), np.abs(upper))))
        return LogisticRegression(data_norm=norm, max_iter=1000, **options)
    bound = request["response_bound"]
    return LinearRegression(bounds_X=(lower, upper), bounds_y=(-bound, bound), **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
