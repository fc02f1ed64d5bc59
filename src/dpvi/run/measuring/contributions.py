"""What a record contributes to an answer: whole numbers of a public unit, as vectors of norm at most 1.

Records are worked on in parts of a fixed number of slots, in float64. Query point and metric are arguments of the
compiled programs, so a run compiles one program per kind of request, however many it makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.backend.compiling import SharedProgram, compiled_apart
from dpvi.declared.validation import CompilerError
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.mechanism.exact_product import exact_product
from dpvi.mechanism.gaussian import FORMED_BITS, per_unit
from dpvi.models.base import GenerativeModel
from dpvi.population.generative import covariates_of
from dpvi.records.arrays import filled_up
from dpvi.release.requests import NORM_EDGES, CovariateMoments, Curvature, Request, ScoreNorms, Scores
from dpvi.run.measuring.trial import check_apart

CLIP_NORM = 1.0
_MOST_SLOTS, _FEWEST_SLOTS = 1024, 8
_MOST_BYTES = 2**26
_UNTRIED = (
    "Records have other types than those that the program of this model was tried on, so another one was compiled for "
    "them, of which it is not known whether it keeps records apart. Nothing was released; give the records the types "
    "of the structure that the model was made for."
)
_COPIES = 6  # of what a record gives, while it is being made


class Contributions:
    """The compiled programs of one model, which serve any number of runs.

    Parameters
    ----------
    model
        A model that its front-end can run; its scores are gradients of the term of one record.
    most_slots
        Slots of a part, where memory allows. It changes time and memory, never what a record adds.
    """

    def __init__(self, model: GenerativeModel, most_slots: int = _MOST_SLOTS) -> None:
        self.model = model
        self._most_slots = most_slots
        self._compiled = {kind: SharedProgram(_adding(compiled_apart(rule))) for kind, rule in self._rules.items()}
        self._tried: set[tuple[Any, ...]] = set()

    @property
    def _rules(self) -> dict[type, Callable[..., jax.Array]]:
        return {
            CovariateMoments: self._moments,
            Curvature: self._curvature,
            ScoreNorms: self._norms,
            Scores: self._scores,
        }

    @cached_property
    def columns(self) -> int:
        """Of the covariates, as one vector."""
        return sum(math.prod(leaf.shape) for leaf in covariates_of(self.model, self.model.structure))

    def release_size(self, request: Request) -> int:
        """How many numbers answer ``request``."""
        match request:
            case CovariateMoments() | Curvature():
                return len(request.metric) * (len(request.metric) + 1) // 2
            case ScoreNorms():
                return len(NORM_EDGES) + 1
            case Scores():
                return len(request.metric)

    def units_of_one(self, kind: type) -> int:
        """How many units of :meth:`total` are 1: the longest that a record adds."""
        return 1 if kind is ScoreNorms else int(per_unit(CLIP_NORM, FORMED_BITS, np.float64))

    def slots(self, request: Request) -> int:
        """Slots of a part: as many as fit into 64 MB, by what is public."""
        record = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.model.structure))
        widest = max(self.release_size(request), self.model.dimension, *np.shape(request.metric))
        room = _MOST_BYTES // (8 * (record + _COPIES * widest))
        power = 2 ** (max(room, 1).bit_length() - 1)
        return min(self._most_slots, max(_FEWEST_SLOTS, power))

    def total(self, request: Request, blocks: Iterable[Any]) -> np.ndarray:
        """Σ over the records of ``blocks``, int64: in units of 2⁻²⁹, or of 1 where records are counted. Sensitive.

        Guarantees
        ----------
        Adding or removing a record moves it by a vector that follows from that record and the request alone, of norm at
        most 1: exactly, whatever the other records and their order are.
        """
        self._try(request)
        program = self._compiled[type(request)]
        tried = program.num_compiled
        found = self._total(request, parts(blocks, self.slots(request)))
        if program.num_compiled != tried:
            raise CompilerError(_UNTRIED)
        return found

    def try_scores(self) -> None:
        """Compile and try the programs of scores and their norms, whose shapes are known before a run."""
        point, metric = np.zeros(self.model.dimension), np.eye(self.model.dimension)
        for kind in (ScoreNorms, Scores):
            self._try(kind(point, metric, 1))

    def _try(self, request: Request) -> None:
        """Try the program that answers ``request``, unless that was done, at another point and in another metric."""
        kind, shape = type(request), np.shape(request.metric)
        if (kind, shape) in self._tried:
            return
        rng = np.random.default_rng(0)
        metric = rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 0.5, (shape[0], 1))
        point = {} if kind is CovariateMoments else {"query": 0.5 * rng.normal(size=self.model.dimension)}
        tried = cast(Request, request._replace(**point, metric=metric, units=1))
        largest = self.units_of_one(kind)
        check_apart(lambda *part: self._total(tried, [part]), self.model, self.slots(request), largest)
        self._tried.add((kind, shape))

    def _total(self, request: Request, batches: Iterable[tuple[Any, np.ndarray]]) -> np.ndarray:
        with jax.enable_x64(True):
            program, arguments = self._compiled[type(request)], self.arguments(request)
            total: Any = np.zeros(self.release_size(request), np.int64)
            for batch, included in batches:
                total = program(total, batch, included, *arguments)
            return np.asarray(total)

    def arguments(self, request: Request) -> tuple[np.ndarray, ...]:
        """What is public of a request, as its program takes it."""
        public = () if isinstance(request, CovariateMoments) else (request.query,)
        return tuple(np.asarray(part, np.float64) for part in (*public, request.metric))

    def lowered(self) -> str:
        """The program of the scores as text, to tell one model from another."""
        d, leaves = (
            self.model.dimension,
            jax.tree.map(lambda one: np.zeros((2, *one.shape), one.dtype), self.model.structure),
        )
        with jax.enable_x64(True):
            arguments = (jnp.zeros(d, jnp.int64), leaves, np.ones(2, bool), jnp.zeros(d), jnp.zeros((d, d)))
            return self._compiled[Scores].lower(*arguments).as_text()

    def _moments(self, batch: Any, included: jax.Array, metric: jax.Array) -> jax.Array:
        leaves = [jnp.reshape(leaf, (len(included), -1)) for leaf in covariates_of(self.model, batch)]
        rows = exact_product(jnp.concatenate([leaf.astype(jnp.float64) for leaf in leaves], axis=1), metric)
        first, second, scale = _triangle(metric.shape[0])
        return bounded_sum(scale * rows[:, first] * rows[:, second], included, CLIP_NORM).total

    def _curvature(self, batch: Any, included: jax.Array, query: jax.Array, metric: jax.Array) -> jax.Array:
        size = metric.shape[0]
        hessians = jax.vmap(jax.hessian(self.model.log_likelihood), (None, 0))(query, jax.tree.map(_in_float64, batch))
        half = exact_product(-hessians.reshape(-1, size), metric).reshape(-1, size, size)
        whole = exact_product(jnp.swapaxes(half, 1, 2).reshape(-1, size), metric).reshape(-1, size, size)
        first, second, scale = _triangle(size)
        return bounded_sum(scale * whole[:, first, second], included, CLIP_NORM).total

    def _norms(self, batch: Any, included: jax.Array, query: jax.Array, metric: jax.Array) -> jax.Array:
        vectors = self._vectors(batch, query, metric)
        present = included & jnp.all(jnp.isfinite(vectors), axis=1)
        lengths = jnp.sqrt(jnp.sum(jnp.square(vectors), axis=1))
        bins = jnp.searchsorted(jnp.asarray(NORM_EDGES), lengths, side="right")
        counted = present[:, None] & (bins[:, None] == jnp.arange(len(NORM_EDGES) + 1, dtype=bins.dtype)[None])
        return jnp.sum(counted, axis=0, dtype=jnp.int64)

    def _scores(self, batch: Any, included: jax.Array, query: jax.Array, metric: jax.Array) -> jax.Array:
        return bounded_sum(self._vectors(batch, query, metric), included, CLIP_NORM).total

    def _vectors(self, batch: Any, query: jax.Array, metric: jax.Array) -> jax.Array:
        """W g of every record, (slots, d)."""
        scores = jax.vmap(jax.grad(self.model.log_likelihood), (None, 0))(query, jax.tree.map(_in_float64, batch))
        return exact_product(scores, metric)


def parts(blocks: Iterable[Any], slots: int) -> Iterator[tuple[Any, np.ndarray]]:
    """Every record once, ``slots`` at a time: filled up with copies of the last one, and which of them count."""
    for block in blocks:
        leaves, tree = jax.tree.flatten(block)
        leaves = [np.asarray(leaf) for leaf in leaves]
        for start in range(0, len(leaves[0]), slots):
            part = [leaf[start : start + slots] for leaf in leaves]
            included = np.arange(slots) < len(part[0])
            yield jax.tree.unflatten(tree, [filled_up(leaf, slots) for leaf in part]), included


def _triangle(size: int) -> tuple[np.ndarray, np.ndarray, jax.Array]:
    """Rows and columns of an upper triangle, and √2 off its diagonal: a vector as long as the symmetric matrix."""
    first, second = np.triu_indices(size)
    return first, second, jnp.asarray(np.where(first == second, 1.0, math.sqrt(2.0)))


def _adding(rule: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def program(total: jax.Array, batch: Any, included: jax.Array, *arguments: jax.Array) -> jax.Array:
        return total + rule(batch, included, *arguments)

    return program


def _in_float64(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
