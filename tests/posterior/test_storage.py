"""Results as files: nothing lost, nothing executed on reading, nothing half written."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from support import guide_models, numpyro_models
from support.small_models import exact_plan, location_model, private_plan, trace_of

from dpvi.declared.guarantee import Captured, Circumstances, Together
from dpvi.families import FullRank, LowRank, MeanField
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.sites import layout
from dpvi.posterior import Result, storage
from dpvi.release.trace import CurvatureSums, Segments

FLOAT = jax.ShapeDtypeStruct((), jnp.dtype("float32"))
FACTS = Circumstances(
    "secret", captured=(Captured("design", (3, 2)), Captured("scale", ())), together=Together(5, True, 5.0, 5e-5)
)
SITES = layout(
    [
        ("w", (2,), (2,), constraints.real_vector),
        ("scale", (), (), constraints.positive),
        ("p", (2,), (1,), constraints.simplex),
    ]
)


def make_result(
    family=MeanField(), plan=None, sites=SITES, structure=None, model=None, dtype=np.float32, facts=FACTS, **parts
) -> Result:
    """A result without a run: random iterates, as a trace would hold them."""
    dimension = sum(site.size for site in sites)
    rows = np.random.default_rng(1).normal(0, 0.01, (40, family.num_parameters(dimension))).astype(dtype)
    plan = private_plan(40) if plan is None else plan
    structure = (jax.ShapeDtypeStruct((2,), FLOAT.dtype), {"y": FLOAT}) if structure is None else structure
    return Result(
        plan=plan,
        circumstances=facts,
        trace=trace_of(rows)._replace(**parts),
        family=family,
        estimator={"name": "Preconditioned", "beta": [1.0, 2.0], "num_draws": 1},
        sites=sites,
        structure=structure,
        model=model,
    )


def units_of_two_rows(plan):
    return dataclasses.replace(
        plan, releases=tuple(dataclasses.replace(each, rows_per_unit=2) for each in plan.releases)
    )


CURVATURE = CurvatureSums(
    *(np.random.default_rng(2).normal(size=(3, *shape)) for shape in ((), (4,), (4,), (4,), (4, 4), (4, 4)))
)
SEGMENTS = Segments(np.array([0, 5]), np.array([5, 40]), np.array([[np.nan] * 2, [1.0, 2.0]]), np.ones((2, 2)))
DYNAMIC = NumPyroModel(numpyro_models.dynamic, FLOAT)
EXAMPLES = {
    "mean field": make_result(),
    "full rank": make_result(FullRank(scale="exp")),
    "low rank": make_result(LowRank(2, initial_scale=0.3)),
    "not private": make_result(plan=exact_plan(40)),
    "double precision": make_result(dtype=np.float64),
    "thinned": make_result(curvature=CURVATURE, thinning=3),
    "driven": make_result(segments=SEGMENTS),
    "units of two rows": make_result(plan=units_of_two_rows(private_plan(40))),
    "declared size": make_result(plan=dataclasses.replace(private_plan(40), num_records=17)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_saved_result_comes_back_bit_by_bit(tmp_path, name):
    result = EXAMPLES[name]
    result.save(tmp_path / "result.dpvi")
    loaded = Result.load(tmp_path / "result.dpvi")
    for field in ("plan", "circumstances", "guarantee", "family", "estimator", "structure"):
        assert getattr(loaded, field) == getattr(result, field), field
    assert [tuple(site[:3]) for site in loaded.sites] == [tuple(site[:3]) for site in result.sites]
    for field, before, after in zip(result.trace._fields, result.trace, loaded.trace, strict=True):
        assert type(before) is type(after), field
        parts = zip(before, after, strict=True) if isinstance(before, tuple) else [(before, after)]
        for one, other in parts if before is not None else ():
            assert np.asarray(one).dtype == np.asarray(other).dtype
            np.testing.assert_array_equal(one, other, err_msg=field)
    assert [path.name for path in tmp_path.iterdir()] == ["result.dpvi"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_result_that_was_read_is_written_as_it_was(tmp_path, name):
    """Else a signature would not survive a copy made by the library itself."""
    EXAMPLES[name].save(tmp_path / "result.dpvi")
    assert storage.digest_of(Result.load(tmp_path / "result.dpvi")) == storage.digest_of(EXAMPLES[name])


@pytest.mark.parametrize("method", ["last", "average", "stationary"])
def test_a_loaded_result_has_the_same_posterior_without_its_model(tmp_path, method):
    result = EXAMPLES["low rank"]
    result.save(tmp_path / "result.dpvi")
    before, after = (
        r.posterior(method).summary(num_samples=200) for r in (result, Result.load(tmp_path / "result.dpvi"))
    )
    assert str(before) == str(after)
    assert before.names == ("w[0]", "w[1]", "scale", "p[0]", "p[1]")


def test_a_result_in_double_precision_is_read_in_single(tmp_path):
    EXAMPLES["double precision"].save(tmp_path / "result.dpvi")
    loaded = Result.load(tmp_path / "result.dpvi")
    assert loaded.trace.iterates.dtype == np.float64
    assert np.isfinite(loaded.posterior().summary(num_samples=50).mean).all()


def test_a_file_needs_no_pickle_and_names_its_format(tmp_path):
    EXAMPLES["not private"].save(tmp_path / "result.dpvi")
    with np.load(tmp_path / "result.dpvi", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    assert all(array.dtype != object for array in arrays.values())
    header = json.loads(arrays["header"].tobytes())
    assert header["format"] == "dpvi result"
    assert header["format_version"] == 2
    assert header["plan"]["epsilon"] == "inf"
    assert Result.load(tmp_path / "result.dpvi").plan.epsilon == math.inf


# Models


def test_a_support_only_the_model_knows_needs_the_model(tmp_path):
    result = make_result(sites=DYNAMIC.sites, structure=FLOAT, model=DYNAMIC)
    result.save(tmp_path / "result.dpvi")
    with pytest.raises(ValueError, match="load the result with"):
        Result.load(tmp_path / "result.dpvi").posterior()
    loaded = Result.load(tmp_path / "result.dpvi", model=numpyro_models.dynamic)
    draws = loaded.posterior("last").sample(20)
    assert bool(jnp.all(draws["high"] > draws["low"]))
    assert str(loaded.posterior().summary(num_samples=50)) == str(result.posterior().summary(num_samples=50))


def test_a_method_that_explains_by_the_model_asks_for_it(tmp_path):
    make_result().save(tmp_path / "result.dpvi")
    for method in ("score", "metric"):
        with pytest.raises(ValueError, match=r"load the result with its model: Result\.load\(path, model=model\)"):
            Result.load(tmp_path / "result.dpvi").posterior(method)


def test_results_and_posteriors_pickle_without_their_compiled_programs():
    result = make_result(sites=DYNAMIC.sites, structure=FLOAT, model=DYNAMIC)
    result = dataclasses.replace(result, scores=lambda: None)  # as unfit for a pickle as a compiled program
    expected = str(result.posterior("last").summary(num_samples=50))
    again = pickle.loads(pickle.dumps(result))
    assert again.scores is None
    assert again.model.function is numpyro_models.dynamic
    posterior = pickle.loads(pickle.dumps(again.posterior("last")))
    for one in (again.posterior("last"), posterior, copy.deepcopy(result).posterior("last")):
        assert str(one.summary(num_samples=50)) == expected
    assert copy.deepcopy(result).model is DYNAMIC


def test_a_guide_pickles_with_its_model():
    ready = GuidedModel(guide_models.mean, guide_models.mean_guide, FLOAT)
    again = pickle.loads(pickle.dumps(ready))
    assert again.guide is guide_models.mean_guide
    assert again.parameters.describe() == ready.parameters.describe()


def test_another_model_is_refused(tmp_path):
    EXAMPLES["mean field"].save(tmp_path / "result.dpvi")
    with pytest.raises(ValueError, match=r"was fitted with parameters .*'w'.* but the model given has"):
        Result.load(tmp_path / "result.dpvi", model=location_model())


def test_a_model_of_ones_own_is_needed_again(tmp_path):
    """A model that names no sites can only be constrained by itself."""
    base = location_model()

    class Bare:
        dimension = base.dimension
        log_prior, log_likelihood = staticmethod(base.log_prior), staticmethod(base.log_likelihood)
        constrain, unconstrain = staticmethod(base.constrain), staticmethod(base.unconstrain)

    result = dataclasses.replace(make_result(sites=base.sites), sites=(), model=Bare())
    result.save(tmp_path / "result.dpvi")
    assert result.posterior("last").sample(3)["z"].shape == (3, 2)
    with pytest.raises(ValueError, match="load the result with"):
        Result.load(tmp_path / "result.dpvi").posterior("last")
    assert Result.load(tmp_path / "result.dpvi", model=Bare()).posterior("last").sample(3)["z"].shape == (3, 2)


def test_an_unknown_method_is_refused_by_naming_the_known_ones():
    with pytest.raises(ValueError, match="method must be one of 'last', 'average', 'stationary'"):
        EXAMPLES["mean field"].posterior("na_dpvi_of_tomorrow")


# Files that are not results


def _archive(path, **arrays):
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def _with_header(path, change):
    EXAMPLES["mean field"].save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes())
    arrays["header"] = np.frombuffer(json.dumps(change(header)).encode(), np.uint8)
    _archive(path, **arrays)


def _without_array(path):
    EXAMPLES["mean field"].save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "blocks.phi"}
    _archive(path, **arrays)


def _truncated(path):
    EXAMPLES["mean field"].save(path)
    path.write_bytes(path.read_bytes()[:-200])


def _flipped(path):
    EXAMPLES["mean field"].save(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(byte ^ 0x5A for byte in content[middle : middle + 40])
    path.write_bytes(bytes(content))


def _saved_array(path):
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))


def _pickle(path):
    import pickle

    path.write_bytes(pickle.dumps({"format": "dpvi result"}))


FOREIGN = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a result"),
    "a plan": lambda path: private_plan(3).save(path),
    "a pickle": _pickle,
    "a single array": _saved_array,
    "an archive without header": lambda path: _archive(path, steps=np.arange(3)),
    "a header that is no JSON": lambda path: _archive(path, header=np.arange(30, dtype=np.uint8)),
    "a header that is no object": lambda path: _with_header(path, lambda header: [1, 2]),
    "another format": lambda path: _with_header(path, lambda header: header | {"format": "other"}),
    "a later version": lambda path: _with_header(path, lambda header: header | {"format_version": 99}),
    "a header without plan": lambda path: _with_header(path, lambda header: {**header, "plan": {}}),
    "a header without family": lambda path: _with_header(path, lambda h: {k: v for k, v in h.items() if k != "family"}),
    "an unknown family": lambda path: _with_header(path, lambda header: header | {"family": {"name": "Flow"}}),
    "a missing array": _without_array,
    "truncated": _truncated,
    "damaged": _flipped,
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_file_that_is_no_result_is_refused_by_a_sentence(tmp_path, case):
    path = tmp_path / "file.dpvi"
    FOREIGN[case](path)
    with pytest.raises(ValueError, match=r"(?s)\.$") as caught:
        Result.load(path)
    assert type(caught.value) is ValueError
    assert "dpvi" in str(caught.value)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        Result.load(tmp_path / "nowhere.dpvi")


def test_an_interrupted_save_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "result.dpvi"
    EXAMPLES["mean field"].save(path)
    before = path.read_bytes()

    def breaks(file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    for writer in ("savez", "savez_compressed"):
        monkeypatch.setattr(np, writer, breaks)
    with pytest.raises(KeyboardInterrupt):
        EXAMPLES["full rank"].save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.dpvi"]


def test_what_cannot_be_stored_is_refused_before_a_file_exists(tmp_path):
    from typing import NamedTuple

    class Columns(NamedTuple):
        y: jax.ShapeDtypeStruct

    with pytest.raises(TypeError, match="pass the data as one of those"):
        make_result(structure=Columns(FLOAT)).save(tmp_path / "result.dpvi")
    assert list(tmp_path.iterdir()) == []
