"""One run on several devices, and in several processes: the iterates of one, and no result without all of them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from support.launch import launch
from support.small_models import location_model, many_records, private_plan

import dpvi
from dpvi.run import preparation

NUM_RECORDS = 403
PASS_ELEMENTS = 8
CASE = {"num_steps": 60, "sampling_rate": 0.1, "seed": 1}


@pytest.fixture(scope="module")
def alone():
    """The same run in one process, on one device."""
    with jax.enable_x64(True):
        plan = private_plan(CASE["num_steps"], CASE["sampling_rate"])
        return dpvi.fit(location_model(), many_records(), plan, seed=CASE["seed"], progress=False).trace


@pytest.fixture
def in_short_passes(monkeypatch):
    """Six steps of it, in passes of four slots."""
    with jax.enable_x64(True), monkeypatch.context() as patched:
        patched.setattr(preparation, "_MAX_PASS_ELEMENTS", PASS_ELEMENTS)
        return dpvi.fit(location_model(), many_records(), private_plan(6, 0.1), seed=1, progress=False).trace


def assert_same_iterates(written, trace):
    """Every bit of every sum that was released; what is computed from these may round otherwise."""
    np.testing.assert_array_equal(written["noisy_sums"], trace.noisy_sums)
    np.testing.assert_allclose(written["iterates"], trace.iterates, rtol=1e-12, atol=1e-12)


def test_four_devices_release_what_one_does(alone, in_short_passes, tmp_path):
    short = {**CASE, "num_steps": 6, "mapped": [0], "pass_elements": PASS_ELEMENTS}
    cases = {
        "run": CASE,
        "mapped": {**CASE, "mapped": [0]},
        "sets": {**CASE, "num_steps": 12, "sets": 13},
        "same": {**CASE, "num_steps": 12, "sets": 5, "same_data": True},
        "short": short,
        "unreadable": {**short, "num_reads": 9},
    }
    (ended,) = launch(tmp_path, {"devices": 4, "rows": [0, NUM_RECORDS], "cases": cases})
    assert ended.code == 0, ended.errors
    assert_same_iterates(ended.written["run"], alone)
    assert_same_iterates(ended.written["mapped"], alone)
    assert_same_iterates(ended.written["short"], in_short_passes)
    # one device could not read rows of a further pass: it must not leave the others, who would wait for its sum
    assert str(ended.written["unreadable"]["error"]) == "records.bin has rows that cannot be read."
    third = many_records().reshape(13, 31, 2)[2]
    with jax.enable_x64(True):
        of_set, of_all = (
            dpvi.fit(location_model(), records, private_plan(12, 0.1), seed=2, progress=False).trace
            for records in (third, many_records())
        )
    np.testing.assert_array_equal(ended.written["sets"]["noisy_sums"][2], of_set.noisy_sums)
    np.testing.assert_array_equal(ended.written["same"]["noisy_sums"][2], of_all.noisy_sums)


def test_many_rows_of_a_further_pass_are_read_though_the_program_that_asks_has_the_only_core(tmp_path):
    # three passes of 40,000 slots at every step; several chunks, so that the next is drawn while this one runs
    large = {"num_steps": 40, "sampling_rate": 0.9, "seed": 1, "pass_elements": 80_000, "own": {"devices": [None]}}
    cases = {"held": large, "mapped": {**large, "mapped": [0]}}
    options = {"cores": 1, "num_records": 100_000, "rows": [0, 100_000], "cases": cases}
    (ended,) = launch(tmp_path, options)
    assert ended.code == 0, ended.errors
    np.testing.assert_array_equal(ended.written["mapped"]["noisy_sums"], ended.written["held"]["noisy_sums"])


def test_two_processes_release_what_one_does_and_nothing_when_one_is_lost(alone, tmp_path):
    cases = {
        "run": {**CASE, "mapped": [0, 1]},
        "unseeded": {**CASE, "seed": None, "mapped": [0, 1]},
        "differs": {**CASE, "mapped": [1], "own": {"seed": [0, 1], "devices": [3, 2], "microbatch_size": [None, 4]}},
        "refused": {**CASE, "empty": 1},
        "twice": {**CASE, "rows": [0, 200]},
        "uncounted": {**CASE, "mapped": [0, 1], "counted": True, "num_reads": 0},
        "unloaded": {**CASE, "mapped": [0, 1], "sampling_rate": 1.0, "num_reads": 0},
        "changed": {**CASE, "num_steps": 200, "mapped": [0, 1], "driver": "touch"},
        "undriven": {**CASE, "num_steps": 200, "driver": "raise"},
        "lost": {**CASE, "num_steps": 200, "driver": "vanish"},
    }
    common = {"num_processes": 2, "cases": cases}
    first, second = launch(
        tmp_path,
        {"process": 0, "rows": [0, 300], **common},
        {"process": 1, "rows": [300, NUM_RECORDS], "devices": 2, **common},
    )
    assert "run" in first.written, first.errors
    assert_same_iterates(first.written["run"], alone)
    assert_same_iterates(second.written["run"], alone)
    # without a seed both have process 0's key, and it is not the key of the seed
    np.testing.assert_array_equal(first.written["unseeded"]["noisy_sums"], second.written["unseeded"]["noisy_sums"])
    assert not np.any(first.written["unseeded"]["noisy_sums"] == first.written["run"]["noisy_sums"])
    # what must be the same is, or nothing runs; who refuses says why, the others say who
    for ended in (first, second):
        message = str(ended.written["differs"]["error"])
        assert "these differ: seed, records in memory or on disk, devices, microbatch_size." in message
    assert "process 1 could not go on" in str(first.written["refused"]["error"])
    assert "at least one record" in str(second.written["refused"]["error"])
    # the same rows in both processes would count twice
    for ended in (first, second):
        assert "Processes 0 and 1 hold the same records" in str(ended.written["twice"]["error"])
    # nor does anyone wait for one that cannot read or whose driver raises, or return without one whose file was changed
    reasons = {
        "uncounted": "records.bin has rows that cannot be read",
        "unloaded": "records.bin has rows that cannot be read",
        "changed": "was changed after it was opened",
        "undriven": "a driver of its own",
    }
    for name, reason in reasons.items():
        assert "process 1 could not go on" in str(first.written[name]["error"])
        assert reason in str(second.written[name]["error"])
    # the second process was killed half-way: the first stops with a sentence and keeps nothing
    assert second.code == -9
    assert first.code != 0
    assert "Another process of this run was lost" in first.errors
    assert "lost" not in first.written
    # only one of them draws a bar
    assert "steps" in first.errors
    assert "steps" not in second.errors
