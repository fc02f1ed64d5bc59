"""The compiled program is tried on simulated records before it reads one, and refused if records influence others."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer.autoguide import AutoNormal

import dpvi
from dpvi.backend.compiling import compiled_apart
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.mechanism import gaussian
from dpvi.models.numpyro import NumPyroModel
from dpvi.records.arrays import structure_of
from dpvi.run.program import program_check, step

NUM_RECORDS = 203
RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(NUM_RECORDS, 5)), RNG.integers(0, 2, NUM_RECORDS)


def plan(sampling_rate: float = 0.3, num_steps: int = 12, **options) -> Plan:
    """Its ε is a label; see ``plans_are_labels``."""
    clip_norm = options["clipping"].clip_norm if isinstance(options.get("clipping"), dpvi.PerLayer) else 2.0
    release = GaussianRelease("gradients", sampling_rate, num_steps, 2.0, clip_norm)
    return Plan(epsilon=1.0, delta=1e-6, releases=(release,), accountant="a label", **options)


def regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


@dataclasses.dataclass(frozen=True)
class Ghost(dpvi.Guided):
    ghost_clipping: bool = True


@pytest.fixture
def tried(monkeypatch):
    """How many programs were tried."""
    counted = []
    check = program_check._Trial.check

    def counting(self):
        check(self)
        counted.append(self)

    monkeypatch.setattr(program_check._Trial, "check", counting)
    return counted


def on_disk(folder):
    paths = folder / "x.npy", folder / "y.npy"
    for path, array in zip(paths, (X, Y), strict=True):
        np.save(path, array)
    return tuple(np.load(path, mmap_mode="r") for path in paths)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"sampling_rate": 1.0}, {}),
        ({}, {"microbatch_size": 1}),
        ({"sampling_rate": 1.0}, {"microbatch_size": 1}),
        ({}, {"driver": lambda released: dpvi.Directive(4, np.zeros(6))}),
        ({}, {"estimator": dpvi.Vanilla(), "family": dpvi.FullRank()}),
        ({"clipping": dpvi.PerLayer({"w": 1.0, "b": 0.3})}, {}),
        ({"clipping": dpvi.QuantileClipping(expected_batch=60)}, {}),
        ({}, {"guide": AutoNormal(regression)}),
        ({}, {"guide": AutoNormal(regression), "estimator": Ghost()}),
    ],
    ids=["pass", "whole", "parts", "whole-parts", "driver", "vanilla", "layers", "quantile", "guide", "ghost"],
)
def test_every_kind_of_run_is_tried_and_runs(options, settings, tried):
    dpvi.fit(regression, (X, Y), plan(**options), seed=1, progress=False, **settings)
    assert tried


def test_records_on_disk_many_fits_and_single_steps_are_tried(tmp_path, tried):
    dpvi.fit(regression, on_disk(tmp_path), plan(), seed=1, progress=False)
    assert len(tried) == 1
    dpvi.fit_many(regression, (X, Y), plan(), seeds=[1, 2, 3], same_data=True, progress=False)
    assert len(tried) == 2
    sets = tuple(np.stack([part, part[::-1]]) for part in (X, Y))
    dpvi.fit_many(regression, sets, plan(), seeds=[1, 2], progress=False)
    assert len(tried) == 3
    svi = dpvi.DPSVI(regression, AutoNormal(regression), optax.adam(0.1), plan=plan())
    svi.update(svi.init(None, X, Y), X, Y)
    assert len(tried) == 4


def test_no_record_is_read_before_the_program_has_passed(monkeypatch):
    seen = []
    passed = []
    run, check = program_check._Trial._run, program_check._Trial.check

    def watched(self, slots, target):
        seen.extend(np.asarray(leaf) for leaf in jax.tree.leaves(self._held(slots).rows))
        return run(self, slots, target)

    def checked(self):
        check(self)
        passed.append(True)

    monkeypatch.setattr(program_check._Trial, "_run", watched)
    monkeypatch.setattr(program_check._Trial, "check", checked)
    dpvi.fit(regression, (X, Y), plan(), seed=1, progress=False)
    assert passed
    assert not any(np.isin(rows, X.astype(np.float32)).any() for rows in seen if rows.ndim == 2)


def faulty(monkeypatch, change):
    """The clipped sum of a batch with its releases, or what is added of them, changed as a compiler might."""
    whole = step.bounded_sum
    monkeypatch.setattr(step, "bounded_sum", lambda releases, *rest: whole(change(releases), *rest))


@pytest.mark.parametrize("sampling_rate", [0.3, 1.0])
@pytest.mark.parametrize(
    "change",
    [
        lambda releases: releases + 1e-6 * jnp.roll(releases, 1, axis=0),
        lambda releases: jnp.broadcast_to(releases[:1], releases.shape),
        lambda releases: releases.at[64:].multiply(1 + 2.0**-22),
        lambda releases: releases - 1e-7 * jnp.mean(releases, axis=0),
    ],
    ids=["the one beside it", "one for all", "another kernel for later rows", "the mean of all"],
)
def test_what_depends_on_other_records_is_refused(monkeypatch, sampling_rate, change):
    faulty(monkeypatch, change)
    with pytest.raises(dpvi.CompilerError, match="depends on the records beside it"):
        dpvi.fit(regression, (X, Y), plan(sampling_rate), seed=1, progress=False)


def test_what_is_longer_than_the_clip_norm_is_refused(monkeypatch):
    ratio = step.bounded_sum.__globals__["clip_ratio"]
    monkeypatch.setitem(step.bounded_sum.__globals__, "clip_ratio", lambda *given: 1.00001 * ratio(*given))
    with pytest.raises(dpvi.CompilerError, match="longer than the clip norm"):
        dpvi.fit(regression, (X, Y), plan(), seed=1, progress=False)


def test_a_refusal_is_a_sentence_that_names_no_number_of_records(monkeypatch):
    faulty(monkeypatch, lambda releases: jnp.broadcast_to(releases[:1], releases.shape))
    with pytest.raises(dpvi.CompilerError) as caught:
        dpvi.fit(regression, (X, Y), plan(), seed=1, progress=False)
    assert "No record was read" in str(caught.value)
    assert not any(str(number) in str(caught.value) for number in (NUM_RECORDS, 256, 192, 128))


RESPONSES = {
    "counts kept as floats": (lambda m: dist.Poisson(jnp.exp(m)), RNG.poisson(1.0, NUM_RECORDS).astype(np.float32)),
    "beyond a bound": (lambda m: dist.Pareto(5.0, jnp.exp(m)), 5 + RNG.exponential(size=NUM_RECORDS)),
    "within (0, 1)": (lambda m: dist.Beta(jnp.exp(m), 2.0), RNG.uniform(0.1, 0.9, NUM_RECORDS)),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_simulated_records_add_something_whatever_the_response(name, tried, monkeypatch):
    """One that gives all records what the first adds is refused, which it is not where all add nothing."""
    response, y = RESPONSES[name]

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 0.1).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", response(x @ w), obs=y)

    dpvi.fit(model, (X, y), plan(), seed=1, progress=False)
    assert len(tried) == 1
    monkeypatch.setattr(program_check, "_LARGE", 0)  # the trial of a large model, with few records
    faulty(monkeypatch, lambda releases: jnp.broadcast_to(releases[:1], releases.shape))
    with pytest.raises(dpvi.CompilerError):
        dpvi.fit(model, (X, y), plan(), seed=1, progress=False)


def test_arrays_that_are_bound_to_a_device_are_tried_in_every_form_that_runs(tried, monkeypatch):
    bound = jax.device_put((X.astype(np.float32), Y.astype(np.int32)), jax.devices()[0])
    monkeypatch.setattr("dpvi.run.program.chunk._MAX_CHUNK", 4)
    dpvi.fit(regression, bound, plan(num_steps=12), seed=1, progress=False)
    assert len(tried) == 2  # what a chunk gives back is bound, too


FACTOR = np.array([[1.0, 0.0], [0.4, 0.5]], np.float32)


def mixed_up_by_some_compilers(scale, record):
    """A part of each record's own and one that is the same for all: jaxlib 0.10.2 to 0.11.2 mix up its gradients."""
    factor = jnp.broadcast_to(jnp.asarray(FACTOR) * scale, (1, 2, 2))
    moved = jnp.squeeze(factor @ record[None, :, None], -1).sum(-1)
    return -jnp.sum(jnp.square(record[0] - moved)) + jnp.sum(jnp.square(factor))


