"""Nothing that the library returns, writes, prints, warns or raises holds a record or the number of records.

Every public name is in one of the tables below, so that a new one cannot be forgotten: what takes records is called
with marked ones and searched, what the custodian alone may see must be marked SENSITIVE, and the rest takes no records.
"""

from __future__ import annotations

import functools
import os
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from support.leaks import observe, of_figure, secrets_of
from support.marked import COUNT, LABEL, MARKER, PLAN, RATE, SECRETS, Y
from support.small_models import histogram_plan, private_plan

import dpvi
from dpvi.cli.main import COMMANDS, main
from dpvi.reporting import plot_noisy_gradients, write_report
from dpvi.run.program.loop import Run
from dpvi.table import Categorical, Numeric, Schema

matplotlib.use("Agg")

DEMO_COUNT = 12391


def location(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(z, 1).to_event(1), obs=y)


def location_guide(y):
    at = numpyro.param("at", jnp.zeros(2))
    numpyro.sample("z", dist.Normal(at, 1).to_event(1))


def functions():
    return dpvi.from_functions(lambda z: -0.5 * z @ z, lambda z, y: -0.5 * jnp.sum((y - z) ** 2), 2)


SCHEMA = Schema({"job": Categorical(("a", "b", "other"), other="other"), "pay": Numeric(0, 100)})


def people() -> dict[str, Any]:
    """A table with a level that the schema does not have, and a value far beyond its bounds."""
    job = np.where(np.arange(COUNT) % 2, "a", "b").astype(object)
    job[5] = LABEL
    pay = np.linspace(0, 90, COUNT)
    pay[6] = MARKER
    return {"job": job, "pay": pay}


fit = functools.partial(dpvi.fit, location, plan=PLAN, seed=1, progress=True)


def fitted_and_used(folder: Path) -> Any:
    """All that is made of a result: its file, what comes back, posteriors, pictures."""
    result = fit(Y)
    result.save(folder / "result.npz")
    loaded = dpvi.Result.load(folder / "result.npz", model=location)
    posteriors = [loaded.posterior(method) for method in ("last", "average", "stationary")]
    noise_aware = fit(Y, estimator=dpvi.Vanilla())
    posteriors.append(noise_aware.posterior("na_dpvi"))
    summaries = [str(posterior.summary(num_samples=100, key=jax.random.key(0))) for posterior in posteriors]
    print(result, loaded, result.guarantee, *posteriors)
    figure = plot_noisy_gradients(noise_aware, 0)
    figure.savefig(folder / "noisy.png")
    figure.savefig(folder / "noisy.svg")
    write_report(loaded, folder / "report.html")
    return result, loaded, posteriors, summaries, list(of_figure(figure))


def from_disk(folder: Path) -> Any:
    records = folder.parent / "records"
    records.mkdir()
    np.save(records / "y.npy", Y)
    return fit(dpvi.open_npy(records))


def from_a_table(opened: Any, write: Any, ending: str) -> Any:
    def run(folder: Path) -> Any:
        path = folder.parent / f"records{ending}"
        write(arrow.table({"a": Y[:, 0], "b": Y[:, 1]}), path)
        return fit(opened(path, {"y": ["a", "b"]}))

    return run


def write_arrow(table: Any, path: Path) -> None:
    with arrow.OSFile(str(path), "wb") as file, arrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def with_a_table(folder: Path) -> Any:
    model = dpvi.TableModel(SCHEMA, num_components=2)
    result = dpvi.fit(model, SCHEMA.encode(people()), PLAN, seed=1, progress=True)
    data = dpvi.synthesize(result, model, SCHEMA, num_records=50, num_datasets=2, key=jax.random.key(1))
    data.save(folder / "csv")
    data.save(folder / "parquet", format="parquet")
    SCHEMA.save(folder / "schema.toml")
    both = {"table": result, "location": fit(Y)}
    joined = dpvi.join({name: (each, each.posterior("last")) for name, each in both.items()})
    return result, data, data.table(0, to="columns"), joined


def with_a_formula(folder: Path) -> Any:
    arguments = {"family": "gaussian", "epsilon": 1.0, "delta": 1e-5, "seed": 1}
    found = dpvi.glm("pay ~ job", people(), SCHEMA, **arguments)
    found.save(folder / "regression.npz")
    loaded = dpvi.regression.load(folder / "regression.npz")
    print(found, loaded.summary(), loaded.prior_summary(), loaded.predict({"job": ["a", "b"]}))
    return found.result, loaded.summary(), loaded.result.recipe


