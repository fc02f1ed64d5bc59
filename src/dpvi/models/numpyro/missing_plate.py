"""What to say of a model in which no plate spans the records, after what kind of model it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_ONE_EACH = "each term of a private fit comes from one record and what all share"
_SERIES = (
    "To fit many series, let each be a record, one row of the data, with its time along a further axis (to_event, or "
    "numpyro.contrib.control_flow.scan over that axis)"
)
_PROCESS = (
    "A Gaussian process becomes one term per record by basis functions with weights that all records share "
    "(numpyro.contrib.hsgp), or by a fixed set of inducing points"
)


class Kind(NamedTuple):
    """What tells of one site which kind of model it belongs to.

    Attributes
    ----------
    distribution
        The name of its class.
    is_observed, in_loop
        Whether it has a value, and whether it is in the body of a scan.
    sizes
        Its shape for two numbers of records.
    event_dim
        How many of the last axes are one draw.
    """

    distribution: str
    is_observed: bool
    in_loop: bool
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    event_dim: int


def missing_plate(kinds: Mapping[str, Kind], fixed: str, numbers: tuple[int, int]) -> str:
    """One sentence; ``fixed`` names plates of a fixed size that hold observed sites, empty where there are none."""
    for name, kind in kinds.items():
        sentence = dependent(name, kind, numbers)
        if sentence:
            return sentence
    if fixed:
        return (
            f"The model must have a plate that spans the records, but the size of {fixed} does not follow "
            "the data; take it from an argument, as in numpyro.plate('records', x.shape[0])."
        )
    return (
        "The model must have a plate that spans the records, but none follows the data; put the observed sites under "
        "`with numpyro.plate('records', x.shape[0]):` so that each record has a term of its own."
    )


def dependent(name: str, kind: Kind, numbers: tuple[int, int]) -> str | None:
    """One sentence about a site that ties records together; None for any other."""
    small, large = kind.sizes
    if len(small) != len(large):
        return None
    pairs = list(zip(small, large, strict=True))
    joint = numbers in pairs[len(pairs) - kind.event_dim :]
    what = "observes all records" if kind.is_observed else "draws one value for every record"
    if kind.in_loop and pairs[:1] in ([numbers], [_shorter(numbers, 1)]):
        return (
            f"Site {name!r} is in a loop over the records, as in a time series, where one record follows from those "
            f"before it; {_ONE_EACH}. {_SERIES}."
        )
    if joint and kind.distribution.startswith(("GaussianRandomWalk", "EulerMaruyama", "GaussianStateSpace")):
        return f"Site {name!r} {what} as one path through time; {_ONE_EACH}. {_SERIES}."
    if joint and kind.distribution.startswith("Multivariate"):
        return f"Site {name!r} {what} in one {kind.distribution}, as a Gaussian process does; {_ONE_EACH}. {_PROCESS}."
    if kind.is_observed and any(pair in (_shorter(numbers, lag) for lag in (1, 2)) for pair in pairs[:1]):
        return (
            f"Site {name!r} observes fewer values than there are records, as in an autoregression, where a record is "
            f"explained by those before it; {_ONE_EACH}. {_SERIES}."
        )
    return None


def _shorter(numbers: tuple[int, int], lag: int) -> Any:
    return (numbers[0] - lag, numbers[1] - lag)