@dataclasses.dataclass(frozen=True)
class Bare(dpvi.Aligned):
    """Nothing around the gradient that would make the compiler do something else."""

    def release(self, model, family, xi, eta, queries, record):
        return jax.grad(mixed_up_by_some_compilers)(queries[0, 0], record)[None]


@pytest.mark.parametrize("sampling_rate", [0.5, 1.0])
def test_the_known_fault_is_found_where_the_installed_compiler_has_it(sampling_rate, tried):
    model = dpvi.from_functions(
        log_prior=lambda z: -0.5 * jnp.sum(z**2),
        log_likelihood=lambda z, record: mixed_up_by_some_compilers(z[0], record),
        parameters=1,
    )
    records = np.random.default_rng(0).normal(size=(4096, 2)).astype(np.float32)
    compiled = jax.jit(jax.vmap(jax.grad(mixed_up_by_some_compilers), (None, 0)))(jnp.float32(0.7), records)
    fit = {"estimator": Bare(), "seed": 1, "progress": False}
    if len(np.unique(np.asarray(compiled))) == 1:
        with pytest.raises(dpvi.CompilerError):
            dpvi.fit(model, records, plan(sampling_rate), **fit)
    else:
        dpvi.fit(model, records, plan(sampling_rate), **fit)
        assert tried


