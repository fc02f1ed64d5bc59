"""Runs that stop and go on: the same bits with a seed, a fresh key without, one charge, and files that are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import dpvi
from dpvi.ledger import Ledger, LedgerError
from dpvi.run import checkpoint_file
from dpvi.run.checkpoint import Checkpoint, opened
from dpvi.run.program.loop import Run

SECRET = 2**200 + 12345  # nobody finds it by trying
RECORDS = (np.random.default_rng(0).normal(size=300).astype(np.float32),)
MOVING = dpvi.plan(1.0, 1e-5, 0.2, 400, 2.0, schedule=dpvi.Schedule(move_share=1))
SCORES = dpvi.plan(1.0, 1e-5, 0.2, 400, 2.0, covariates=[])
MEASURING = dpvi.plan(epsilon=1.0, delta=1e-5)


class StoppedError(Exception):
    """In place of a signal that kills."""


def model(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def other_model(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def fitted(plan, path=None, seed=SECRET, **options):
    return dpvi.fit(
        model, RECORDS, plan, seed=seed, checkpoint=path, checkpoint_seconds=1e-9, progress=False, **options
    )


def leaves(result):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result.trace)]


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(leaves(one), leaves(other), strict=True))


@pytest.fixture(scope="module", autouse=True)
def short_windows():
    """A run can stand still where a window ends; a few hundred steps would be one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpvi.run.program.chunk._MAX_CHUNK", 16)
        yield


@pytest.fixture
def stop_after(monkeypatch):
    """Let a run write so many times, and die right after."""

    def stop(times):
        left, real = [times], checkpoint_file.write

        def write(*arguments):
            real(*arguments)
            left[0] -= 1
            if left[0] == 0:
                raise StoppedError

        monkeypatch.setattr("dpvi.run.checkpoint.write", write)
        return lambda: monkeypatch.setattr("dpvi.run.checkpoint.write", real)

    return stop


