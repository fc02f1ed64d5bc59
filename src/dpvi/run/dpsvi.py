"""``DPSVI``: NumPyro's ``SVI`` in shape, private by construction.

For people with a working SVI script: the same model, guide and optimiser, and a plan in place of the loss. What SVI
lets go wrong is not possible here. Batches are drawn from the records inside, by the sampler that the plan accounts
for; a run takes the plan's steps and not one more; a step is never taken twice from one state, which would use its
noise twice; no loss is returned, because a loss is a statistic of the records without noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dpvi.declared.guarantee import Captured, kind_of_seed
from dpvi.declared.plan import Plan
from dpvi.declared.validation import PrivacyWarning
from dpvi.ledger import Ledger
from dpvi.mechanism.rng import Streams, streams
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.posterior.result import Result
from dpvi.records.arrays import as_records, filled_up, structure_of
from dpvi.records.sampling import whole_tiles
from dpvi.records.sharding import Records
from dpvi.run.fitting import charged, make_result, refuse_uncovered, start
from dpvi.run.placement.hosts import several
from dpvi.run.preparation import prepare
from dpvi.run.program.chunk import Layout, make_chunk
from dpvi.run.program.draws import compiled_draws
from dpvi.run.program.loop import Run
from dpvi.run.program.loop import progress_bar as make_bar
from dpvi.run.program.program_check import Program
from dpvi.run.program.step import Algorithm, State, noise_of, sizes_of
from dpvi.run.svi_arguments import as_optax, bound, estimator_of, seed_of
from dpvi.run.untold import run_within_memory

_BY_FIT = "call dpvi.fit with guide= and a microbatch_size, for example 256"


class DPSVIState(NamedTuple):
    """Where a run stands; a function of released quantities only, without keys and without the number of records.

    Attributes
    ----------
    xi
        The flat unconstrained parameters of guide and model.
    optimizer_state
        Of the optimiser.
    step
        How many steps were taken.
    clip_norm
        Of the next step, where the plan's clip norm adapts.
    """

    xi: jax.Array
    optimizer_state: Any
    step: int
    clip_norm: jax.Array | None = None


class DPSVIRunResult(NamedTuple):
    """What :meth:`DPSVI.run` returns.

    Attributes
    ----------
    params
        Parameters of guide and model after the last step, on their constraints; as :meth:`DPSVI.get_params` of
        ``state``. Averaged ones are less noisy: ``result.posterior().params``.
    state
        After the last step.
    result
        Guarantee, trace and posterior, as :func:`dpvi.fit` returns them.
    """

    params: dict[str, Any]
    state: DPSVIState
    result: Result


class _Prepared(NamedTuple):
    algorithm: Algorithm
    records: Records
    streams: Streams
    seed: int | None
    captured: tuple[Captured, ...]


class DPSVI:
    """Stochastic variational inference under the privacy guarantee of ``plan``.

    Parameters
    ----------
    model, guide
        NumPyro model and guide, with the same arguments. See :mod:`dpvi.models.numpyro.guides` for what they may hold.
    optim
        An optax or a NumPyro optimiser. It sees the gradient of the negative ELBO, summed over records.
    loss
        ``TraceMeanField_ELBO(num_particles=K)`` takes the divergence of a record's own latents in closed form where
        NumPyro has one, ``Trace_ELBO(num_particles=K)`` at the draw; K draws per step. None is the former with one.
    plan
        From :func:`dpvi.plan`. It alone decides sampling rate, steps, clip norm and noise.
    ledger
        A :class:`dpvi.Ledger` that the run is charged to: reserved before the first step, spent after the last one.
    static_kwargs
        Settings handed to model and guide with every call.

    Guarantees
    ----------
    Parameters, states and results are functions of the noisy sums that the plan accounts for. One object makes one run:
    after its first step :meth:`init` and :meth:`run` refuse to begin another, whose cost would come on top.

    Examples
    --------
    >>> import dpvi, numpyro, numpyro.distributions as dist, optax
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> def model(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("records", y.shape[0]):
    ...         numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    >>> plan = dpvi.plan(epsilon=1.0, delta=1e-3, sampling_rate=0.5, num_steps=10, clip_norm=1.0)
    >>> svi = DPSVI(model, AutoNormal(model), optax.adam(0.1), plan=plan)
    >>> sorted(svi.run(None, np.zeros(20), progress_bar=False).params)
    ['mean_auto_loc', 'mean_auto_scale']
    """

    def __init__(
        self,
        model: Callable,
        guide: Callable,
        optim: Any,
        loss: Any = None,
        *,
        plan: Plan,
        ledger: Ledger | None = None,
        **static_kwargs: Any,
    ) -> None:
        self.plan, self._ledger = plan, ledger
        self._charging = ExitStack()
        self._model = partial(model, **static_kwargs) if static_kwargs else model
        self._guide = partial(guide, **static_kwargs) if static_kwargs else guide
        self._optimizer = as_optax(optim)
        self._estimator = estimator_of(loss)
        self._prepared: _Prepared | None = None
        self._begun = False
        self._next_step = 0
        self._step: Callable | None = None

    def init(
        self, rng_key: jax.Array | None, *args: Any, init_params: dict[str, Any] | None = None, **kwargs: Any
    ) -> DPSVIState:
        """Check model, guide, plan and data, and start the parameters; no value of a record is read.

        Parameters
        ----------
        rng_key
            None takes 256 bits from the operating system: pass it wherever records are real. With a key the run can be
            repeated, by anybody: keys of JAX have 64 bits, and ``jax.random.key(0)`` is the first that is tried.
            Such a run is NOT PRIVATE. A warning, the guarantee and the result say so.
        args, kwargs
            The arguments of model and guide: all records in arrays with a common leading axis. Numbers, strings and
            None are settings. Arrays mapped from files are loaded whole; :func:`dpvi.fit` with ``guide=`` leaves
            records on disk.
        init_params
            ``{param site: value}`` for parameters that are not to start where guide and model say.
        """
        if self._begun:
            raise ValueError(
                "This DPSVI has begun its run. Another run costs its own epsilon on top: make another DPSVI for it."
            )
        seed = seed_of(rng_key)
        if seed is not None and self.plan.private:
            warnings.warn(
                "NOT PRIVATE: noise that comes from a JAX key can be removed by whoever finds the key by trying. Pass "
                "None in its place, which takes 256 bits from the operating system; keys are for simulated records.",
                PrivacyWarning,
                stacklevel=2,
            )
        refuse_uncovered(self._ledger, [self.plan], [seed])
        data, model, guide = bound(self._model, self._guide, args, kwargs)
        data = jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, np.memmap) else leaf, data)
        if several():
            raise ValueError(
                "DPSVI runs in one process, and here are several; call dpvi.fit with guide=, which spreads over them."
            )
        options = {"estimator": self._estimator, "optimizer": self._optimizer, "seed": seed}
        algorithm, placed, key, _, captured = prepare(model, data, self.plan, guide=guide, **options)
        self._prepared = _Prepared(algorithm, placed.records, streams(key), seed, captured)
        self._step, self._next_step = None, 0
        state = algorithm.initial(start(algorithm, init_params))
        return DPSVIState(state.xi, state.optimizer, 0, state.clip_norm)

    def update(self, state: DPSVIState, *args: Any, **kwargs: Any) -> DPSVIState:
        """One private step.

        Parameters
        ----------
        state
            The newest state: of :meth:`init` or of the last update.
        args, kwargs
            All records, as given to :meth:`init`. The batch is drawn here.

        Returns
        -------
        The next state, and no loss: a loss would be a statistic of the records without noise.
        """
        ready = self._ready()
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((state, args, kwargs))):
            raise TypeError(
                "DPSVI.update counts its steps, so it cannot be part of a jax.jit or a lax.scan; it is compiled "
                "inside. For one program of all steps use run."
            )
        if state.step >= self.plan.num_steps:
            raise ValueError(
                f"The plan is spent: it pays for {self.plan.num_steps} steps, and all were taken. Plan more steps "
                "before a run begins; a step added afterwards is not covered by its guarantee."
            )
        if state.step != self._next_step:
            raise ValueError(
                "This state is not the newest: a second step from it would use the same noise twice and so reveal "
                "records. Go on from the state that the last update returned."
            )
        data = bound(self._model, self._guide, args, kwargs)[0]
        records, num_records = run_within_memory(_BY_FIT, as_records, data)
        same = structure_of(records) == structure_of(ready.records.rows)
        if num_records != ready.algorithm.sampler.num_records or not same:
            raise ValueError(
                "update must be given all records, in the same arrays as init; it draws its batches from them itself."
            )
        if not self._begun:
            self._charging = charged(self._ledger, [self.plan], [ready.seed])
        self._begun, self._next_step = True, state.step + 1
        rows = jax.tree.map(lambda leaf: filled_up(leaf, whole_tiles(num_records)), records)
        records = ready.records._replace(rows=rows)
        before = State(state.xi, state.optimizer_state, state.clip_norm)
        after = run_within_memory(_BY_FIT, self._compiled(), records, before, state.step)
        if state.step + 1 == self.plan.num_steps:
            self._charging.close()
        return DPSVIState(after.xi, after.optimizer, state.step + 1, after.clip_norm)

    def run(
        self,
        rng_key: jax.Array | None,
        *args: Any,
        progress_bar: bool = True,
        init_params: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> DPSVIRunResult:
        """Take all steps of the plan in a few compiled programs.

        The plan decides the number of steps; the other parameters are those of :meth:`init`. The bar shows steps and ε,
        and nothing that saw records.
        """
        first = self.init(rng_key, *args, init_params=init_params, **kwargs)
        ready = self._ready()
        self._begun, self._next_step = True, self.plan.num_steps
        begin = State(first.xi, first.optimizer_state, first.clip_norm)
        run = Run(ready.algorithm)
        secret, charging = kind_of_seed(ready.seed) != "guessable", charged(self._ledger, [self.plan], [ready.seed])
        with charging, make_bar(self.plan, progress_bar, secret=secret) as bar:
            trace = run_within_memory(_BY_FIT, run, ready.records, ready.streams, begin, progress=bar)[0]
        structure = structure_of(ready.records.rows)
        result = make_result(ready.algorithm, trace, structure, ready.seed, captured=ready.captured)
        state = DPSVIState(jnp.asarray(trace.final), None, self.plan.num_steps)
        return DPSVIRunResult(self.get_params(state), state, result)

    def get_params(self, state: DPSVIState) -> dict[str, Any]:
        """``{param site: value on its constraint}`` of guide and model."""
        return self._guided().parameters.constrain(state.xi)

    def evaluate(self, state: DPSVIState, *args: Any, data_is_public: bool = False, **kwargs: Any) -> float:
        """The negative ELBO of data that are public, such as simulated records or a published test set.

        Parameters
        ----------
        args, kwargs
            Arguments of model and guide.
        data_is_public
            Must be True: the number is exact, and on the records of the run it would be a release that nobody paid for.
        """
        if data_is_public is not True:
            raise ValueError(
                "evaluate computes a loss without noise. On records under protection that is a release the plan does "
                "not pay for; if these data are public, say so with data_is_public=True."
            )
        guided = self._guided()
        records, _ = as_records(bound(self._model, self._guide, args, kwargs)[0])
        draws, closed = self._estimator.num_draws, self._estimator.closed_form
        eta = jax.random.normal(jax.random.key(state.step), (draws, guided.num_base), state.xi.dtype)

        def elbo(seed: jax.Array) -> jax.Array:
            terms = jax.vmap(lambda record: guided.term(state.xi, seed, guided.own_key(seed, record), record, closed))(
                records
            )
            return jnp.sum(terms) + guided.record_free(state.xi, seed)

        return -float(jnp.mean(jax.jit(jax.vmap(elbo))(eta)))

    def _ready(self) -> _Prepared:
        if self._prepared is None:
            raise ValueError("Call init with the records first; it starts the parameters and checks model and guide.")
        return self._prepared

    def _guided(self) -> GuidedModel:
        model: Any = self._ready().algorithm.model
        return model

    def _compiled(self) -> Callable[[Any, State, int], State]:
        if self._step is None:
            self._step = _one_step(self._ready().algorithm, self._ready().streams)
        return self._step


def _one_step(algorithm: Algorithm, run_streams: Streams) -> Callable[[Any, State, int], State]:
    """(records, state, step) -> state: the step of :class:`~dpvi.run.program.loop.Run`, one at a time."""
    sizes, dtype = sizes_of(algorithm), jnp.zeros(()).dtype
    eta_shape = (algorithm.estimator.num_draws, sizes.base)
    draw = compiled_draws(algorithm.sampler, sizes.noise, eta_shape, dtype)

    layout = Layout(num_steps=1, chunk_length=1, window_length=1, block_length=1)
    program, noise = Program(make_chunk(algorithm, layout, careful=True), algorithm, careful=True), noise_of(algorithm)

    def one(records: Records, state: State, step: int) -> State:
        with jax.enable_x64(True):
            draws, _ = draw(run_streams, np.arange(step, step + 1, dtype=np.uint32))
        return program(state, records, run_streams, draws, noise, step, None, 0, 1).state

    return one
