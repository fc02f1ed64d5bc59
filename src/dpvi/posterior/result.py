"""What ``fit`` returns: a trace with its guarantee, from which any posterior can be computed, now or later."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.declared.guarantee import Circumstances, Guarantee
from dpvi.declared.plan import Plan
from dpvi.declared.validation import FallbackWarning
from dpvi.families.base import Family
from dpvi.families.guide import GuideFamily
from dpvi.models.base import Model
from dpvi.models.sites import Site, StaticBijections, needs_model
from dpvi.posterior import signing, storage
from dpvi.posterior.average import averaged
from dpvi.posterior.guided import guided_posterior
from dpvi.posterior.last import last_iterate
from dpvi.posterior.metric import metric_posterior
from dpvi.posterior.na_dpvi import noise_aware
from dpvi.posterior.posterior import Posterior, check_options
from dpvi.posterior.score import NotConvergedError, ScoreModel, measured, score_posterior
from dpvi.posterior.settled import note_if_unsettled, units
from dpvi.posterior.stationary import stationary_noise
from dpvi.privacy.planning import checked_guarantee
from dpvi.release.trace import Trace

METHODS: Mapping[str, Callable[..., Any]] = {
    "last": last_iterate,
    "average": averaged,
    "stationary": stationary_noise,
    "na_dpvi": noise_aware,
    "score": score_posterior,
    "metric": metric_posterior,
}
_OF_ITERATES = ("last", "average", "stationary")  # right where the run had settled
# what a method reads of a result besides trace and family
_OF_THE_RUN = {
    "na_dpvi": ("plan", "estimator"),
    "score": ("plan", "model", "scores"),
    "metric": ("plan", "model", "scores"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Everything a run released, and nothing else: it may be published as it is.

    Attributes
    ----------
    plan, circumstances
        What was promised, and the facts about this run that bear on it, such as an explicit seed.
    trace
        The released steps.
    family
        The variational family.
    estimator
        Name and settings of the gradient estimator.
    sites
        The model's parameters and how z maps to them.
    structure
        Shapes and dtypes of one record, so that the model can be rebuilt without data.
    signature
        Of whoever vouches for the result, where somebody does: :meth:`sign`.
    recipe
        What the model is made of, where plain data say it, as they do for a formula; see :mod:`dpvi.models.recipes`.
        Such a result is stored with its model.
    """

    plan: Plan
    circumstances: Circumstances
    trace: Trace
    family: Family
    estimator: dict[str, Any]
    sites: tuple[Site, ...]
    structure: Any
    model: Model | Any = None  # a GuidedModel for a run with a guide
    scores: ScoreModel | None = None  # of the run, so that its compiled programs serve again; not stored
    signature: bytes | None = None
    recipe: dict[str, Any] | None = None  # what the model is made of, where data alone says it

    def __getstate__(self) -> dict[str, Any]:
        """Without compiled programs, which are made again. The model's own functions must be ones that pickle finds."""
        return {**self.__dict__, "scores": None}

    @property
    def guarantee(self) -> Guarantee:
        """What holds for this run: the statement of its plan, whose ε was computed again, in its circumstances."""
        return checked_guarantee(self.plan).under(self.circumstances)

    def __repr__(self) -> str:
        if isinstance(self.family, GuideFamily):
            names = ", ".join(each["name"] for each in self.family.parameters)
        else:
            names = ", ".join(site.name for site in self.sites)
        measured = self.trace.measurements
        done = f"{self.plan.num_steps} steps" if measured is None else f"{len(measured.kinds)} answers"
        return f"Result({type(self.family).__name__}, {done}, parameters: {names})\n{self.guarantee}"

    def posterior(self, method: str | None = None, **options: Any) -> Posterior:
        """The posterior by one of the methods below, computed from the trace alone.

        Parameters
        ----------
        method
            ``"metric"`` (the answer without privacy, as far as it was measured; the default for plans without steps,
            see :func:`~dpvi.posterior.metric.metric_posterior`), ``"score"`` (what was measured, explained by the
            model; the default for runs whose steps measured, see
            :func:`~dpvi.posterior.score.score_posterior`), ``"stationary"`` (averaged, widened by the noise that the
            iterates show; the default for all others), ``"average"`` (averaged iterates only), ``"last"`` (the last
            iterate as it is) or ``"na_dpvi"`` (noise-aware DPVI, for runs with ``Vanilla()`` or
            ``Preconditioned(beta=...)``; see :func:`~dpvi.posterior.noise_aware`).
        options
            Settings of the method, such as ``slope_threshold=0.05`` or ``engine="nuts"``.

        Notes
        -----
        A run with a guide has ``"average"``, its default, and ``"last"``: see
        :class:`~dpvi.posterior.guided.GuidePosterior`.
        """
        if isinstance(self.family, GuideFamily):
            facts = {"sampling_rate": self.plan.sampling_rate}
            return guided_posterior(self.trace, self.family, self.guarantee, method or "average", options, **facts)
        if method is None:
            return self._default_posterior(options)
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}.")
        if method not in ("score", "metric") and not self._moved:
            raise ValueError(
                f"posterior({method!r}) reads iterates, and this run has none: all of its steps measured. Use "
                "posterior(), or make a plan with schedule=dpvi.Schedule(move_share=1)."
            )
        if method in ("score", "metric") and (self.model or options.get("model")) is None:
            raise ValueError(
                f"posterior({method!r}) explains by the model what was measured, and a file does not hold the model; "
                "load the result with its model: Result.load(path, model=model).posterior()."
            )
        context = {name: getattr(self, name) for name in _OF_THE_RUN.get(method, ()) if name not in options}
        check_options(method, METHODS[method], self.trace, self.family, **context, **options)
        if method == "metric":
            distribution = _finite(lambda: metric_posterior(self.trace, self.family, **context, **options))
        else:
            distribution = METHODS[method](self.trace, self.family, **context, **options)
        found = Posterior(distribution, self._bijections(), method, self.guarantee)
        if method in _OF_ITERATES:
            inverse_fisher, widths = units(self.trace, self.family)
            facts = self.plan.sampling_rate, self.estimator["name"]
            found.notes = tuple(filter(None, [note_if_unsettled(self.trace, inverse_fisher, widths, *facts)]))
        return found

    def _default_posterior(self, options: dict[str, Any]) -> Posterior:
        if self.trace.measurements is not None:
            return self.posterior("metric", **options)
        if not measured(self.trace):
            return self.posterior("stationary", **options)
        try:
            return self.posterior("score", **options)
        except NotConvergedError as error:
            if not self._moved:
                raise
            warnings.warn(f"{error} This is method='stationary' instead.", FallbackWarning, stacklevel=3)
            return self.posterior("stationary")

    @property
    def _moved(self) -> bool:
        """Whether the optimiser took any step."""
        return bool(self.trace.blocks.count.sum())

    def _bijections(self) -> Any:
        if self.model is not None:
            return self.model
        if needs_model(self.sites) or not self.sites:  # a model of one's own need not list its sites
            raise ValueError(
                "Only the model knows how to map some of its parameters to their supports; load the result with "
                "Result.load(path, model=model)."
            )
        return StaticBijections(self.sites)

    def save(self, path: str | Path) -> None:
        """Write one portable file: arrays and JSON in a zip archive, no pickle."""
        storage.save(self, Path(path))

    def sign(self, key: Any) -> Result:
        """The same result with a signature over everything that :meth:`save` writes.

        Parameters
        ----------
        key
            An Ed25519 private key: a PEM file, or any object with ``sign(message)``, such as a key of the
            ``cryptography`` package. Needs ``pip install 'dpvi[sign]'``. See docs/how-to/signed-results.md.
        """
        return dataclasses.replace(self, signature=signing.sign(storage.digest_of(self), key))

    @classmethod
    def load(cls, path: str | Path, model: Any = None, guide: Any = None, *, verify_key: Any = None) -> Result:
        """Read a result back. Needs no records; what one computes from it may need the model.

        ===========================================  =======================================================
        to do                                        needs
        ===========================================  =======================================================
        read guarantee and trace, save, sign         the file
        ``posterior()`` of a plan without steps,     ``model``: the method explains answers by it
        or of one whose steps measured
        ``posterior()`` of any other run             the file; ``model`` where the support of a parameter
                                                     depends on another one
        anything with a guide                        ``model`` and ``guide``
        ===========================================  =======================================================

        A file is not believed: ε is computed again from its plan, every sentence of the guarantee from its facts, and
        a file that was changed since it was saved is refused. Whoever changes a file on purpose can make it consistent
        again; only a signature prevents that.

        Parameters
        ----------
        path
            A file written by :meth:`save`.
        model
            The NumPyro function (or dpvi model) the result was fitted with. The file does not hold it, because a model
            is a program; one that was made of a formula is data, and then it does.
        guide
            The guide of such a run: a guide is a program and not in the file.
        verify_key
            An Ed25519 public key, as a PEM file or an object with ``verify``: the file must be signed by its holder.
        """
        content = storage.load(Path(path), verify_key)
        ready = content.pop("model")
        family = content["family"]
        if isinstance(family, GuideFamily):
            if model is not None or guide is not None:
                ready = storage.rebuild_guide(model, guide, content["structure"], family)
                content["family"] = dataclasses.replace(family, program=ready)
        elif guide is not None:
            raise ValueError(f"This result was fitted with {type(family).__name__} and not with a guide; leave it out.")
        elif model is not None:
            ready = storage.rebuild_model(model, content["structure"], content["sites"])
        return cls(**content, model=ready)


def _finite(computed: Callable[[], Any]) -> Any:
    """A posterior whose numbers are finite, or one sentence: a file may hold answers that no records give."""
    try:
        found = computed()
        if np.all(np.isfinite(found.mean)) and np.all(np.isfinite(found.covariance)):
            return found
    except np.linalg.LinAlgError:
        pass
    raise ValueError(
        "The answers of this run lead to no posterior with finite numbers. Where they come from a file, it was made by "
        "other means than a run; where they come from one, make a plan with a larger epsilon or fit fewer parameters."
    ) from None
