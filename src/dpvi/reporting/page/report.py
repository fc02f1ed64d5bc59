"""One page about one result: what was promised, asked, found and doubted. It holds what the result holds, no more."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpvi.declared.plan import HISTOGRAMS
from dpvi.population.covariates import released_population
from dpvi.posterior import storage
from dpvi.posterior.posterior import Posterior
from dpvi.posterior.result import Result
from dpvi.reporting.page.charts import Effect, effect_figure, side_by_side
from dpvi.reporting.page.elements import Markup, element, joined, number, percent, table
from dpvi.reporting.page.evidence import evidence
from dpvi.reporting.page.forest import Coefficient, Estimates, forest
from dpvi.reporting.page.marginals import marginals
from dpvi.reporting.page.model import model_section, ratio_of, real_parameters
from dpvi.reporting.page.promise import promise, spending
from dpvi.reporting.page.shell import Section, masthead, page, write_page

_DRAWS = 10_000
_PACKAGES = ("dpvi", "jax", "numpyro", "numpy", "dp-accounting")
_NO_MODEL = (
    "This result needs its model to be read, and a file does not hold the model: make the page with "
    "dpvi report result.npz --model FILE.py:NAME, or dpvi.reporting.write_report(result, path, model=model)."
)


@dataclass(frozen=True)
class Contents:
    """What a page says beside what the result itself knows; nothing of it may come from the records.

    Attributes
    ----------
    title
        Of the page.
    names
        Of entries of sites, as in :meth:`Posterior.summary <dpvi.posterior.Posterior.summary>`.
    facts
        What is known of the model beside its sites, ``{"Formula": "y ~ x"}``.
    priors
        Rows of the table of priors, in place of those of the sites: (parameter, prior, prior in own units).
    estimates
        Tables of estimates in place of the summary's.
    effects
        Predictions to draw, one picture each.
    ratio
        What exp(coefficient) is called; by default as the response's distribution suggests.
    synthetic
        :class:`~dpvi.synthetic.SyntheticData` whose columns are shown beside what was released of them.
    command
        What makes the result again.
    """

    title: str = "Report of a private fit"
    names: Mapping[str, Any] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    priors: Sequence[Sequence[str]] = ()
    estimates: Sequence[Estimates] = ()
    effects: Sequence[Effect] = ()
    ratio: str | None = None
    synthetic: Any = None
    command: str = ""


def write_report(
    result: Any, path: str | Path, *, model: Any = None, posterior: Posterior | None = None, **contents: Any
) -> Path:
    """Write one self-contained HTML page about a result: no network, good on screen and paper, light and dark.

    Parameters
    ----------
    result
        A :class:`~dpvi.posterior.Result`, the path of one, or what :func:`dpvi.glm` returns.
    path
        Of the page. It appears when it is complete.
    model
        The model of a result that was read from a file, as for :meth:`Result.load <dpvi.posterior.Result.load>`.
    posterior
        By default ``result.posterior()``.
    contents
        What the page says besides: attributes of :class:`Contents`, such as ``title`` or ``names``.

    Guarantees
    ----------
    The page is computed from the result, and from what is given here, which must not come from the records.
    """
    if hasattr(result, "report"):  # of a formula, whose coefficients have units
        return result.report(path, **contents)
    if not isinstance(result, Result):
        result = Result.load(result, model=model)
    return write_page(report_page(result, posterior=posterior, **contents), path)


def report_page(result: Result, *, posterior: Posterior | None = None, **contents: Any) -> str:
    """The page that :func:`write_report` writes, as text."""
    given = Contents(**contents)
    posterior, warned, refused = _posterior_of(result, posterior)
    tables = _estimates(result, posterior, given)
    about = model_section(type(result.family).__name__, result.sites, result.model, given.facts, given.priors)
    sections = [
        Section("The guarantee", promise(result.guarantee)),
        Section("What was asked and spent", _spent(result)),
        Section("Model", about),
    ]
    if posterior is None:
        sections.append(Section("Estimates", element("p", refused, class_="bad-news")))
    else:
        ratio = ratio_of(result.model) if given.ratio is None else given.ratio
        sections.append(Section("Estimates", joined([forest(each, ratio) for each in tables])))
        if given.effects:
            sections.append(Section("Predictions", side_by_side([effect_figure(each) for each in given.effects])))
        sections.append(Section("Checks", evidence(posterior, warned)))
    if given.synthetic is not None:
        sections.append(Section("Synthetic tables", marginals(result, given.synthetic)))
    sections.append(Section("How it was made", _provenance(result, posterior, given.command)))
    subtitle = given.facts.get("Formula") or f"Parameters: {', '.join(site.name for site in result.sites)}"
    title = given.title or Contents.title
    top = masthead("Private Bayesian inference", title, subtitle, _facts(result, tables))
    return page(title, top, sections, _footer())


def _estimates(result: Result, posterior: Posterior | None, given: Contents) -> Sequence[Estimates]:
    if posterior is None or given.estimates:
        return given.estimates if posterior is not None else ()
    rows, probability = coefficients(posterior, given.names, real_parameters(result.sites))
    return [Estimates(rows, probability)]


def coefficients(
    posterior: Posterior, names: Mapping[str, Any] | None, real: set[str]
) -> tuple[list[Coefficient], float]:
    """Every scalar parameter with its interval, and the level of the intervals."""
    summary = posterior.summary(num_samples=_DRAWS, names=names)
    draws = posterior.sample(_DRAWS, jax.random.key(0))  # those of the summary
    above = np.concatenate(
        [
            np.mean(np.asarray(draw).reshape(_DRAWS, -1) > 0, axis=0) if site in real else np.full(draw[0].size, np.nan)
            for site, draw in draws.items()
        ]
    )
    nothing = [None] * len(above)
    sampling, added = (nothing if part is None else part.tolist() for part in (summary.sampling_sd, summary.privacy_sd))
    numbers = (summary.mean, summary.sd, summary.lower, summary.upper)
    rows = zip(summary.names, *(each.tolist() for each in numbers), sampling, added, above.tolist(), strict=True)
    found = [Coefficient(*row)._replace(above_zero=None if np.isnan(row[-1]) else row[-1]) for row in rows]
    return found, summary.probability


def _posterior_of(result: Result, given: Posterior | None) -> tuple[Posterior | None, list[str], str]:
    """A posterior, what it warned of, and why there is none."""
    if given is not None:
        return given, [], ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if result.model is None and (result.trace.measurements is not None or not result.sites):
            return None, [], _NO_MODEL
        try:
            found = result.posterior()
        except ValueError as error:
            return None, [], str(error)
    return found, [str(each.message) for each in caught if issubclass(each.category, UserWarning)], ""


def _facts(result: Result, tables: Sequence[Estimates]) -> list[tuple[str, str]]:
    guarantee = result.guarantee
    found = (
        [("Privacy budget ε", number(guarantee.epsilon, 4)), ("May fail with δ", number(guarantee.delta))]
        if guarantee.private
        else [("Privacy", "NOT PRIVATE")]
    )
    if result.trace.histograms is not None and result.plan.covariates is not None:
        found.append(("Records, about", _size(result)[0]))
    elif result.plan.num_records is not None:
        found.append(("Records, declared public", f"{result.plan.num_records:,}"))
    rows = tables[0].rows if tables else ()
    shares = [each.privacy_share for each in rows if each.privacy_share is not None]
    if shares:
        found.append(("Variance due to privacy, median", percent(float(np.median(shares)))))
    return found


def _size(result: Result) -> tuple[str, str]:
    """The released number of records, and the standard deviation of its noise."""
    people = released_population(result.plan, np.asarray(result.trace.histograms))
    spread = float(people.variance) ** 0.5
    digits = max(0, int(np.floor(np.log10(spread)))) if spread > 0 else 0
    return f"{round(float(people.num_records), -digits):,.0f}", number(spread, 2)


def _spent(result: Result) -> Markup:
    parts = [spending(result.plan, result.trace)]
    if result.trace.histograms is not None and HISTOGRAMS in {each.name for each in result.plan.releases}:
        size, spread = _size(result)
        parts.append(element("p", f"The counts say that there are about {size} records (noise: ± {spread})."))
    return joined(parts)


def _provenance(result: Result, posterior: Posterior | None, command: str) -> Markup:
    versions = [[name, metadata.version(name)] for name in _PACKAGES]
    versions.append(["Python", platform.python_version()])
    signed = "yes (dpvi verify checks by whom)" if result.signature else "no"
    rows = [
        ["Posterior", posterior.method if posterior is not None else "none"],
        [
            "Seed",
            {"none": "from the operating system", "secret": "explicit, to be kept secret"}.get(
                result.circumstances.seed, "explicit and guessable: not private"
            ),
        ],
        ["Signed", signed],
        ["Digest of the result (SHA-256)", element("code", storage.digest_of(result).hex())],
    ]
    parts = [
        table("The result", [], rows),
        table("Versions that made this page", ["Package", "Version"], versions),
    ]
    if command:
        parts += [element("h3", "To repeat it"), element("pre", command)]
        parts.append(element("p", "To run it again spends its budget again, with fresh noise.", class_="note"))
    return joined(parts)


def _footer() -> Markup:
    return element(
        "footer",
        element(
            "p",
            "Made by dpvi. This page is one file: it fetches nothing and sends nothing. It holds what the result "
            "holds, all of it released under the guarantee above.",
        ),
    )
