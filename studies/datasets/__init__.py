"""Public data sets of the literature, from local files or checked downloads, as raw columns and encoded tables."""

from studies.datasets.abalone import abalone
from studies.datasets.adult import adult, adult_labels
from studies.datasets.adult_encoding import encode_adult_aligned, encode_adult_noise_aware
from studies.datasets.census_income import census_income, census_income_labels
from studies.datasets.encoding import (
    Block,
    CategoricalColumn,
    ContinuousColumn,
    EncodedTable,
    declared_covariates,
    encode_table,
)
from studies.datasets.mnist import Images, ImageSplit, fashion_mnist, mnist
from studies.datasets.rand_hie import rand_hie
from studies.datasets.tables import Split, Table, complete_rows
from studies.datasets.us_census_1990 import military_poverty, us_census_1990

__all__ = [
    "Block",
    "CategoricalColumn",
    "ContinuousColumn",
    "EncodedTable",
    "ImageSplit",
    "Images",
    "Split",
    "Table",
    "abalone",
    "adult",
    "adult_labels",
    "census_income",
    "census_income_labels",
    "complete_rows",
    "declared_covariates",
    "encode_adult_aligned",
    "encode_adult_noise_aware",
    "encode_table",
    "fashion_mnist",
    "military_poverty",
    "mnist",
    "rand_hie",
    "us_census_1990",
]
