"""The run: chunk after chunk until the plan's steps are done, with progress that shows nothing that saw records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from scipy.special import bdtrc
from tqdm.auto import tqdm

from dpvi.declared.plan import Plan
from dpvi.mechanism.rng import NORMALS_PER_PART, Streams, normals_drawn
from dpvi.records.sharding import Records
from dpvi.release.driver import Directive, Driver, Released
from dpvi.release.trace import Segments, Trace
from dpvi.run.placement.hosts import from_first, ready_together
from dpvi.run.placement.mesh import lanes_apart, on_every_device, read_here, share
from dpvi.run.program.ahead import Ahead
from dpvi.run.program.chunk import Layout, Ran, StepBytes, make_chunk, make_layout, side_by_side
from dpvi.run.program.draws import CompiledDraws, compiled_draws, make_draws
from dpvi.run.program.lanes import on_host
from dpvi.run.program.program_check import Program
from dpvi.run.program.recorder import Recorder, Sums
from dpvi.run.program.settled import Keep, Settled, Stretch, told_again
from dpvi.run.program.step import Algorithm, Noise, Row, State, noise_of, sizes_of


class Run:
    """A compiled run over one data set, on one device or spread over a mesh, or over several side by side (``lanes``).

    On a mesh, ``algorithm.shards`` says who holds what, and records come from
    :func:`~dpvi.records.sharding.place_rows`. Where the mesh spans processes, each of them makes the same calls and
    returns the same traces. Lanes on a mesh are spread over it whole, as many on every device. A run with a driver
    (``driven``) keeps every step, for the driver is told the mean over all that it asked for. Lanes have records of
    their own, or, with ``same_records``, read one set of them.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        lanes: int | None = None,
        mesh: Mesh | None = None,
        driven: bool = False,
        same_records: bool = False,
    ) -> None:
        self.algorithm = algorithm
        self.lanes = lanes
        self.mesh = mesh
        self._driven = driven
        self.sizes = sizes = sizes_of(algorithm)
        self.dtype = jnp.zeros(()).dtype
        self.layout = make_layout(algorithm.plan.num_steps, self._step_bytes(), sizes.parameters, keep_all=driven)
        self._noise = noise_of(algorithm)
        eta_shape = (algorithm.estimator.num_draws, sizes.base)
        drawn = (algorithm.sampler, sizes.noise, eta_shape, self.dtype)
        chunks = {careful: make_chunk(algorithm, self.layout, careful, lanes is None) for careful in (False, True)}
        if lanes is not None:
            chunks = {careful: side_by_side(chunk, algorithm, same_records) for careful, chunk in chunks.items()}
        if mesh is not None and lanes is not None:
            apart = {
                careful: lanes_apart(chunk, make_draws(*drawn), mesh, same_records) for careful, chunk in chunks.items()
            }
            chunks = {careful: chunk for careful, (chunk, _) in apart.items()}
            drawing = apart[False][1]
            self._draw = jax.jit(drawing)
        elif mesh is not None:
            chunks = {careful: on_every_device(chunk, mesh) for careful, chunk in chunks.items()}
            drawing = make_draws(*drawn, algorithm.shards)
            self._draw = jax.jit(drawing)
        else:
            drawing = make_draws(*drawn)
            self._draw = compiled_draws(*drawn)
        self._drawing = drawing  # what `_draw` computes, for whoever asks for its shapes
        program = partial(Program, algorithm=algorithm, lanes=lanes, same_records=same_records)
        # compiled when first needed
        self._chunks = {careful: program(chunk, careful=careful) for careful, chunk in chunks.items()}
        self._whole = {
            careful: program(self._without_bounds(chunk), careful=careful) for careful, chunk in chunks.items()
        }

    def __call__(
        self,
        records: Records,
        streams: Streams,
        state: State,
        driver: Driver | None = None,
        progress: bool | tqdm = False,
        begun: Settled | None = None,
        keep: Keep | None = None,
    ) -> list[Trace]:
        """Take every step of the plan and return one trace per lane; ``progress`` may be a bar of several runs.

        A run alone goes on from where it stood still, ``begun``, and may be looked at where it stands still, ``keep``.
        """
        layout = self.layout
        assert driver is None or self._driven, "a run that leaves steps out cannot answer a driver"
        recorder = Recorder(layout, self.sizes, self.dtype, self.lanes, for_driver=driver is not None)
        if self.lanes is not None and isinstance(self._draw, CompiledDraws):  # a single run gains little for its memory
            self._compile(self._draw, records, streams, state, moving=driver is None)
        ahead = Ahead(self._draw, streams, layout, self.algorithm.feed, aside=on_host() and self.mesh is None)
        step, stretches, totals, told = 0, [], None, None
        if begun is not None:
            step, state, stretches, totals, told = self._go_on(begun, recorder, driver)
        state, streams, noise = self._shared((state, streams, self._noise))
        with (
            progress_bar(self.algorithm.plan, progress) if isinstance(progress, bool) else nullcontext(progress) as bar
        ):
            bar.update(step)
            while step < layout.num_steps:
                if stretches and stretches[-1].stop > step:
                    stop, query = stretches[-1].stop, self._point(stretches[-1].query)
                else:
                    told = self._released(step, state, None, 0) if driver and told is None else told
                    stop, query = self._next_stretch(driver, told)
                    totals = None
                    if told is not None:
                        stretches.append(Stretch(stop, None if query is None else np.asarray(query), told))
                pieces = _pieces(layout, step, stop)
                counted = driver is None and self.mesh is None and not on_host()
                advance = partial(self._advance, records, streams, ahead, noise)
                for after, rows, piece in advance(state, pieces, query, counted):
                    state = after
                    step = piece.chunk * layout.chunk_length + piece.last
                    summed = recorder.record(rows, *piece, moving=query is None, ends=step == stop)
                    totals = totals if summed is None else _add(totals, summed)
                    bar.update(piece.last - piece.first)
                    if keep is not None and step < stop and step % layout.window_length == 0:
                        self._look(keep, partial(_settled, recorder, step, state, stretches, totals, None), due=False)
                if told is not None and totals is not None:
                    told = self._released(stop, state, totals, stop - told.step)
                if keep is not None:
                    self._look(keep, partial(_settled, recorder, step, state, stretches, None, told), due=True)
        final = np.asarray(state.xi) if self.lanes else np.asarray(state.xi)[None]
        segments = self._segments(stretches, told)
        return recorder.traces(final, [_of_lane(segments, lane) for lane in range(self.lanes or 1)])

    def _go_on(self, begun: Settled, recorder: Recorder, driver: Driver | None) -> tuple[Any, ...]:
        """Stand where a run stood still: (step, state, stretches, sums over the open one, what its driver is told)."""
        assert self.lanes is None, "runs side by side are kept as results"
        try:
            self._refuse_other_shapes(begun)
            recorder.restore(begun.step, begun.recorded)
        except Exception:  # arrays of a file that was made by other means
            raise ValueError(
                "The checkpoint is not one that dpvi wrote of this run: its arrays do not fit the plan and the model. "
                "Nothing was computed; give another checkpoint= to begin a new run."
            ) from None
        if driver is not None:
            told_again(driver, begun.stretches, self._stretch)
        with jax.enable_x64(True):
            totals = None if begun.totals is None else Sums(*map(jnp.array, begun.totals))
        told = begun.stretches[-1].told if begun.stretches and begun.released is None else begun.released
        return begun.step, jax.tree.map(jnp.asarray, begun.state), list(begun.stretches), totals, told

    def _refuse_other_shapes(self, begun: Settled) -> None:
        sizes = self.sizes
        means = [(size,) for size in sizes.rows]
        told = [stretch.told for stretch in begun.stretches] + ([] if begun.released is None else [begun.released])
        found = [np.shape(part) for each in told for part in each[2:]]
        if found != [(sizes.parameters,), *means] * len(told):
            raise ValueError("what a driver was told has other shapes")
        queries = [np.shape(stretch.query) for stretch in begun.stretches if stretch.query is not None]
        if any(shape != self._query_shape for shape in queries):
            raise ValueError("query points have another shape")
        if begun.totals is not None and [np.shape(part) for part in begun.totals] != means:
            raise ValueError("sums of a stretch have other shapes")

    def _look(self, keep: Keep, settled: Callable[[], Settled], due: bool) -> None:
        if self.algorithm.feed is not None:
            self.algorithm.feed.check()  # what was made of rows that could not be read is not kept
        keep(settled, due)

    def _advance(
        self,
        records: Records,
        streams: Streams,
        ahead: Ahead,
        noise: Noise,
        state: State,
        pieces: Iterable[Piece],
        query: jax.Array | None,
        counted: bool,
    ) -> Iterator[tuple[State, Row, Piece]]:
        """Run piece after piece; each is handed out when it is done, while the device already works on the next.

        With ``counted``, whole chunks run as a loop of known length: an accelerator need not ask the host after every
        step whether to go on. Pieces of chunks need the other program, so it pays where nearly all chunks are whole.
        """
        before: tuple[Ran, Piece] | None = None
        for piece in pieces:
            draws, complete, batch = ahead[piece.chunk]
            draws = self._shared(draws)._replace(batch=batch)
            base = piece.chunk * self.layout.chunk_length
            whole = counted and piece.last - piece.first == self.layout.chunk_length
            program = (self._whole if whole else self._chunks)[not np.all(np.asarray(complete))]
            ends = () if whole else piece[1:]
            ran = program(state, records, streams, draws, noise, base, query, *ends)
            if before is not None:
                yield self._handed_out(*before)
            before, state = (ran, piece), ran.state
        if before is not None:
            yield self._handed_out(*before)

    def _handed_out(self, ran: Ran, piece: Piece) -> tuple[State, Row, Piece]:
        state, rows = ran
        rows = rows if self._record_mesh is None else read_here(rows)
        jax.block_until_ready(rows)  # else chunks without end would wait in line, each with its memory
        return state, rows, piece

    def _step_bytes(self) -> StepBytes:
        algorithm, sizes, lanes = self.algorithm, self.sizes, self.lanes or 1
        making = sizes.base + 4 * min(sizes.release, NORMALS_PER_PART)
        positions = algorithm.sampler.words_per_pass + algorithm.sampler.slots
        public = 8 * normals_drawn(sizes.noise) + 4 * making
        read = 0 if algorithm.feed is None else algorithm.feed.bytes_per_step
        return StepBytes(
            public=public * lanes,
            drawn=(public + 4 * positions) * lanes + read,
            public_randomness=4 * making,
            randomness=4 * (making + positions),
            row=4 * (2 * sizes.parameters + sizes.queries + sizes.release) * lanes,
        )

    def _compile(self, draw: CompiledDraws, records: Any, streams: Streams, state: State, moving: bool) -> None:
        """Compile what the run will need, program beside program; one after the other takes longer.

        Calls find what is compiled here: the cache of a program is filled by ``lower(...).compile()``, too.
        """
        with jax.enable_x64(True):
            lowered = draw.lowered(streams, np.arange(self.layout.chunk_length, dtype=np.uint32))
        if moving and self.algorithm.feed is None and on_host():
            lowered += [self.lowered(records, streams, state, careful) for careful in self._expected_programs()]
        with ThreadPoolExecutor(len(lowered)) as pool:
            list(pool.map(jax.stages.Lowered.compile, lowered))

    def _expected_programs(self) -> list[bool]:
        """Which of the quick (False) and the careful program (True) some chunk will most likely run."""
        sampler, plan = self.algorithm.sampler, self.algorithm.plan
        # draws of a step that outgrow the physical batch, expected over all lanes
        larger = bdtrc(sampler.physical_size, sampler.num_records, plan.sampling_rate) * (self.lanes or 1)
        quick, careful = larger * self.layout.chunk_length < 3, larger * self.layout.num_steps > 1
        return [program for program, expected in ((False, quick), (True, careful)) if expected]

    def lowered(self, records: Any, streams: Streams, state: State, careful: bool = False) -> jax.stages.Lowered:
        """What is compiled for a chunk of steps: sizes, model, estimator and optimiser are in it."""
        with jax.enable_x64(True):
            steps = np.arange(self.layout.chunk_length, dtype=np.uint32)
            shapes, _ = jax.eval_shape(self._drawing, streams, steps)
            # arrays, for shapes of float64 would be taken for those of float32 outside of here
            draws = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return self._chunks[careful].lower(state, records, streams, draws, self._noise, 0, None, 0, 1)

    def _without_bounds(self, chunk: Callable[..., Ran]) -> Callable[..., Ran]:
        def whole(*arguments: Any) -> Ran:
            return chunk(*arguments, 0, self.layout.chunk_length)

        return whole

    def _shared(self, tree: Any) -> Any:
        """On all devices of the mesh, where records are spread over one."""
        return tree if self._record_mesh is None else share(self._record_mesh, tree)

    @property
    def _record_mesh(self) -> Mesh | None:
        """The mesh that records are spread over; a mesh of lanes holds every record set whole."""
        return self.mesh if self.lanes is None else None

    def _next_stretch(self, driver: Driver | None, told: Released | None) -> tuple[int, jax.Array | None]:
        """Where the next stretch ends, and its query point; a driver that raises in one process stops all."""
        if driver is None or told is None:
            return self.layout.num_steps, None
        with ready_together():
            if self.algorithm.feed is not None:
                self.algorithm.feed.check()  # a driver must not be told of rows that could not be read
            stretch = self._stretch(driver(told), told.step)
        return self._agreed(*stretch)

    def _stretch(self, directive: Directive | None, step: int) -> tuple[int, jax.Array | None]:
        """Where the next stretch ends, and its query point."""
        if directive is None:
            return self.layout.num_steps, None
        if not isinstance(directive, Directive):
            raise TypeError(f"A driver must return dpvi.Directive(...) or None, got {type(directive).__name__}.")
        if not isinstance(directive.num_steps, (int, np.integer)) or directive.num_steps < 1:
            raise ValueError(f"A directive must take one step or more, a whole number, got {directive.num_steps!r}.")
        stop = min(step + directive.num_steps, self.layout.num_steps)
        if directive.query is None:
            return stop, None
        query = jnp.asarray(directive.query, self.dtype)
        if query.shape != self._query_shape or not bool(jnp.all(jnp.isfinite(query))):
            expected = f"shape {self._query_shape}" if self.lanes else f"{self.algorithm.model.dimension}"
            raise ValueError(f"A query point must be {expected} finite numbers, got shape {query.shape}.")
        return stop, query

    def _agreed(self, stop: int, query: jax.Array | None) -> tuple[int, jax.Array | None]:
        """Process 0's stretch: a driver elsewhere may round differently, and all must score at the same point."""
        shape, none = self._query_shape, query is None
        numbers = from_first(np.array([stop, none]))
        point = from_first(np.zeros(shape, self.dtype) if none else np.asarray(query))
        return int(numbers[0]), None if numbers[1] else self._point(point)

    def _point(self, query: np.ndarray | None) -> jax.Array | None:
        return None if query is None else self._shared(jnp.asarray(query))

    @property
    def _query_shape(self) -> tuple[int, ...]:
        """Runs side by side have a query point each."""
        return (*([self.lanes] if self.lanes else []), self.algorithm.model.dimension)

    def _segments(self, stretches: list[Stretch], last: Released | None) -> tuple[np.ndarray, ...] | None:
        """Start, stop, query and mean noisy sum of every stretch; what it released is what the next one was told."""
        if not stretches or last is None:
            return None
        ends = [*(stretch.told for stretch in stretches[1:]), last]
        nowhere = np.full(self._query_shape, np.nan)
        rows = [
            (stretch.told.step, stretch.stop, nowhere if stretch.query is None else stretch.query, end.mean_noisy_sum)
            for stretch, end in zip(stretches, ends, strict=True)
        ]
        return tuple(np.stack(part) for part in zip(*rows, strict=True))

    def _released(self, step: int, state: State, totals: Sums | None, count: int) -> Released:
        if totals is None:
            means = tuple(np.full((*state.xi.shape[:-1], size), np.nan) for size in self.sizes.rows)
        else:
            means = tuple(np.asarray(part) / count for part in totals)
        return Released(step, self.layout.num_steps - step, np.asarray(state.xi), *means)


