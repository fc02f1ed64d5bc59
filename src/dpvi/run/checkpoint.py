"""``fit(..., checkpoint=path)``: a run that goes on where a killed one stood, and is charged once.

What a run released goes to a file every so many seconds, when somebody asks it to stop (SIGINT, SIGTERM), before a
driver is told of it, and at the end. Steps that were taken after that and never written were never released, so a
resumed run takes a fresh key for the steps that are left: nothing is spent twice. A run with an explicit seed goes on
bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared import validation
from dpvi.declared.guarantee import kind_of_seed
from dpvi.declared.plan import Plan
from dpvi.gradients.base import describe
from dpvi.ledger import Ledger, LedgerError
from dpvi.models.sites import sites_to_dict
from dpvi.records.arrays import structure_to_dict
from dpvi.release.measurements import Measurements, answered, check_histograms, check_measurements, measurements_of
from dpvi.release.requests import Answered
from dpvi.run.checkpoint_file import packed, read, unpacked, write
from dpvi.run.program.chunk import Layout
from dpvi.run.program.settled import Settled
from dpvi.run.program.step import Algorithm, State

_STOPPING = (signal.SIGINT, signal.SIGTERM)


class Checkpoint:
    """The file that a run is resumed from, held by one process at a time.

    Parameters
    ----------
    path
        The file. Where it is there, the run goes on from it.
    seconds
        How often it is written.

    Guarantees
    ----------
    The file holds noisy sums, iterates and public settings. Neither the key nor anything that saw records without noise
    is in it. At which steps it can be written follows from the plan, the model and what was released; at which of them
    it was written last follows from time, too.
    """

    def __init__(self, path: str | Path, seconds: float) -> None:
        self.path = Path(path)
        self._seconds = validation.positive("checkpoint_seconds", seconds)
        found = read(self.path)
        self._header, self._arrays = ({"entry": None, "finished": False}, {}) if found is None else found
        self._last = time.monotonic()
        self._asked: int | None = None  # the signal that asked the run to stop

    @property
    def finished(self) -> bool:
        """Whether the run is done, and the file holds all that it released."""
        return bool(self._header.get("finished"))

    @property
    def histograms(self) -> np.ndarray | None:
        """Counts that were released before the first step."""
        return self._arrays.get("histograms")

    @property
    def begun(self) -> bool:
        """Whether the file holds something that was released."""
        return bool(self._arrays)

    def require(self, settings: dict[str, Any], plan: Plan) -> None:
        """Refuse a file of another run, or begin one, before anything is spent.

        Raises
        ------
        ValueError
            That says which settings differ.
        """
        settings = json.loads(json.dumps(settings))  # as they are read back
        before = self._header.get("settings")
        if before is not None:
            names = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
            if names:
                raise ValueError(
                    f"{self.path} is the checkpoint of another run; these differ: {', '.join(names)}. Call fit as that "
                    "run was begun to go on with it, or give another checkpoint= to begin a new one."
                )
            if self.histograms is not None and plan.covariates is not None:
                self._usable(lambda: check_histograms(self._arrays["histograms"], plan.covariates or ()))
        self._header["settings"] = settings
        if before is None:
            self._write()

    def claim(self, ledger: Ledger | None, plan: Plan) -> str | None:
        """The name of this run in ``ledger``, which is in the file before it is in the ledger.

        So a run that is killed between the two finds its entry again, and none is charged twice.
        """
        entry = self._header["entry"]
        if ledger is None:
            if entry is not None:
                raise LedgerError(
                    f"The run of {self.path} is charged to a ledger as {entry['name']!r}; pass ledger= to go on."
                )
            return None
        if entry is not None:
            if entry["ledger"] != ledger.terms.identity:
                raise LedgerError(
                    f"The run of {self.path} is charged to another ledger; pass that one to go on with it, or give "
                    "another checkpoint= to begin a new run."
                )
            state = ledger.state_of(entry["name"], [plan])
            if state == "spent" and not self.finished:
                raise LedgerError(
                    f"The run {entry['name']!r} is done, and {self.path} is a copy of its checkpoint from before its "
                    "end. Going on with it would release more than was charged. Use the result, or begin a new run."
                )
            if state != "released":
                return str(entry["name"])
        self._header["entry"] = {"name": f"run-{secrets.token_hex(6)}", "ledger": ledger.terms.identity}
        self._write()
        return self._header["entry"]["name"]

    def holds(self, ledger: Ledger, plan: Plan) -> bool:
        """Whether ``ledger`` has reserved or spent what this run costs, so that it need not be asked again."""
        entry = self._header["entry"]
        if entry is None or entry["ledger"] != ledger.terms.identity:
            return False
        return ledger.state_of(entry["name"], [plan]) in ("reserved", "spent")

    def settled(self, initial: State, layout: Layout) -> Settled | None:
        """Where the run stood still; ``initial`` says what the optimiser's state looks like."""
        leaves, tree = jax.tree.flatten(initial)
        public = _public(layout)
        if "step" not in self._arrays:
            self._header["layout"] = public
            return None
        if self._header.get("layout") != public:
            raise ValueError(
                f"{self.path} was written on another kind of device, where steps are cut into other windows. Go on "
                "with it there, or begin a new run with another checkpoint=."
            )
        return self._usable(
            lambda: unpacked(self._arrays, lambda found: jax.tree.unflatten(tree, found), leaves, layout.num_steps)
        )

    def keep_histograms(self, histograms: np.ndarray | None) -> None:
        """What was counted goes to the file with the next write."""
        if histograms is not None:
            self._arrays["histograms"] = np.asarray(histograms)

    def keep(self, settled: Callable[[], Settled], due: bool) -> None:
        """Write where the run stands, where it is time to."""
        if due or self._asked is not None or time.monotonic() - self._last >= self._seconds:
            found = settled()
            histograms = {} if self.histograms is None else {"histograms": self.histograms}
            self._arrays = packed(found, jax.tree.leaves(found.state)) | histograms
            self._header["finished"] = found.step == self._header["layout"][0]
            self._write()
        self._stop_if_asked()

    def answers(self, dimension: int, units: int) -> list[Answered]:
        """What a measuring run was answered before."""
        names = [f"measurements.{name}" for name in Measurements._fields]
        if not any(name in self._arrays for name in names):
            return []

        def found() -> list[Answered]:
            measurements = Measurements(*(self._arrays[name] for name in names))
            check_measurements(measurements, dimension, units)
            return answered(measurements)

        return self._usable(found)

    def keep_answers(self, done: list[Answered], dimension: int, finished: bool = False) -> None:
        """Write every answer so far."""
        parts = measurements_of(done, dimension)._asdict()
        self._arrays |= {f"measurements.{name}": array for name, array in parts.items()}
        self._header["finished"] = finished
        self._write()
        if not finished:
            self._stop_if_asked()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM lets the run get to where it can stand still, the second one does not."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _STOPPING}
        before = {number: handler for number, handler in before.items() if handler is not None}

        def stop(number: int, _: Any) -> None:
            if self._asked is not None:
                signal.signal(number, before[signal.Signals(number)])
                signal.raise_signal(number)
            self._asked = number
            print(f"\ndpvi: stopping once {self.path} is written; once more stops at once.", file=sys.stderr)

        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop_if_asked(self) -> None:
        if self._asked is None or self.finished:
            return
        if self._asked == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt(f"The run stopped; call fit again with checkpoint={str(self.path)!r} to go on.")

    def _write(self) -> None:
        write(self.path, self._header, self._arrays)
        self._last = time.monotonic()

    def _usable(self, made: Callable[[], Any]) -> Any:
        """What is made of the file's arrays, or one sentence where they are not such as a run writes."""
        try:
            return made()
        except Exception:
            raise ValueError(
                f"{self.path} is not a checkpoint that dpvi wrote of this run: its arrays do not fit the plan and the "
                "model. Nothing was computed; give another checkpoint= to begin a new run."
            ) from None


