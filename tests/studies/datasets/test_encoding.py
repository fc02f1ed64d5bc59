from __future__ import annotations

import numpy as np
import pytest

from dpvi.declared.columns import Constant, Numeric, OneHot
from studies.datasets.encoding import CategoricalColumn, ContinuousColumn, declared_covariates, encode_table
from studies.datasets.tables import Table, select_rows

AGE = ContinuousColumn("age", 17, 90, centre=40, scale=15)
GAIN = ContinuousColumn("gain", 0, 1e5, centre=0, scale=3, logarithm=True)
WORK = CategoricalColumn("work", ("State", "Private", "None"), reference="Private")
SEX = CategoricalColumn("sex", ("Female", "Male"))
COLUMNS = (AGE, GAIN, WORK, SEX)


@pytest.fixture
def table() -> Table:
    return {
        "age": np.array([25.0, 40.0, 120.0]),
        "gain": np.array([0.0, np.e - 1, 1e9]),
        "work": np.array(["None", "Private", "State"]),
        "sex": np.array(["Male", "Female", "Male"]),
    }


def test_declared_scaling_clips_transforms_and_scales(table: Table):
    encoded = encode_table(table, COLUMNS)
    np.testing.assert_allclose(encoded.features[:, 0], [-1, 0, (90 - 40) / 15], rtol=1e-6)
    np.testing.assert_allclose(encoded.features[:, 1], [0, 1 / 3, np.log1p(1e5) / 3], rtol=1e-6)
    assert encoded.features.dtype == np.float32


def test_indicators_follow_levels_and_the_reference_has_none(table: Table):
    encoded = encode_table(table, COLUMNS)
    assert encoded.feature_names == ("age", "gain", "work=State", "work=None", "sex=Female", "sex=Male", "constant")
    np.testing.assert_array_equal(encoded.features[:, 2:4], [[0, 1], [0, 0], [1, 0]])
    np.testing.assert_array_equal(encoded.features[:, 4:], [[0, 1, 1], [1, 0, 1], [0, 1, 1]])


def test_declared_rows_do_not_depend_on_other_rows_and_published_ones_do(table: Table):
    def first_row(scaling: str, rows: list[int]) -> np.ndarray:
        return encode_table(select_rows(table, np.array(rows)), COLUMNS, scaling).features[0]

    np.testing.assert_array_equal(first_row("declared", [0]), first_row("declared", [0, 1, 2]))
    assert not np.allclose(first_row("published", [0, 1]), first_row("published", [0, 1, 2]))


def test_published_scaling_is_the_z_score_with_n_in_the_denominator(table: Table):
    features = encode_table(table, COLUMNS, "published").features
    np.testing.assert_allclose(features[:, :2].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(features[:, :2].std(axis=0), 1, rtol=1e-6)
    assert not np.allclose(features[:, :2].std(axis=0, ddof=1), 1, rtol=0.1)  # the other convention would be seen


def test_blocks_cover_the_columns_and_name_their_raw_column(table: Table):
    blocks = encode_table(table, COLUMNS).blocks
    assert [(block.name, block.start, block.stop) for block in blocks] == [
        ("age", 0, 1),
        ("gain", 1, 2),
        ("work", 2, 4),
        ("sex", 4, 6),
        ("constant", 6, 7),
    ]
    assert [block.column for block in blocks] == [*COLUMNS, None]


def test_covariates_declare_bins_in_encoded_units(table: Table):
    encoded = encode_table(table, COLUMNS)
    age, gain, work, sex, constant = encoded.covariates(num_bins=8)
    assert age == Numeric((17 - 40) / 15, (90 - 40) / 15, 8)
    assert gain == Numeric(0.0, np.log1p(1e5) / 3, 8)
    assert (work, sex, constant) == (OneHot(3, reference=True), OneHot(2), Constant(1.0))
    assert sum(column.width for column in encoded.covariates()) == encoded.features.shape[1]
    assert np.all(encoded.features[:, 1] <= np.float32(gain.upper))
    assert declared_covariates(COLUMNS, num_bins=8) == encoded.covariates(num_bins=8)


def test_published_covariates_bound_the_raw_number(table: Table):
    blocks = encode_table(table, (GAIN,), "published").blocks
    bounds = blocks[0].covariate()
    assert isinstance(bounds, Numeric)
    assert blocks[0].centre + blocks[0].scale * bounds.upper == pytest.approx(1e5)


def test_levels_that_are_not_declared_are_refused_without_quoting_them(table: Table):
    table["work"][0] = "Spy"
    with pytest.raises(ValueError, match="not among its 3 declared levels") as caught:
        encode_table(table, COLUMNS)
    assert "Spy" not in str(caught.value)


def test_codes_count_from_zero_in_declared_order(table: Table):
    codes = WORK.codes(table["work"])
    assert codes.tolist() == [2, 1, 0]
    assert codes.dtype == np.int32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: CategoricalColumn("sex", ("Male", "Male")), "must be distinct"),
        (lambda: CategoricalColumn("sex", ("Male",), reference="Female"), "'Female', is not among its levels"),
        (lambda: encode_table({"age": np.ones(2)}, (AGE,), "robust"), "scaling must be 'declared' or 'published'"),
        (lambda: encode_table({"age": np.ones(2)}, (AGE, SEX)), "no column 'sex'"),
        (lambda: encode_table({"age": np.ones(2)}, (AGE,), "published"), "is constant"),
    ],
)
def test_refusals(change, message: str):
    with pytest.raises(ValueError, match=message):
        change()
