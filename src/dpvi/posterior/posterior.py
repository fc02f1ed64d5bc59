"""The posterior a user holds: draws, summaries, predictions on the parameters' own scales."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared import validation
from dpvi.declared.guarantee import Guarantee
from dpvi.models.base import GenerativeModel
from dpvi.models.numpyro.deterministic import deterministic_sites
from dpvi.posterior.predictions import drawn_responses
from dpvi.records.arrays import as_records
from dpvi.records.frames import arguments_of, column_names, is_table


class UnconstrainedDistribution(Protocol):
    """A distribution on z ∈ R^d."""

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array: ...

    def log_prob(self, z: jax.Array) -> jax.Array: ...


class Bijections(Protocol):
    """Maps between z and named parameters; a model, or what a saved result remembers of one."""

    @property
    def dimension(self) -> int: ...

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]: ...


# what the intervals of each method leave out; docs/explanation/score-posterior.md has the figures
CAVEATS = {
    "score": "These intervals can be far too narrow where covariates depend on each other, which the law from one "
    "histogram per column does not know, and where the model does not fit the responses that are clipped.",
    "stationary": "These intervals include the noise that the iterates show; they leave out what clipping bends.",
    "average": "These intervals leave out the noise that privacy added and what clipping bends.",
    "last": "These intervals leave out the noise that privacy added and what clipping bends.",
    "na_dpvi": "These intervals include the noise that privacy added; they leave out what clipping bends.",
}


class Summary(NamedTuple):
    """One row per scalar parameter; prints as a table."""

    names: tuple[str, ...]
    mean: np.ndarray
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability: float
    warning: str = ""  # "NOT PRIVATE: …", where nothing is promised
    caveat: str = ""  # what the intervals leave out
    privacy_sd: np.ndarray | None = None  # the part of sd that privacy added, where it is told apart
    sampling_sd: np.ndarray | None = None  # the part that the same model has without privacy

    def to_dict(self) -> dict[str, dict[str, float]]:
        """``{parameter: {"mean": …, "sd": …, "lower": …, "upper": …}}``, with the parts of ``sd`` where known."""
        columns = {"mean": self.mean, "sd": self.sd, "lower": self.lower, "upper": self.upper, **self._parts}
        return {
            name: {column: float(values[index]) for column, values in columns.items()}
            for index, name in enumerate(self.names)
        }

    @property
    def _parts(self) -> dict[str, np.ndarray]:
        parts = {"sampling_sd": self.sampling_sd, "privacy_sd": self.privacy_sd}
        return {name: part for name, part in parts.items() if part is not None}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        level = f"{100 * self.probability:g} % interval"
        width = max(len("parameter"), *map(len, self.names))
        lines = [self.warning] if self.warning else []
        heads = "".join(f"  {name.removesuffix('_sd'):>10}" for name in self._parts)
        lines += [f"{'parameter':<{width}}  {'mean':>10}  {'sd':>10}  {level:>24}{heads}"]
        for i, (name, m, s, lo, up) in enumerate(
            zip(self.names, self.mean, self.sd, self.lower, self.upper, strict=True)
        ):
            parts = "".join(f"  {part[i]:>10.4g}" for part in self._parts.values())
            lines.append(f"{name:<{width}}  {m:>10.4g}  {s:>10.4g}  [{lo:>10.4g}, {up:>10.4g}]{parts}")
        return "\n".join([*lines, *([self.caveat] if self.caveat else [])])


class Posterior:
    """A posterior distribution over a model's parameters, computed from released quantities only.

    Attributes
    ----------
    distribution
        The distribution of unconstrained z.
    bijections
        The map from z to the parameters.
    method
        How it was obtained from the trace.
    guarantee
        The privacy statement it inherits: everything derived from a posterior is post-processing.
    notes
        What was warned of when it was made, such as a run that had not settled; summaries repeat it.
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self, distribution: UnconstrainedDistribution, bijections: Bijections, method: str, guarantee: Guarantee
    ) -> None:
        self.distribution = distribution
        self.method = method
        self.guarantee = guarantee
        self.bijections = bijections

    def __repr__(self) -> str:
        text = f"Posterior(method={self.method!r}, dimension={self.bijections.dimension})"
        return "\n".join(filter(None, (text, self.guarantee.warning, *self.notes)))

    def __getstate__(self) -> dict[str, Any]:
        """Without compiled programs, which are made again."""
        return {name: value for name, value in self.__dict__.items() if name != "_derived"}

    def sample_unconstrained(self, num_samples: int, key: jax.Array | None = None) -> jax.Array:
        """Draws of z, (num_samples, d)."""
        count = validation.whole_number("num_samples", num_samples)
        return self.distribution.sample(given_or_fresh_key(key), count)

    def sample(
        self, num_samples: int, key: jax.Array | None = None, *, deterministic: bool = True
    ) -> dict[str, jax.Array]:
        """Draws of every site on its own support: ``{site: (num_samples, *shape)}``.

        After the latent sites come those that the model names with ``numpyro.deterministic``, unless ``deterministic``
        is False or they belong to records. A result that was loaded without its model does not know them.
        """
        z = self.sample_unconstrained(num_samples, key)
        draws = self._latent(z)
        return draws | jax.vmap(self._derived)(z) if deterministic and self._derived is not None else draws

    @cached_property
    def _derived(self) -> Callable[[jax.Array], dict[str, jax.Array]] | None:
        return deterministic_sites(self.bijections)

    def _latent(self, z: jax.Array) -> dict[str, jax.Array]:
        draws = jax.vmap(self.bijections.constrain)(z)
        order = [site.name for site in getattr(self.bijections, "sites", ())]  # vmap sorts names; models order them
        return {name: draws[name] for name in sorted(draws, key=order.index)} if set(order) == set(draws) else draws

    def log_prob(self, z: Any) -> jax.Array:
        """Log density of unconstrained ``z``: a scalar for one vector, a vector for rows."""
        z = jnp.asarray(z)
        if z.ndim not in (1, 2) or z.shape[-1] != self.bijections.dimension:
            raise ValueError(
                f"z must be a vector of {self.bijections.dimension} numbers, or rows of such, got shape {z.shape}."
            )
        return self.distribution.log_prob(z) if z.ndim == 1 else jax.vmap(self.distribution.log_prob)(z)

    def quantile(
        self, probability: Any, num_samples: int = 10_000, key: jax.Array | None = None
    ) -> dict[str, np.ndarray]:
        """Marginal quantiles: ``{site: array}``, with the probabilities' axes first."""
        levels = np.asarray(probability, np.float64)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"probability must lie in [0, 1], got {probability!r}.")
        draws = self.sample(num_samples, _fixed(key))
        return {name: np.quantile(np.asarray(draw), levels, axis=0) for name, draw in draws.items()}

    def summary(
        self,
        probability: float = 0.95,
        num_samples: int = 10_000,
        key: jax.Array | None = None,
        *,
        names: Mapping[str, Any] | None = None,
    ) -> Summary:
        """Mean, standard deviation and central interval of every scalar parameter, from draws with a fixed key.

        ``names={"w": ["age", "income"]}`` names the entries along the last axis of a site, ``w[age]`` in place of
        ``w[0]``; a table stands for the names of its columns.

        A run that measured also has the two parts of the standard deviation: what the same model is unsure of without
        privacy (sampling), and what privacy added. Squares of the parts add up to the square of the whole.
        """
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie strictly between 0 and 1, got {probability!r}.")
        draws = self.sample(num_samples, _fixed(key))
        known = checked_names(names, draws)
        scalars = tuple(
            name for site, draw in draws.items() for name in _scalar_names(site, draw.shape[1:], known.get(site))
        )
        flat = _flat(draws, num_samples)
        lower, upper = np.quantile(flat, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
        caveat = getattr(self.distribution, "caveat", CAVEATS.get(self.method, ""))
        caveat = "\n".join(filter(None, (*self.notes, caveat)))
        sd, parts = flat.std(axis=0), ()
        if (privacy := getattr(self.distribution, "privacy", None)) is not None:
            alone = Posterior(privacy, self.bijections, self.method, self.guarantee).sample(num_samples, _fixed(key))
            added = np.minimum(_flat(alone, num_samples).std(axis=0), sd)
            parts = added, np.sqrt(sd**2 - added**2)
        return Summary(
            scalars, flat.mean(axis=0), sd, lower, upper, probability, self.guarantee.warning, caveat, *parts
        )

    def predict(
        self, model: Any, *args: Any, num_samples: int = 1000, key: jax.Array | None = None, **kwargs: Any
    ) -> dict[str, jax.Array]:
        """Draws from the posterior predictive of a NumPyro or PyMC ``model`` at new arguments.

        ``args`` and ``kwargs`` are the model's own, without the response (or ``None`` for it), or a table whose columns
        are named as the model's arguments, as :func:`dpvi.fit` takes it; of a table the response's column is left out.
        Of a model from :func:`dpvi.from_pymc`, the argument is a dict of its covariates, or such a table.
        The result holds every site that is neither a posterior parameter nor given, draws along the first axis.
        """
        draw_key, predict_key = jax.random.split(given_or_fresh_key(key))
        draws = self.sample(num_samples, draw_key, deterministic=False)  # which the model computes again
        if isinstance(model, GenerativeModel) and not hasattr(model, "function"):
            return drawn_responses(model, predict_key, draws, *args, **kwargs)
        return predictive_draws(model, predict_key, args, kwargs, posterior_samples=draws)

    def infer_discrete(self, data: Any, num_samples: int = 1000, key: jax.Array | None = None) -> dict[str, jax.Array]:
        """Draws of the discrete latents of each record: its class, its state, a missing answer.

        At every draw z of the posterior, a record's latents c have probability p(c | x_i, z) ∝ p(x_i, c | z). That
        reads the records it is given, and no noise covers it: **the guarantee holds for the posterior and not for these
        draws**. Use it for records that whoever reads the draws may see.

        Parameters
        ----------
        data
            Records in the form that :func:`dpvi.fit` takes them, responses included.
        num_samples, key
            How many draws of the posterior; a PRNG key.

        Returns
        -------
        ``{site: (num_samples, records, …)}``.
        """
        from dpvi.posterior.discrete import discrete_draws

        draw_key, discrete_key = jax.random.split(given_or_fresh_key(key))
        return discrete_draws(self.bijections, self.sample_unconstrained(num_samples, draw_key), data, discrete_key)

    def to_arviz(
        self, num_samples: int = 1000, key: jax.Array | None = None, *, names: Mapping[str, Any] | None = None
    ) -> Any:
        """Draws as ArviZ's container: ``InferenceData`` for ArviZ before 1.0, an xarray ``DataTree`` from 1.0 on.

        ``names`` as in :meth:`summary` become coordinates, which tables and plots show.
        """
        from dpvi.posterior.arviz_adapter import to_arviz

        draws = self.sample(num_samples, key)
        return to_arviz(draws, checked_names(names, draws))


def predictive_draws(
    model: Any, key: jax.Array, args: Any, kwargs: Any, params: dict[str, Any] | None = None, **settings: Any
) -> dict[str, jax.Array]:
    """What NumPyro's ``Predictive`` with ``settings`` draws at new arguments, without sites that were given there."""
    from numpyro import handlers
    from numpyro.infer import Predictive

    function = getattr(model, "function", model)
    if not callable(function):
        raise TypeError(
            "predict needs a NumPyro function or a PyMC model: models built from log densities cannot simulate."
        )
    seeded = handlers.substitute(handlers.seed(function, key), data=params or {})
    table = len(args) == 1 and not kwargs and is_table(args[0])
    if table:
        given = arguments_of(function, args[0])
        args, kwargs = ((), given) if isinstance(given, dict) else ((given,), {})
    args, kwargs = jax.tree.map(_as_array, (tuple(args), kwargs))
    with jax.numpy_dtype_promotion("standard"):
        seen = handlers.trace(seeded).get_trace(*args, **kwargs)
        responses = [each["value"] for each in seen.values() if each["type"] == "sample" and each["is_observed"]]
        if table and responses:  # a table to predict for may have the response's column, too
            kwargs = {
                name: None if any(value is each for each in responses) else value for name, value in kwargs.items()
            }
            seen = handlers.trace(seeded).get_trace(*args, **kwargs)
        predicted = Predictive(function, params=params, **settings)(key, *args, **kwargs)
    drawn = {name: draw for name, draw in predicted.items() if not seen.get(name, {}).get("is_observed", False)}
    if table and not drawn:
        raise ValueError(
            "The table has a column for everything that the model observes, so nothing is left to predict."
        )
    return drawn


def _as_array(leaf: Any) -> Any:
    """What a data frame or a series holds, as it is given to a model in a run; anything else as it is."""
    return as_records(leaf)[0] if hasattr(leaf, "to_numpy") else leaf


def check_options(method: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Refuse options that the ``function`` of a method does not have, by one sentence."""
    try:
        inspect.signature(function).bind(*arguments, **options)
    except TypeError as error:
        raise TypeError(f"posterior({method!r}) does not take these options: {error}.") from None


def given_or_fresh_key(key: jax.Array | None) -> jax.Array:
    """A given key, or a fresh one; nothing here is privacy-critical, it only must not repeat by accident."""
    if key is not None:
        dtype = getattr(key, "dtype", np.dtype(object))
        typed = jnp.issubdtype(dtype, jax.dtypes.prng_key) and key.ndim == 0
        raw = dtype == np.uint32 and key.ndim == 1  # of jax.random.PRNGKey
        if not (typed or raw):
            raise TypeError(f"key must come from jax.random.key(...), got {key!r}.")
        return key
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(secrets.token_bytes(8), np.uint32)), impl="threefry2x32")


def _fixed(key: jax.Array | None) -> jax.Array:
    """A given key, or always the same one, so that printing a summary twice prints the same numbers."""
    return jax.random.key(0) if key is None else given_or_fresh_key(key)


def _flat(draws: dict[str, jax.Array], num_samples: int) -> np.ndarray:
    """All scalar parameters side by side, (num_samples, ·)."""
    return np.concatenate([np.asarray(d, np.float64).reshape(num_samples, -1) for d in draws.values()], axis=1)


def checked_names(names: Mapping[str, Any] | None, draws: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of the entries along a site's last axis, as text, one for each and no two alike."""
    found = {}
    for site, given in (names or {}).items():
        if site not in draws:
            raise ValueError(f"names holds {site!r}, but the sites are {', '.join(map(repr, draws))}.")
        shape = tuple(draws[site].shape[1:])
        entries = [str(name) for name in (column_names(given) if is_table(given) else given)]
        if not shape or isinstance(given, str) or len(entries) != shape[-1] or len(set(entries)) < len(entries):
            raise ValueError(
                f"names[{site!r}] must name each of the {shape[-1] if shape else 0} entries along the last axis of "
                f"that site once, got {len(entries)} names, {len(set(entries))} of them different."
            )
        found[site] = entries
    return found


def _scalar_names(site: str, shape: tuple[int, ...], names: list[str] | None = None) -> list[str]:
    if not shape:
        return [site]
    last = [str(index) for index in range(shape[-1])] if names is None else names
    before = np.ndindex(*shape[:-1])
    return [f"{site}[{','.join([*map(str, index), entry])}]" for index in before for entry in last]