def network(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1], 8]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([8]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w) @ v, 1.0), obs=y)


@pytest.mark.parametrize("model", [regression, network])
def test_a_record_adds_the_same_bits_in_programs_with_other_numbers_of_slots(model):
    """One record more may ask for another number of slots, and so for another program."""
    x = (RNG.normal(size=(64, 30)) * 10.0 ** RNG.uniform(-1, 3, (64, 1))).astype(np.float32)
    y = RNG.integers(0, 2, 64).astype(np.int32 if model is regression else np.float32)
    ready = NumPyroModel(model, structure_of((x, y)))
    z = jnp.asarray(RNG.normal(size=ready.dimension), jnp.float32)

    @compiled_apart
    def summed(batch, included):
        return step.bounded_sum(jax.vmap(lambda one: jax.grad(ready.log_likelihood)(z, one))(batch), included, 2.0)

    def added(num_slots):
        batch = tuple(np.resize(part, (num_slots, *part.shape[1:])) for part in (x, y))
        return [np.asarray(jax.jit(summed)(batch, jnp.arange(num_slots) == slot).total) for slot in (0, 17, 63)]

    first = added(64)
    for num_slots in (128, 320, 1088, 4096):
        np.testing.assert_array_equal(added(num_slots), first)


def test_norms_are_compared_exactly():
    trial = object.__new__(program_check._Trial)
    trial._size, trial._norms = 2, np.float64(3.0)
    trial._algorithm = type("Algorithm", (), {"bits": gaussian.FORMED_BITS})
    bound = 3 * 2**28  # C/C₂ times 2³⁰
    trial._check_norms(np.array([bound, 0]))
    trial._check_norms(np.array([-bound // 5 * 3, bound // 5 * 4]))
    for longer in ([bound + 1, 0], [bound, 1], [-bound, 1]):
        with pytest.raises(dpvi.CompilerError):
            trial._check_norms(np.array(longer))
