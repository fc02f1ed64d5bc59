"""The randomness of the next chunk, and the records it samples from disk, while this chunk runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import numpy as np

from dpvi.mechanism.rng import Streams
from dpvi.run.placement.feed import Feed
from dpvi.run.program.chunk import Layout
from dpvi.run.program.draws import Draws


class Ahead:
    """Draws of a chunk and the batches read for it, with the next chunk's under way while this one is used.

    A processor runs programs that one thread starts one after the other, and those of several threads side by side. So
    that one core draws while another takes steps, a thread is there for the draws alone (``aside``).
    """

    def __init__(self, draw: Any, streams: Streams, layout: Layout, feed: Feed | None, aside: bool) -> None:
        self._thread = ThreadPoolExecutor(1, "dpvi-draw") if aside else None
        self._draw = partial(draw, streams)
        self._layout = layout
        self._feed = feed
        self._held: dict[int, Any] = {}
        self._batch: tuple[int, Any] = (-1, None)

    def __getitem__(self, chunk: int) -> tuple[Draws, jax.Array, Any]:
        wanted = [index for index in (chunk, chunk + 1) if index < self._layout.num_chunks]
        self._held = {index: self._held.get(index) or self._begin(index) for index in wanted}
        draws, complete, reading = self._held[chunk]()
        if self._feed is not None and self._batch[0] != chunk:  # a chunk may be used in several pieces
            self._batch = (chunk, self._feed.finish(reading))
        return draws, complete, self._batch[1]

    def _begin(self, chunk: int) -> Callable[[], tuple[Draws, jax.Array, Any]]:
        if self._thread is None:
            started = self._start(chunk)
            return lambda: started
        return self._thread.submit(self._start, chunk).result

    def _start(self, chunk: int) -> tuple[Draws, jax.Array, Any]:
        base = chunk * self._layout.chunk_length
        with jax.enable_x64(True):
            draws, complete = self._draw(np.arange(base, base + self._layout.chunk_length, dtype=np.uint32))
        return draws, complete, None if self._feed is None else self._feed.start(draws.positions)