def _settled(
    recorder: Recorder,
    step: int,
    state: State,
    stretches: list[Stretch],
    totals: Sums | None,
    told: Released | None,
) -> Settled:
    sums = None if totals is None else tuple(map(np.asarray, totals))
    return Settled(step, state, recorder.settled(step), tuple(stretches), sums, told)


def _of_lane(segments: tuple[np.ndarray, ...] | None, lane: int) -> Segments | None:
    """The stretches of one lane; arrays of a run alone have no lane axis."""
    if segments is None:
        return None
    start, stop, *rest = segments
    return Segments(start, stop, *(part if part.ndim == 2 else part[:, lane] for part in rest))


def _add(left: Sums | None, right: Sums) -> Sums:
    if left is None:
        return right
    with jax.enable_x64(True):
        return Sums(*map(jnp.add, left, right))


class Piece(NamedTuple):
    """Rows ``first`` to ``last`` of a chunk."""

    chunk: int
    first: int
    last: int


def _pieces(layout: Layout, start: int, stop: int) -> Iterator[Piece]:
    """The pieces that together cover steps ``start`` to ``stop``."""
    while start < stop:
        chunk, first = divmod(start, layout.chunk_length)
        last = min(layout.chunk_length, stop - chunk * layout.chunk_length)
        yield Piece(chunk, first, last)
        start = chunk * layout.chunk_length + last


def progress_bar(plan: Plan, progress: bool, num_runs: int = 1, secret: bool = True) -> tqdm:
    """A bar over the steps of ``num_runs`` runs after each other. It shows nothing that saw records.

    Where the randomness is not ``secret``, because its seed can be found by trying, it says so in place of ε.
    """
    label = f"dpvi ε = {plan.epsilon:.4g}" if plan.private and secret else "dpvi NOT PRIVATE"
    disable = not progress or jax.process_index() > 0
    unit = " steps" if plan.measuring is None else " units"
    return tqdm(total=num_runs * plan.num_steps, desc=label, unit=unit, disable=disable)