def many(folder: Path) -> Any:
    return dpvi.fit_many(location, np.stack([Y, Y]), PLAN, seeds=[1, 2], directory=folder / "study")


def many_of_one(folder: Path) -> Any:
    return dpvi.fit_many(location, Y, PLAN, seeds=[1, 2], same_data=True, group_size=1, directory=folder / "study")


def dpsvi(folder: Path) -> Any:
    run = dpvi.DPSVI(location, location_guide, optax.adam(0.1), plan=PLAN).run(jax.random.key(3), Y)
    run.result.save(folder / "result.npz")
    stepwise = dpvi.DPSVI(location, location_guide, optax.adam(0.1), plan=PLAN)
    state = stepwise.update(stepwise.init(jax.random.key(4), Y), Y)
    (folder / "state.pkl").write_bytes(pickle.dumps(jax.tree.map(np.asarray, state)))
    return run, state, stepwise.get_params(state)


def with_histograms(folder: Path) -> Any:
    def regression(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Normal(x[:, 0] * w, 1), obs=y)

    plan = histogram_plan((dpvi.Numeric(-4, 4, bins=8),), schedule=dpvi.Schedule(num_blocks=2), num_steps=100)
    result = dpvi.fit(regression, (Y[:, 1:], Y[:, 0]), plan, seed=1)
    result.save(folder / "result.npz")
    return result


def with_pymc(folder: Path) -> Any:
    os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,blas__ldflags=")  # nothing is compiled by PyTensor
    pm = pytest.importorskip("pymc", reason="PyMC is optional and not installed here: pip install 'dpvi[pymc]'")
    with pm.Model() as held:
        z = pm.Normal("z", 0.0, 1.0, shape=2)
        pm.Deterministic("fitted", z + pm.Data("y", Y, dims=("person", "column")))
        pm.Normal("response", z, 1.0, observed=held["y"], dims=("person", "column"))
    model = dpvi.from_pymc(held, record_dim="person")
    result = dpvi.fit(model, {"y": Y}, PLAN, seed=1, progress=True)
    result.save(folder / "result.npz")
    (folder / "result.pickle").write_bytes(pickle.dumps(result))
    print(result, result.posterior("last").summary())
    return result, model


def measuring(folder: Path) -> Any:
    result = dpvi.fit(location, Y, dpvi.plan(epsilon=1.0, delta=1e-5), seed=1)
    result.save(folder / "result.npz")
    posterior = result.posterior()
    write_report(result, folder / "report.html", posterior=posterior)
    print(result, posterior)
    return result, posterior, str(posterior.summary())


def an_estimator(folder: Path) -> Any:
    estimator = dpvi.PrivateBayesianLinearRegression(
        epsilon=1.0, delta=1e-5, bounds=(-4, 4), y_bounds=(-4, 4), random_state=1
    )
    x, y = dpvi.BoundedScaler((-4, 4)).fit_transform(Y[:, 1:]) * 4, Y[:, 0]
    estimator.fit(x, y)
    (folder / "estimator.pkl").write_bytes(pickle.dumps(estimator))
    print(estimator, estimator.intervals(), estimator.guarantee_)
    return estimator, estimator.predict_interval(np.zeros((2, 1)))


def charged_to_a_ledger(folder: Path) -> Any:
    ledger = dpvi.Ledger(folder / "people.ledger", epsilon=50.0, delta=1e-4, share_for_sampling=0.1)
    result = fit(Y, seed=None, ledger=ledger)
    print(ledger, ledger.guarantee)
    return result, ledger


