from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.datasets import Split, adult, adult_labels, encode_adult_aligned, encode_adult_noise_aware
from studies.datasets.adult_encoding import ALIGNED_COLUMNS, NOISE_AWARE_COLUMNS
from studies.datasets.encoding import CategoricalColumn, ContinuousColumn

ROWS = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K",
    "52, ?, 209642, HS-grad, 9, Married-civ-spouse, ?, Husband, White, Male, 0, 0, 45, United-States, >50K",
    "31, Private, 45781, Masters, 14, Never-married, Prof-specialty, Not-in-family, White, Female, 14084, 0, 50, "
    "United-States, >50K",
)
HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,capital-gain,"
    "capital-loss,hours-per-week,native-country,income"
)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    (tmp_path / "adult.data").write_text("\n".join(ROWS) + "\n\n")
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + "".join(f"{row}.\n" for row in ROWS))
    return tmp_path


def test_original_files_with_and_without_missing_rows(original: Path):
    train, test = adult(original)
    assert train["age"].tolist() == test["age"].tolist() == [39.0, 31.0]
    assert adult_labels(test).tolist() == [0, 1]  # the test labels' full stop is gone
    assert len(adult(original, drop_missing=False).train["age"]) == 3


def test_header_and_gzip_give_the_same_table(original: Path, tmp_path: Path):
    packed = tmp_path / "packed"
    packed.mkdir()
    text = "\n".join([HEADER, *(row.replace(", ", ",") for row in ROWS)])
    for part in ("train", "test"):
        (packed / f"adult_{part}.csv.gz").write_bytes(gzip.compress(text.encode()))
    for first, second in zip(adult(original), adult(packed), strict=True):
        for name, column in first.items():
            np.testing.assert_array_equal(column, second[name])


def test_encodings_have_the_published_widths(original: Path):
    train = adult(original).train
    assert encode_adult_noise_aware(train).features.shape == (2, 57)
    assert encode_adult_aligned(train).features.shape == (2, 96)
    np.testing.assert_array_equal(encode_adult_aligned(train).features[:, -1], 1)


def test_declared_rows_have_a_public_bound_on_their_norm(original: Path):
    encoded = encode_adult_noise_aware(adult(original).train)
    largest = [max(abs(column.lower), abs(column.upper)) for column in encoded.covariates()[:5]]
    bound = np.sqrt(np.sum(np.square(largest)) + 6 + 1)  # one indicator of each of six categories, and the constant
    assert np.all(np.linalg.norm(encoded.features, axis=1) <= bound)


@pytest.fixture(scope="module")
def real(real_data: Callable[[str], Path]) -> Split:
    return adult(real_data("adult"))


def test_real_counts(real: Split):
    assert [len(part["age"]) for part in real] == [30162, 15060]
    assert [int(adult_labels(part).sum()) for part in real] == [7508, 3700]


def test_declared_levels_are_those_of_the_data(real: Split):
    for column in (*NOISE_AWARE_COLUMNS, *ALIGNED_COLUMNS):
        if isinstance(column, CategoricalColumn):
            assert set(column.levels) == set(real.train[column.name])
            assert set(real.test[column.name]) <= set(column.levels)


def test_references_are_the_most_frequent_levels(real: Split):
    for column in ALIGNED_COLUMNS:
        if isinstance(column, CategoricalColumn):
            levels, counts = np.unique(real.train[column.name], return_counts=True)
            assert column.reference == levels[counts.argmax()]


def test_declared_bounds_hold_the_data_and_declared_scales_are_near_its_deviations(real: Split):
    for column in NOISE_AWARE_COLUMNS:
        if isinstance(column, ContinuousColumn):
            values = real.train[column.name]
            assert column.lower <= values.min()
            assert values.max() <= column.upper
            assert 0.4 < column.declared(values).std() < 2.5


def test_published_z_scores_come_from_each_part(real: Split):
    for part in real:
        numbers = encode_adult_noise_aware(part, "published").features[:, :5].astype(np.float64)
        np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(numbers.std(axis=0), 1, rtol=1e-5)
    block = encode_adult_noise_aware(real.train, "published").blocks[0]
    test_age = (real.test["age"] - block.centre) / block.scale
    assert abs(test_age.mean()) > 1e-3  # the training part's statistics would be seen