KINDS = {
    "steps": (MOVING, {}),
    "steps with momentum": (MOVING, {"optimizer": optax.sgd(1e-3, momentum=0.9)}),
    "a clip norm that adapts": (
        dpvi.plan(
            1.0,
            1e-5,
            0.2,
            400,
            2.0,
            clipping=dpvi.QuantileClipping(expected_batch=60),
            schedule=dpvi.Schedule(move_share=1),
        ),
        {"estimator": dpvi.Vanilla()},
    ),
    "steps that measure": (SCORES, {}),
    "answers": (MEASURING, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_seeded_run_goes_on_bit_for_bit(kind, tmp_path, stop_after):
    plan, options = KINDS[kind]
    whole = fitted(plan, **options)
    path = tmp_path / "a.checkpoint"
    for times in (3, 2):  # on the way, and further on
        let_go = stop_after(times)
        with pytest.raises(StoppedError):
            fitted(plan, path, **options)
        let_go()
    resumed = fitted(plan, path, **options)
    assert same(resumed, whole)
    assert resumed.guarantee == whole.guarantee
    if kind == "steps":  # a finished run's file gives its result again, whatever the seed, and nothing is run
        assert same(fitted(plan, path, seed=SECRET + 1, **options), whole)


@pytest.mark.parametrize("kind", ["steps", "answers"])
def test_a_run_without_a_seed_goes_on_with_a_fresh_key_and_keeps_what_it_released(kind, tmp_path, stop_after):
    plan, options = KINDS[kind]
    path, copy = tmp_path / "a.checkpoint", tmp_path / "b.checkpoint"
    let_go = stop_after(4)
    with pytest.raises(StoppedError):
        fitted(plan, path, seed=None, **options)
    let_go()
    copy.write_bytes(path.read_bytes())
    one, other = fitted(plan, path, seed=None), fitted(plan, copy, seed=None)
    rows = (lambda each: each.trace.noisy_sums) if plan.measuring is None else (lambda each: moments_of(each))
    equal = np.all(np.isclose(rows(one), rows(other), rtol=0, atol=0), axis=-1)
    assert equal[0]
    assert not equal[-1]
    assert np.all(equal[:-1] >= equal[1:])  # what was released before is the same, what came later is not


def moments_of(result):
    found = result.trace.measurements
    return np.concatenate([found.scores_released, found.norms_released[:, :1]])[: len(found.scores_released)]


def test_no_key_is_in_the_file(tmp_path, stop_after):
    path = tmp_path / "a.checkpoint"
    stop_after(4)
    with pytest.raises(StoppedError):
        fitted(SCORES, path)
    header, arrays = checkpoint_file.read(path)
    from dpvi.mechanism.rng import histogram_stream, root_key, streams

    key = root_key(SECRET)
    held = [*streams(key), histogram_stream(key), key]
    words = [np.asarray(jax.random.key_data(each)).astype("<u4").tobytes() for each in held]
    with zipfile.ZipFile(path) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert not any(word[:8] in content or word[-8:] in content for word in words)
    assert str(SECRET) not in str(header)
    assert len(RECORDS[0]) not in [size for array in arrays.values() for size in array.shape]


def test_a_resumed_run_is_charged_once_and_a_repeated_one_again(tmp_path, stop_after):
    ledger = Ledger(tmp_path / "a.ledger", epsilon=2.5, delta=1e-5)
    plan, path = MEASURING, tmp_path / "a.checkpoint"
    for times in (2, 3):  # the second write is the claim of a name in the ledger
        let_go = stop_after(times)
        with pytest.raises(StoppedError):
            fitted(plan, path, seed=None, ledger=ledger)
        let_go()
    old = path.read_bytes()
    with pytest.raises(LedgerError, match="pass ledger="):
        fitted(plan, path, seed=None)
    fitted(plan, path, seed=None, ledger=ledger)
    fitted(plan, path, seed=None, ledger=ledger)  # the result once more
    assert [entry.state for entry in ledger.entries.values()] == ["spent"]
    done = path.read_bytes()
    path.write_bytes(old)
    with pytest.raises(LedgerError, match="copy of its checkpoint"):
        fitted(plan, path, seed=None, ledger=ledger)
    with pytest.raises(LedgerError, match="another ledger"):
        fitted(plan, path, seed=None, ledger=Ledger(tmp_path / "b.ledger", epsilon=2.0, delta=1e-5))
    path.write_bytes(done)
    fitted(plan, tmp_path / "b.checkpoint", seed=None, ledger=ledger)
    assert [entry.state for entry in ledger.entries.values()] == ["spent", "spent"]


def test_a_run_that_was_given_back_is_charged_anew(tmp_path, stop_after):
    ledger, path = Ledger(tmp_path / "a.ledger", epsilon=1.5, delta=1e-5), tmp_path / "a.checkpoint"
    let_go = stop_after(3)
    with pytest.raises(StoppedError):
        fitted(MEASURING, path, seed=None, ledger=ledger)
    let_go()
    (name,) = ledger.entries
    ledger.release(name)
    fitted(MEASURING, path, seed=None, ledger=ledger)
    assert [entry.state for entry in ledger.entries.values()] == ["released", "spent"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_where_it_can_stand_still(number, tmp_path, monkeypatch, capsys):
    whole, path, real = fitted(MOVING), tmp_path / "a.checkpoint", Run._handed_out
    calls = []

    def handed_out(self, *arguments):
        calls.append(None)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return real(self, *arguments)

    monkeypatch.setattr(Run, "_handed_out", handed_out)
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        dpvi.fit(model, RECORDS, MOVING, seed=SECRET, checkpoint=path, progress=False)
    assert "stopping once" in capsys.readouterr().err
    header, arrays = checkpoint_file.read(path)
    assert 0 < arrays["step"] < 400
    assert not header["finished"]
    monkeypatch.setattr(Run, "_handed_out", real)
    assert same(dpvi.fit(model, RECORDS, MOVING, seed=SECRET, checkpoint=path, progress=False), whole)


@pytest.fixture(scope="module")
def half_way(tmp_path_factory):
    path = tmp_path_factory.mktemp("half") / "a.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        left, real = [4], checkpoint_file.write

        def write(*arguments):
            real(*arguments)
            left[0] -= 1
            if left[0] == 0:
                raise StoppedError

        patch.setattr("dpvi.run.checkpoint.write", write)
        with pytest.raises(StoppedError):
            fitted(SCORES, path)
    return path.read_bytes()


REFUSED = {
    "another plan": ({"plan": MOVING}, "plan"),
    "another model": ({"model": other_model}, "model"),
    "other records' structure": ({"data": (RECORDS[0][:, None] * np.ones(2, np.float32),)}, "structure"),
    "another optimizer": ({"optimizer": optax.sgd(0.1)}, "optimizer"),
    "another family": ({"family": dpvi.FullRank()}, "family"),
    "a seed of another kind": ({"seed": 1}, "kind of seed"),
    "a driver": ({"driver": lambda released: None}, "driver"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_checkpoint_of_another_run_is_refused(case, tmp_path, half_way):
    changed, named = REFUSED[case]
    path = tmp_path / "a.checkpoint"
    path.write_bytes(half_way)
    given = {"model": model, "data": RECORDS, "plan": SCORES, "seed": SECRET, **changed}
    if case == "other records' structure":

        def wide(y):
            mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
            with numpyro.plate("records", y.shape[0]):
                numpyro.sample("y", dist.Normal(mean, 1.0).expand([2]).to_event(1), obs=y)

        given["model"] = wide
    with pytest.raises(ValueError, match=rf"another run; these differ: .*{named}"):
        dpvi.fit(given.pop("model"), given.pop("data"), given.pop("plan"), checkpoint=path, progress=False, **given)
    assert path.read_bytes() == half_way


def test_a_file_is_one_run_s_at_a_time(tmp_path):
    from dpvi.run.checkpoint import opened

    with (
        opened(tmp_path / "a", 1.0),
        pytest.raises(ValueError, match="Another run goes on"),
        opened(tmp_path / "a", 1.0),
    ):
        pass
    with pytest.raises(ValueError, match="no folder"), opened(tmp_path / "none" / "a", 1.0):
        pass


def test_an_optimizer_with_keys_is_refused(tmp_path):
    noisy = optax.chain(optax.sgd(0.1), optax.add_noise(0.1, 0.1, jax.random.key(0)))
    with pytest.raises(ValueError, match="random keys"):
        fitted(MOVING, tmp_path / "a.checkpoint", optimizer=noisy)
    assert not (tmp_path / "a.checkpoint").exists()


def outcome(called, path):
    """What ``called`` gives, or None where it refuses the file at ``path`` in a sentence that names it."""
    try:
        return called()
    except ValueError as error:
        return None if str(path) in str(error) else pytest.fail(str(error))


def test_mutated_files_end_in_one_sentence(tmp_path, half_way):
    rng, path = np.random.default_rng(1), tmp_path / "a.checkpoint"
    refused = 0
    for _ in range(300):
        content = bytearray(half_way)
        kind = rng.integers(3)
        if kind == 0:  # some bytes are others
            for place in rng.integers(0, len(content), rng.integers(1, 4)):
                content[place] ^= int(rng.integers(1, 256))
        elif kind == 1:  # the end is missing
            del content[rng.integers(0, len(content)) :]
        else:  # something is put in
            content[(at := rng.integers(0, len(content))) : at] = rng.bytes(int(rng.integers(1, 30)))
        path.write_bytes(bytes(content))
        found = outcome(lambda: Checkpoint(path, 1.0), path)
        refused += found is None
        assert found is None or found.begun  # bytes between members of an archive mean nothing
    assert refused > 200


def test_arrays_that_do_not_fit_end_in_one_sentence(tmp_path, half_way):
    """Files with a right checksum and wrong content: whoever wants to can make them."""
    path = tmp_path / "a.checkpoint"
    path.write_bytes(half_way)
    header, arrays = checkpoint_file.read(path)
    header = {name: value for name, value in header.items() if name not in ("format", "version")}
    wrong = {
        "step": np.array(10**9),
        "state.0": np.zeros((3, 5)),
        "recorded.iterates": np.array("text"),
        "recorded.open_block": np.array(-7),
        "told.iterate": np.zeros((1, 9)),
        "histograms": np.zeros(4),
    }
    for name, array in wrong.items():
        checkpoint_file.write(path, header, {**arrays, name: array})
        with pytest.raises(ValueError, match="checkpoint"):
            fitted(SCORES, path)


def test_a_driver_that_answers_otherwise_is_refused(tmp_path, stop_after):
    path = tmp_path / "a.checkpoint"

    class Steady:
        steps = 100

        def __call__(self, released):
            return dpvi.Directive(self.steps)

    driver = Steady()
    let_go = stop_after(4)
    with pytest.raises(StoppedError):
        fitted(MOVING, path, driver=driver)
    let_go()
    driver.steps = 50
    with pytest.raises(ValueError, match="asks for something else"):
        fitted(MOVING, path, driver=driver)
    driver.steps = 100
    assert same(fitted(MOVING, path, driver=driver), fitted(MOVING, driver=driver))


def test_where_a_run_stood_still_follows_from_nothing_secret(tmp_path, monkeypatch):
    """Two data sets of different sizes, whose chunks differ in length, are written at the same steps."""
    steps = []
    real = checkpoint_file.write

    def write(path: Path, header, arrays):
        steps[-1].append(int(arrays.get("step", -1)))
        real(path, header, arrays)

    monkeypatch.setattr("dpvi.run.checkpoint.write", write)
    monkeypatch.setattr("dpvi.run.program.chunk._DRAWN_BYTES", 2**14)
    lengths = []
    for size in (100, 3000):
        steps.append([])
        data = (np.ones(size, np.float32),)
        with pytest.MonkeyPatch.context() as patch:
            built = Run.__init__

            def noted(self, *arguments, **options):
                built(self, *arguments, **options)  # noqa: B023
                lengths.append(self.layout.chunk_length)

            patch.setattr(Run, "__init__", noted)
            dpvi.fit(
                model,
                data,
                MOVING,
                seed=SECRET,
                checkpoint=tmp_path / str(size),
                checkpoint_seconds=1e-9,
                progress=False,
            )
    assert lengths[0] != lengths[1]
    assert steps[0] == steps[1]
    assert len(steps[0]) > 4


def test_a_process_that_is_killed_is_resumed_by_another_one(tmp_path):
    """As ``benchmarks/kills.py`` does many times, at random moments: here once, after the first steps were written."""
    worker = Path(__file__).parents[1] / "support" / "checkpoint_worker.py"
    environment = {**os.environ, "PYTHONPATH": str(Path(dpvi.__file__).parents[1])}
    folder = {name: tmp_path / name for name in ("killed", "undisturbed")}
    command = [sys.executable, str(worker)]
    for path in folder.values():
        path.mkdir()
    checkpoint = folder["killed"] / "a.checkpoint"
    process = subprocess.Popen([*command, str(folder["killed"]), str(SECRET)], env=environment)
    while process.poll() is None and not (checkpoint.exists() and "step" in np.load(checkpoint).files):
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not (folder["killed"] / "result.npz").exists()
    for path in folder.values():
        subprocess.run([*command, str(path), str(SECRET)], env=environment, check=True)
    one, other = (dpvi.Result.load(path / "result.npz") for path in folder.values())
    assert same(one, other)
    states = [entry.state for entry in Ledger(folder["killed"] / "a.ledger").entries.values()]
    assert states == ["spent"]


def test_a_link_does_not_hide_a_run_from_another_one(tmp_path):
    path, link = tmp_path / "run.ckpt", tmp_path / "elsewhere" / "link.ckpt"
    link.parent.mkdir()
    link.symlink_to(path)
    with opened(path, 60.0), pytest.raises(ValueError, match=r"Another run goes on"), opened(link, 60.0):
        pass
    with opened(link, 60.0) as kept:
        assert kept is not None
        assert kept.path == path
    path.write_bytes(b"")
    (tmp_path / "second").hardlink_to(path)
    for name in ("run.ckpt", "second"):
        with pytest.raises(ValueError, match=r"hard link"), opened(tmp_path / name, 60.0):
            pass