ENTRIES = {
    "fit": (fitted_and_used, ("fit", "Result", "Posterior", "Guarantee", "Plan")),
    "fit, measuring": (measuring, ()),
    "an estimator": (an_estimator, ("BoundedScaler", "PrivateBayesianLinearRegression")),
    "fit, ledger": (charged_to_a_ledger, ("Ledger",)),
    "fit, functions": (lambda _: dpvi.fit(functions(), Y, PLAN, seed=1), ("from_functions",)),
    "fit, guide": (lambda _: fit(Y, guide=location_guide), ("Guided",)),
    "fit, amortised guide": (lambda _: fit(Y, guide=dpvi.AutoAmortised(location)), ("AutoAmortised",)),
    "fit, not private": (lambda _: fit(Y, plan=dpvi.plan_nonprivate(sampling_rate=RATE, num_steps=3)), ()),
    "fit, all records": (lambda _: fit(Y, plan=private_plan(5, sampling_rate=1.0)), ()),
    "fit, values that are no numbers": (lambda _: fit(np.where(Y > 3, np.nan, Y)), ()),
    "fit, microbatches": (lambda _: fit(Y, microbatch_size=100), ()),
    "fit, devices": (lambda _: fit(Y, devices=jax.devices()), ()),
    "fit, histograms": (with_histograms, ()),
    "fit, .npy": (from_disk, ("open_npy",)),
    "fit, .parquet": (from_a_table(dpvi.open_parquet, parquet.write_table, ".parquet"), ("open_parquet",)),
    "fit, .arrow": (from_a_table(dpvi.open_arrow, write_arrow, ".arrow"), ("open_arrow",)),
    "a table": (with_a_table, ("Schema", "TableModel", "synthesize", "join")),
    "a formula": (with_a_formula, ("glm",)),
    "a PyMC model": (with_pymc, ("from_pymc",)),
    "fit_many": (many, ("fit_many",)),
    "fit_many, same_data": (many_of_one, ()),
    "DPSVI": (dpsvi, ("DPSVI",)),
    "check": (lambda _: dpvi.check(location, Y), ("check",)),
    "check, guide": (lambda _: dpvi.check(location, Y, guide=location_guide), ()),
}
CUSTODIANS = {"validate"}  # marked SENSITIVE, see below
WITHOUT_RECORDS = {
    *("plan", "plan_nonprivate", "plan_together", "preview", "GaussianRelease", "Schedule", "Measuring"),
    *("PerLayer", "QuantileClipping"),
    *("Aligned", "AlignedNatural", "Natural", "Preconditioned", "Vanilla", "FullRank", "LowRank", "MeanField"),
    *("Constant", "Levels", "Numeric", "OneHot", "Directive", "Released", "na_dpvi_sgd", "__version__"),
    *("CompilerError", "LostProcessError", "ModelError", "SchemaError", "SourceError"),
    *("ConvergenceWarning", "FallbackWarning", "IntervalWarning", "ModelNotice", "PrivacyWarning"),
    *("Audit", "audit", "LedgerError"),
    *("PrivateBayesianLogisticRegression", "PrivateBayesianPoissonRegression"),  # their way of reading is tried above
}


def test_every_public_name_is_in_a_table():
    called = {name for _, names in ENTRIES.values() for name in names}
    assert called | CUSTODIANS | WITHOUT_RECORDS == set(dpvi.__all__)


@pytest.mark.parametrize("name", ENTRIES)
def test_no_entry_point_leaks(name, tmp_path, capfd):
    seen = observe(ENTRIES[name][0], tmp_path / "out", capfd)
    assert seen.error is None, seen.error
    assert SECRETS.found_in(seen.leaves()) == []


# Commands: arguments, and whether it is the custodian's

SETTINGS = {"epsilon": 1, "delta": 1e-5, "sampling-rate": 0.5, "num-steps": 10, "clip-norm": 1}
PLAN_ARGUMENTS = [f"--{name}={value}" for name, value in SETTINGS.items()]


def write_table(folder: Path) -> Path:
    path = folder.parent / "people.csv"
    columns = people()
    lines = [f"{job},{pay}" for job, pay in zip(columns["job"], columns["pay"], strict=True)]
    path.write_text("\n".join(["job,pay", *lines]) + "\n")
    return path


def schema_check(folder: Path) -> list[str]:
    SCHEMA.save(folder.parent / "schema.toml")
    return ["schema", "check", str(folder.parent / "schema.toml"), str(write_table(folder))]


def verify(folder: Path) -> list[str]:
    path = folder / "result.npz"
    fit(Y).save(path)
    return ["verify", str(path)]


TABLE = ["--model", "table", "--components", "2", "--quiet"]
STEPS = ["--sampling-rate", "0.5", "--num-steps", "5", "--clip-norm", "1"]