@contextmanager
def opened(path: str | Path | None, seconds: float) -> Iterator[Checkpoint | None]:
    """The checkpoint at ``path``, which no other process has meanwhile; ``None`` where none is asked for."""
    if path is None:
        yield None
        return
    if jax.process_count() > 1:
        raise ValueError("A run in several processes has no checkpoint yet; leave checkpoint= out.")
    file = Path(path).resolve()  # a link is the file that it leads to, or two runs would not see each other
    with _locked(file):
        _refuse_second_name(file)
        yield Checkpoint(file, seconds)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with ``path``: two runs that go on from one file would both release the steps that are left."""
    try:
        import fcntl
    except ImportError:
        raise ValueError(
            "A checkpoint needs the file locks of Linux or macOS, which this system does not have."
        ) from None
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {path.parent} for the checkpoint; make it first.")
    with open(path.with_name(f"{path.name}.lock"), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"Another run goes on with {path} now. Two runs of the same steps would release them twice; wait for "
                "it, or give another checkpoint=."
            ) from None
        yield


def _refuse_second_name(path: Path) -> None:
    """A file with two names could be resumed under both, and is replaced under one alone."""
    if path.exists() and path.stat().st_nlink > 1:
        raise ValueError(
            f"{path} has another name, a hard link, under which the same steps could be released a second time. Remove "
            "the other name, or give another checkpoint=."
        )


def settings_of(algorithm: Algorithm, structure: Any, seed: int | None, steering: str | None) -> dict[str, Any]:
    """What must be the same where a run goes on: public, and plain enough for JSON."""
    family = algorithm.family
    return {
        "plan": algorithm.plan.to_dict(),
        "family": getattr(family, "parameters", None) or repr(family),
        "estimator": describe(algorithm.estimator),
        "parameters of the model": sites_to_dict(getattr(algorithm.model, "sites", ())),
        "structure of a record": structure_to_dict(structure),
        "model": _model_digest(algorithm, structure),
        "optimizer": _optimizer_structure(algorithm),
        "kind of seed": kind_of_seed(seed),
        "precision": jnp.zeros(()).dtype.name,
        "driver": steering,
    }


def _optimizer_structure(algorithm: Algorithm) -> str:
    size = algorithm.family.num_parameters(algorithm.model.dimension)
    with jax.numpy_dtype_promotion("standard"):
        state = jax.eval_shape(algorithm.optimizer.init, jax.ShapeDtypeStruct((size,), jnp.zeros(()).dtype))
    leaves, tree = jax.tree.flatten(state)
    if any(jnp.issubdtype(leaf.dtype, jax.dtypes.extended) for leaf in leaves):
        raise ValueError(
            "The optimizer's state holds random keys, which a checkpoint never does; use an optimizer that draws "
            "nothing, or leave checkpoint= out."
        )
    return _without_addresses(f"{tree} {[(leaf.shape, leaf.dtype.name) for leaf in leaves]}")


def _model_digest(algorithm: Algorithm, structure: Any) -> str:
    """Of what is computed of one record and of none, without the values of arrays that the model holds."""
    estimator, model, family = algorithm.estimator, algorithm.model, algorithm.family
    dtype = jnp.zeros(()).dtype
    dimension, draws = model.dimension, estimator.num_draws

    def shape(*sizes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, dtype)

    xi, eta = shape(family.num_parameters(dimension)), shape(draws, family.num_base(dimension))

    def both(xi: Any, eta: Any, queries: Any, record: Any, noisy: Any) -> Any:
        released = estimator.release(model, family, xi, eta, queries, record)
        return released, estimator.reconstruct(model, family, xi, eta, noisy, algorithm.plan.sampling_rate)

    size = estimator.release_size(family, dimension)
    with jax.numpy_dtype_promotion("standard"):
        traced = jax.make_jaxpr(both)(xi, eta, shape(draws, dimension), structure, shape(size))
    return hashlib.sha256(_without_addresses(str(traced)).encode()).hexdigest()


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "", text)


def _public(layout: Layout) -> list[int]:
    """How steps are cut, without the length of chunks, which may depend on the number of records."""
    return [layout.num_steps, layout.window_length, layout.block_length, layout.stride]
