"""What the studio runs in a process of its own: ``python -m dpvi.studio.worker job.json`` prints what it found as JSON.

A process of its own leaves the page responsive, can be stopped, and gives its memory back. Progress goes to standard
error as anywhere else, the answer to standard output.
"""

from __future__ import annotations

import csv
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from dpvi.declared.validation import CompilerError

_EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError, NotImplementedError, CompilerError, csv.Error)


def main(path: str) -> int:
    """Do the job that the file describes."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            answer = JOBS[job["kind"]](job)
        answer["warnings"] = sorted({str(each.message) for each in caught if issubclass(each.category, UserWarning)})
    except _EXPECTED as error:
        answer = {"error": _sentence(error)}
    print(json.dumps(answer, ensure_ascii=False))
    return 0


def _sentence(error: Exception) -> str:
    """What went wrong, without what a decoder would tell of the records."""
    if isinstance(error, UnicodeDecodeError):
        return "The table is not text in UTF-8; save it as CSV in UTF-8 and drop it again."
    if isinstance(error, csv.Error):
        return "The table cannot be read as CSV; save it again with commas, quotes around texts that hold commas."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used ({error.strerror}); check the path and who may write there."
    return " ".join(str(error).split())


def check(job: dict[str, Any]) -> dict[str, Any]:
    """Whether formula, family and declarations fit together, and what will be promised."""
    model, plan = _model_and_plan(job)
    return {"terms": list(model.design.names), "guarantee": str(plan.guarantee)}


def preview(job: dict[str, Any]) -> dict[str, Any]:
    """Expected widths of intervals, from simulated records."""
    import dpvi

    model, _ = _model_and_plan(job)
    found = dpvi.preview(
        job["formula"], model.schema, family=job["family"], num_records=job["num_records"], epsilon=job["epsilons"],
        delta=job["delta"],
    )  # fmt: skip
    return {"names": list(found.names), "width": found.width[:, 0].tolist(), "without": found.nonprivate[0].tolist()}


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """One private run; its result and its report are written into the job's folder."""
    import dpvi

    model, plan = _model_and_plan(job)
    ledger = dpvi.Ledger(job["ledger"]) if job["ledger"] else None
    fitted = dpvi.glm(job["formula"], Path(job["table"]), model.schema, family=job["family"], plan=plan, ledger=ledger)
    folder = Path(job["folder"])
    fitted.save(folder / "result.npz")
    fitted.report(folder / "report.html", title=job["title"], command=job["command"])
    table = fitted.summary()
    return {"guarantee": str(fitted.guarantee), "summary": str(table)}


JOBS = {"check": check, "preview": preview, "fit": fit}


def _model_and_plan(job: dict[str, Any]) -> tuple[Any, Any]:
    import dpvi
    from dpvi.models.formula import FormulaModel

    model = FormulaModel(job["formula"], dpvi.Schema.from_dict(job["schema"]), job["family"])
    plan = dpvi.plan(
        epsilon=job["epsilon"],
        delta=job["delta"],
        covariates=model.covariates(),
        unit=job["unit"],
        rows_per_unit=job["rows_per_unit"],
    )
    return model, plan


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