def cli_fit(folder: Path, *more: str) -> list[str]:
    SCHEMA.save(folder.parent / "schema.toml")
    table, schema = str(write_table(folder)), str(folder.parent / "schema.toml")
    budget = ["--schema", schema, "--epsilon=1", "--delta=1e-5", "--output", str(folder / "result.npz")]
    return ["fit", table, *budget, *TABLE, *STEPS, *more]


def of_result(command: str, *more: str) -> Any:
    def arguments(folder: Path) -> list[str]:
        assert main(cli_fit(folder)) == 0
        return [command, str(folder / "result.npz"), *more]

    return arguments


def cli_preview(folder: Path) -> list[str]:
    SCHEMA.save(folder.parent / "schema.toml")
    asked = ["--formula", "pay ~ job", "--epsilon", "1", "--delta", "1e-5", "--records", "50"]
    return ["preview", "--schema", str(folder.parent / "schema.toml"), *asked]


def cli_synth(folder: Path) -> list[str]:
    return of_result("synth", "--records=50", "--number=2", "--output", str(folder / "tables"))(folder)


def cli_evaluate(folder: Path) -> list[str]:
    (folder.parent / "model.py").write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "def model(pay):\n"
        "    mean = numpyro.sample('mean', dist.Normal(0, 1))\n"
        "    with numpyro.plate('records', pay.shape[0]):\n"
        "        numpyro.sample('pay', dist.Normal(mean, 1), obs=pay)\n"
    )
    model = ["--model", f"{folder.parent / 'model.py'}:model"]
    assert main([each for each in cli_fit(folder, *model) if each not in ("--components", "2")]) == 0
    return ["evaluate", str(folder / "result.npz"), *model, "--datasets=2", "--records=50", "--quiet"]


CALLS = {
    "preview": (cli_preview, False),
    "fit": (cli_fit, False),
    "summary": (of_result("summary"), False),
    "report": (of_result("report"), False),
    "synth": (cli_synth, False),
    "evaluate": (cli_evaluate, False),
    "plan": (lambda folder: ["plan", *PLAN_ARGUMENTS, "--output", str(folder / "plan.json")], False),
    "audit": (lambda folder: ["audit", *PLAN_ARGUMENTS, "--trials", "200", "--output", str(folder / "a.json")], False),
    "verify": (verify, False),
    "demo": (lambda folder: ["demo", "--seed", "1", "--output", str(folder)], False),
    "ledger": (lambda folder: ["ledger", "create", str(folder / "l"), "--epsilon=1", "--delta=1e-6"], False),
    "studio": (lambda folder: ["studio", "--host", "0.0.0.0"], False),  # at work: tests/studio/test_in_a_browser.py
    "schema check": (schema_check, True),
    "schema draft": (lambda folder: ["schema", "draft", str(write_table(folder))], True),
}


def test_every_command_is_in_the_table():
    names = {command.__name__.rpartition(".")[2] for command in COMMANDS}
    assert {name.split()[0] for name in CALLS} == names


@pytest.mark.parametrize("name", CALLS)
def test_no_command_leaks(name, tmp_path, capfd, monkeypatch):
    arguments, custodians = CALLS[name]
    secrets = SECRETS
    if name == "demo":  # its records are simulated; here with the marker, and more of them than it takes steps
        rows = np.resize(Y, (DEMO_COUNT, 5)).astype(np.float32)
        secrets = secrets_of(rows, MARKER, set())
        monkeypatch.setattr("dpvi.cli.demo.simulate", lambda: (rows, (rows[:, 1] > 0).astype(np.int32)))
    seen = observe(lambda folder: main(arguments(folder)), tmp_path / "out", capfd)
    refused = name in ("schema check", "verify", "studio")  # outside a schema, a small seed, not on this machine
    assert (seen.error, seen.returned) == (None, 2 if refused else 0)
    found = secrets.found_in(seen.leaves())
    assert found == [] or (custodians and "SENSITIVE" in seen.console)


def test_what_validate_prints_is_marked_line_by_line(tmp_path, capfd):
    seen = observe(lambda _: dpvi.validate(location, np.where(Y > 3, np.nan, Y)), tmp_path / "out", capfd)
    assert seen.returned is None
    lines = [line for line in seen.console.splitlines() if line and "cpu_aot_loader" not in line]
    assert lines
    assert all(line.startswith("SENSITIVE") for line in lines)


# Failures


def changed_file(folder: Path) -> Any:
    path = folder.parent / "y.npy"
    np.save(path, Y)
    source = dpvi.open_npy(folder.parent)
    np.save(path, Y + 1)
    return fit(source)


