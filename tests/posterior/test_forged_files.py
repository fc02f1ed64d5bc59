"""Files are not believed: what was edited is refused, with a new checksum too, and a signature catches the rest."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from support.small_models import trace_of

import dpvi
from dpvi.declared.guarantee import Captured, Circumstances
from dpvi.posterior import Result, storage

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

pytestmark = pytest.mark.usefixtures("accounted")
CAPTURED = (Captured("design", (3, 2)),)


@pytest.fixture(scope="module")
def plan():
    return dpvi.plan(epsilon=1.0, delta=1e-5, sampling_rate=0.1, num_steps=40, clip_norm=2.0, unit="one patient")


@pytest.fixture
def result(plan) -> Result:
    """Of a run with a small seed."""
    rows = np.random.default_rng(1).normal(size=(40, 2)).astype(np.float32)
    return Result(
        plan=plan,
        circumstances=Circumstances("guessable", CAPTURED),
        trace=trace_of(rows),
        family=dpvi.MeanField(),
        estimator={"name": "Aligned", "num_draws": 1},
        sites=(),
        structure=(),
    )


def edited(path, change, fitting_checksum=False):
    """Change header and arrays of a stored result; a forger who knows the format adds the checksum that fits."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes())
    change(header, arrays)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    if fitting_checksum:
        hashed = {name: array for name, array in arrays.items() if name not in ("checksum", "signature")}
        arrays["checksum"] = np.frombuffer(storage.checksum_of(hashed), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def of_plan(**changes):
    return lambda header, arrays: header["plan"].update(changes)


def of_release(**changes):
    return lambda header, arrays: header["plan"]["releases"][0].update(changes)


def of_facts(**changes):
    return lambda header, arrays: header["circumstances"].update(changes)


def without(*path):
    def change(header, arrays):
        for name in path[:-1]:
            header = header[name]
        del header[path[-1]]

    return change


def other_value(header, arrays):
    arrays["final"] = arrays["final"] + 1


EDITS = {
    "epsilon": of_plan(epsilon=0.001),
    "a larger epsilon": of_plan(epsilon=2.0),
    "delta": of_plan(delta=1e-9),
    "accountant": of_plan(accountant="the best there is"),
    "unit": of_plan(unit="one hospital"),
    "adjacency": of_plan(adjacency="substitute"),
    "a public number of records": of_plan(num_records=1000),
    "noise multiplier": of_release(noise_multiplier=100.0),
    "sampling rate": of_release(sampling_rate=0.001),
    "steps": of_release(count=1),
    "clip norm": of_release(clip_norm=1.0),
    "the seed": of_facts(seed="none"),
    "the seed is left out": without("circumstances", "seed"),
    "arrays are left out": of_facts(captured=[]),
    "all facts are left out": without("circumstances"),
    "a sentence is added": lambda header, arrays: header.update(assumptions=["All is well."]),
    "the promise": lambda header, arrays: header.update(promise="(1.0, 1e-05)-differential privacy"),
    "the promise is left out": without("promise"),
    "an array": other_value,
    "another array": lambda header, arrays: arrays.update(more=np.zeros(3)),
    "no checksum": lambda header, arrays: arrays.pop("checksum"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_refused_by_a_sentence(tmp_path, result, edit):
    path = tmp_path / "result.npz"
    result.save(path)
    assert Result.load(path).guarantee == result.guarantee, "power: as it was saved it is read"
    edited(path, EDITS[edit])
    with pytest.raises(ValueError, match=r"was changed after dpvi saved it.*does not fit its checksum"):
        Result.load(path)


FALSE = {
    "epsilon": "claims epsilon = 0.001 .* but its releases spend 0.99",
    "delta": "claims epsilon = 1 at delta = 1e-09, but its releases spend",
    "accountant": "says that its epsilon was computed by 'the best there is'",
    "adjacency": "but its releases spend",
    "the seed": "claims 'NOT PRIVATE', but what dpvi computes from its facts is",
    "the seed is left out": "not a complete dpvi result",
    "all facts are left out": "not a complete dpvi result",
    "the promise": "but what dpvi computes from its facts is 'NOT PRIVATE'",
    "the promise is left out": "claims None",
    "another array": "not a complete dpvi result",
}


@pytest.mark.parametrize("edit", FALSE)
def test_a_false_claim_is_refused_with_a_checksum_that_fits_it_too(tmp_path, result, edit):
    path = tmp_path / "result.npz"
    result.save(path)
    edited(path, EDITS[edit], fitting_checksum=True)
    with pytest.raises(ValueError, match=FALSE[edit]):
        Result.load(path)


def test_the_old_format_was_believed_and_is_refused(tmp_path, result):
    """The attack: ε = 0.001 and no word of a seed, printed by result and posterior."""
    path = tmp_path / "result.npz"
    result.save(path)

    def as_before(header, arrays):
        header.update(format_version=1, assumptions=[])
        header["plan"]["epsilon"] = 0.001
        del header["circumstances"], header["promise"], arrays["checksum"]

    edited(path, as_before)
    with np.load(path) as archive:
        header = json.loads(archive["header"].tobytes())
    plan = dpvi.Plan.from_dict(header["plan"])
    believed = dataclasses.replace(plan.guarantee, assumptions=tuple(header["assumptions"]))
    assert str(believed).startswith("(ε = 0.001, "), "power: so it was read"
    assert "Assumes" not in str(believed)
    with pytest.raises(ValueError, match="of format 1, which held sentences instead of facts"):
        Result.load(path)


def test_sentences_follow_from_facts(tmp_path, result):
    path = tmp_path / "result.npz"
    secret = dataclasses.replace(result, circumstances=Circumstances("secret", (*CAPTURED, Captured("scale", ()))))
    secret.save(path)
    text = str(Result.load(path).guarantee)
    assert "whoever knows it can remove the noise" in text
    assert "these arrays, which the statement takes as public: design (3, 2), scale ()." in text
    with np.load(path) as archive:
        stored = archive["header"].tobytes().decode()
    assert "closes over" not in stored
    assert "whoever" not in stored


# Signatures


@pytest.fixture
def keys(tmp_path):
    """A private and a public key, and the public key of somebody else, as PEM files."""
    paths = tmp_path / "private.pem", tmp_path / "public.pem", tmp_path / "other.pem"
    mine, other = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    public = pem, serialization.PublicFormat.SubjectPublicKeyInfo
    paths[0].write_bytes(mine.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    paths[1].write_bytes(mine.public_key().public_bytes(*public))
    paths[2].write_bytes(other.public_key().public_bytes(*public))
    return paths


def test_a_signature_is_checked_where_a_key_is_given(tmp_path, result, keys):
    private, public, other = keys
    path = tmp_path / "result.npz"
    result.sign(private).save(path)
    loaded = Result.load(path, verify_key=public)
    assert loaded.guarantee == Result.load(path).guarantee == result.guarantee
    loaded.save(path)
    Result.load(path, verify_key=str(public))  # a copy is as good
    with pytest.raises(ValueError, match="is not by this key, or the file was changed"):
        Result.load(path, verify_key=other)
    result.save(path)
    with pytest.raises(ValueError, match="is not signed"):
        Result.load(path, verify_key=public)


def test_a_forger_who_knows_the_format_is_stopped_by_the_signature_alone(tmp_path, result, keys):
    private, public, _ = keys
    path = tmp_path / "result.npz"
    result.sign(private).save(path)

    def forged(header, arrays):
        header["circumstances"]["seed"] = "none"
        header["promise"] = "(1.0, 1e-05)-differential privacy"

    edited(path, forged, fitting_checksum=True)
    assert Result.load(path).guarantee.private, "power: this forgery is consistent"
    with pytest.raises(ValueError, match="is not by this key, or the file was changed"):
        Result.load(path, verify_key=public)


def test_keys_may_be_objects_and_wrong_ones_are_refused(tmp_path, result, keys):
    private, public, _ = keys
    path = tmp_path / "result.npz"
    own = ed25519.Ed25519PrivateKey.generate()
    result.sign(own).save(path)
    Result.load(path, verify_key=own.public_key())
    with pytest.raises(ValueError, match="must be a PEM file with an Ed25519 private key"):
        result.sign(public)
    with pytest.raises(ValueError, match="must be a PEM file with an Ed25519 public key"):
        Result.load(path, verify_key=private)
    locked = serialization.BestAvailableEncryption(b"secret")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private.write_bytes(own.private_bytes(*form, locked))
    with pytest.raises(ValueError, match="is encrypted"):
        result.sign(private)
    with pytest.raises(FileNotFoundError):
        result.sign(tmp_path / "nowhere.pem")
