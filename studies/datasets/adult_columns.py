"""What is publicly known of Adult's columns: levels of categories, bounds and usual sizes of numbers."""

from __future__ import annotations

from studies.datasets.encoding import CategoricalColumn, ContinuousColumn

# Bounds, centres and scales are public knowledge, not read from the records: the survey's extract holds persons above
# 16, ages are top-coded at 90, hours have two digits with 40 the usual week, gains and losses are amounts with the
# codebook's ceilings and mostly zero, weights are persons represented, about 10⁵.
AGE = ContinuousColumn("age", 17, 90, centre=40, scale=15)
WEIGHT = ContinuousColumn("fnlwgt", 1e4, 1.5e6, centre=12, scale=0.7, logarithm=True)
CAPITAL_GAIN = ContinuousColumn("capital-gain", 0, 1e5, centre=0, scale=3, logarithm=True)
CAPITAL_LOSS = ContinuousColumn("capital-loss", 0, 1e4, centre=0, scale=3, logarithm=True)
HOURS = ContinuousColumn("hours-per-week", 1, 99, centre=40, scale=12)

# Levels are those of the repository's description. "Never-worked" is not among them: such a person has no occupation,
# and rows with anything missing are left out.
WORKCLASS = CategoricalColumn(
    "workclass",
    ("Federal-gov", "Local-gov", "Private", "Self-emp-inc", "Self-emp-not-inc", "State-gov", "Without-pay"),
)
EDUCATION = CategoricalColumn(
    "education",
    (
        "10th",
        "11th",
        "12th",
        "1st-4th",
        "5th-6th",
        "7th-8th",
        "9th",
        "Assoc-acdm",
        "Assoc-voc",
        "Bachelors",
        "Doctorate",
        "HS-grad",
        "Masters",
        "Preschool",
        "Prof-school",
        "Some-college",
    ),
)
MARITAL_STATUS = CategoricalColumn(
    "marital-status",
    (
        "Divorced",
        "Married-AF-spouse",
        "Married-civ-spouse",
        "Married-spouse-absent",
        "Never-married",
        "Separated",
        "Widowed",
    ),
)
OCCUPATION = CategoricalColumn(
    "occupation",
    (
        "Adm-clerical",
        "Armed-Forces",
        "Craft-repair",
        "Exec-managerial",
        "Farming-fishing",
        "Handlers-cleaners",
        "Machine-op-inspct",
        "Other-service",
        "Priv-house-serv",
        "Prof-specialty",
        "Protective-serv",
        "Sales",
        "Tech-support",
        "Transport-moving",
    ),
)
RELATIONSHIP = CategoricalColumn(
    "relationship", ("Husband", "Not-in-family", "Other-relative", "Own-child", "Unmarried", "Wife")
)
RACE = CategoricalColumn("race", ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"))
SEX = CategoricalColumn("sex", ("Female", "Male"))
NATIVE_COUNTRY = CategoricalColumn(
    "native-country",
    (
        "Cambodia",
        "Canada",
        "China",
        "Columbia",
        "Cuba",
        "Dominican-Republic",
        "Ecuador",
        "El-Salvador",
        "England",
        "France",
        "Germany",
        "Greece",
        "Guatemala",
        "Haiti",
        "Holand-Netherlands",
        "Honduras",
        "Hong",
        "Hungary",
        "India",
        "Iran",
        "Ireland",
        "Italy",
        "Jamaica",
        "Japan",
        "Laos",
        "Mexico",
        "Nicaragua",
        "Outlying-US(Guam-USVI-etc)",
        "Peru",
        "Philippines",
        "Poland",
        "Portugal",
        "Puerto-Rico",
        "Scotland",
        "South",
        "Taiwan",
        "Thailand",
        "Trinadad&Tobago",
        "United-States",
        "Vietnam",
        "Yugoslavia",
    ),
)