def unreadable_row(folder: Path) -> Any:
    path = folder.parent / "rows.parquet"
    whole = np.arange(COUNT).astype(object)
    whole[3] = None
    parquet.write_table(arrow.table({"a": arrow.array(whole, arrow.int64())}), path)

    def log_likelihood(z, row):
        return -jnp.sum((z - row["y"].astype(z.dtype)) ** 2)

    model = dpvi.from_functions(lambda z: -0.5 * z @ z, log_likelihood, 2)
    return dpvi.fit(model, dpvi.open_parquet(path, {"y": "a"}), private_plan(3, sampling_rate=1.0), progress=False)


def failing_model(y):
    raise ValueError(f"cannot work with {y} of shape {y.shape}")


def misshapen_model(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(z, 1).to_event(1), obs=y)


def failing_driver(released):
    raise RuntimeError(f"cannot steer by {released}")


def closing(y):
    return location(y - Y.mean(0))


def broken_device(status: str) -> Any:
    def run(folder: Path) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "__call__", functools.partial(_fail, status))
            return fit(Y)

    return run


def _fail(status: str, *_: Any, **__: Any) -> Any:
    raise jax.errors.JaxRuntimeError(f"{status}: allocating f32[{COUNT},2], {COUNT * 8} bytes")


def no_memory_for_records(folder: Path) -> Any:
    def convert(data: Any) -> Any:
        raise MemoryError(f"Unable to allocate 9 GiB for an array with shape {data.shape}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpvi.run.placement.placement.as_records", convert)
        return fit(Y)


def other_records(folder: Path) -> Any:
    svi = dpvi.DPSVI(location, location_guide, optax.adam(0.1), plan=PLAN)
    return svi.update(svi.init(None, Y), Y[:-1])


def whole_numbers_too_large(folder: Path) -> Any:
    return dpvi.fit(functions(), (Y * 1e6).astype(np.int64), PLAN, progress=False)


FAILURES = {
    "arrays of different lengths": (lambda _: fit((Y, Y[:-1])), ValueError),
    "text among the records": (lambda _: fit(np.array([LABEL] * COUNT)), TypeError),
    "a column of objects": (lambda _: fit(people()["job"]), TypeError),
    "whole numbers that do not fit": (whole_numbers_too_large, ValueError),
    "a model that says what it is given": (lambda _: dpvi.fit(failing_model, Y, PLAN), dpvi.ModelError),
    "a model of another shape": (lambda _: dpvi.fit(misshapen_model, Y, PLAN), dpvi.ModelError),
    "a model that holds the records": (lambda _: dpvi.fit(closing, Y, PLAN), dpvi.ModelError),
    "a driver that raises": (lambda _: fit(Y, driver=failing_driver), RuntimeError),
    "a start of another length": (lambda _: fit(Y, initial_location=np.zeros(5)), ValueError),
    "another number of records declared": (
        lambda _: fit(Y, plan=histogram_plan((), num_records=4321, num_steps=5)),
        ValueError,
    ),
    "the device's memory": (broken_device("RESOURCE_EXHAUSTED"), MemoryError),
    "another error of the device": (broken_device("INTERNAL"), jax.errors.JaxRuntimeError),
    "the memory of the host": (no_memory_for_records, MemoryError),
    "a file that changed": (changed_file, dpvi.SourceError),
    "a row that cannot be read": (unreadable_row, dpvi.SourceError),
    "one data set for many": (lambda _: dpvi.fit_many(location, Y[:, 0], PLAN), ValueError),
    "seeds for another number": (lambda _: dpvi.fit_many(location, Y, PLAN, seeds=[1, 2]), ValueError),
    "other records for a step": (other_records, ValueError),
    "levels outside of a schema": (lambda _: SCHEMA.encode(people(), outside="raise"), dpvi.SchemaError),
    "a table without a column": (lambda _: SCHEMA.encode({"job": people()["job"]}), dpvi.SchemaError),
}


@pytest.mark.parametrize("name", FAILURES)
def test_no_failure_leaks(name, tmp_path, capfd):
    call, expected = FAILURES[name]
    seen = observe(call, tmp_path / "out", capfd)
    assert isinstance(seen.error, expected), seen.error
    assert SECRETS.found_in(seen.leaves()) == []
