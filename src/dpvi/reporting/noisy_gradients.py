"""The picture behind NA-DPVI: noisy gradients against the iterates at which they were released, and the fitted line.

Near the optimum φ* a noisy gradient of the loss scatters around κ a (φ − φ*) with a spread of σC/β that the plan fixed
(Figure 1 of the noise-aware DPVI paper). Two kinds of points can be drawn from a trace:

* *block means*: the trace holds Σ g̃ and Σ φ over every block of steps, so (mean φ, mean g̃) lies on the same line, with
  noise σC/(β√n) for n steps. They are always there and miss no step.
* *single steps*: rows hold the noisy sum of the release, to which the prior's and the entropy's share of the gradient
  has to be added at the same draws. That takes the model, and draws that can be read off the query points, which the
  mean-field family allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.families.meanfield import MeanField
from dpvi.posterior.na_dpvi.exact import posterior_grid, quadrature
from dpvi.posterior.na_dpvi.model import GradientModel, conditional, curvature
from dpvi.posterior.na_dpvi.noise_aware import model_of_run
from dpvi.reporting.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpvi.posterior.result import Result

POINTS = ("blocks", "steps")


class StepGradients(NamedTuple):
    """Pairs (φ, g̃) of single steps."""

    steps: np.ndarray  # (rows,)
    iterates: np.ndarray  # (rows, p): φ before the update
    gradients: np.ndarray  # (rows, p): g̃ = −κ ∇ELBO, noise included


class GradientLine(NamedTuple):
    """κ a (φ − φ*) over a grid of φ: pointwise median and 95 % interval under the posterior of (a, φ*)."""

    phi: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def step_gradients(result: Result, max_rows: int | None = None) -> StepGradients:
    """Noisy gradients of single steps, rebuilt from the rows of a trace.

    With s̃ a row's noisy sum, β the fixed preconditioner (1 for ``Vanilla``), κ the sampling rate and η the draws of the
    step: g̃ = −(s̃/β + κ ∇_ξ[mean_j log p(h(ξ, η_j)) + H(q_ξ)]). No record is needed and nothing new is released.

    Parameters
    ----------
    result
        A run with ``Vanilla()`` or ``Preconditioned(beta=...)`` and a mean-field family, with its model.
    max_rows
        Take at most so many rows, evenly spread; all that the trace kept if absent.
    """
    model, family, trace = result.model, result.family, result.trace
    if model is None:
        raise ValueError(
            "Single gradients contain the prior's, which only the model knows: load the result with "
            "Result.load(path, model=model), or plot points='blocks'."
        )
    if not isinstance(family, MeanField):
        raise ValueError(
            f"The draws of a step can be read off its query points for MeanField only, not {type(family).__name__}; "
            "plot points='blocks'."
        )
    if trace.segments is not None:
        raise ValueError("This run measured at chosen points part of the time; plot points='blocks', which omit those.")
    beta = 1.0 if result.estimator.get("beta") is None else np.asarray(result.estimator["beta"])
    every = 1 if max_rows is None else max(1, -(-len(trace.steps) // max_rows))
    iterates, queries = trace.iterates[::every], trace.queries[::every]

    @jax.jit
    def record_free(xi: jax.Array, query: jax.Array) -> jax.Array:
        location, scale = family.location(xi), family.standard_deviations(xi)
        eta = jax.lax.stop_gradient((query.reshape(-1, location.shape[0]) - location) / scale)

        def terms(xi: jax.Array) -> jax.Array:
            z = jax.vmap(family.transform, (None, 0))(xi, eta)
            return jnp.mean(jax.vmap(model.log_prior)(z)) + family.entropy(xi)

        return jax.grad(terms)(xi)

    prior = np.asarray(jax.lax.map(lambda pair: record_free(*pair), (jnp.asarray(iterates), jnp.asarray(queries))))
    sums = trace.noisy_sums[::every].astype(np.float64) / beta
    gradients = -(sums + result.plan.sampling_rate * prior)
    return StepGradients(trace.steps[::every], iterates.astype(np.float64), gradients)


def gradient_line(
    model: GradientModel, coordinate: int, phi: Any, num_draws: int = 4000, seed: int = 0
) -> GradientLine:
    """The line κ a (φ − φ*) with a and φ* drawn from their joint posterior.

    Parameters
    ----------
    model
        From :func:`dpvi.posterior.na_dpvi.model_of_run`.
    coordinate
        Which variational parameter.
    phi
        Points at which the line is wanted.
    num_draws, seed
        Draws of (a, φ*), from the nodes of the exact engine.
    """
    one = model.take(slice(coordinate, coordinate + 1))
    v, psi, log_density, cells = (part[0] for part in posterior_grid(one))
    weights = np.exp(log_density - log_density.max()) * cells
    rng = np.random.default_rng(seed)
    node = rng.choice(weights.size, size=num_draws, p=(weights / weights.sum()).ravel())
    v, psi = v[node // len(psi)], psi[node % len(psi)]
    mean, variance = conditional(one, v, psi)
    optimum = mean + np.sqrt(variance) * rng.normal(size=num_draws)
    points = np.asarray(phi, np.float64)
    slope = one.sampling_rate * curvature(v)
    lines = slope[:, None] * (points - optimum[:, None])
    lower, median, upper = np.quantile(lines, [0.025, 0.5, 0.975], axis=0)
    return GradientLine(points, median, lower, upper)


def plot_noisy_gradients(
    result: Result, coordinate: int = 0, *, points: str = "blocks", max_points: int = 2000, **settings: Any
) -> Figure:
    """Noisy gradients g̃ against iterates φ of one variational parameter, and where the optimum may be.

    Parameters
    ----------
    result
        A run with ``Vanilla()`` or ``Preconditioned(beta=...)``.
    coordinate
        Index into ξ: locations come first.
    points
        ``"blocks"`` (means over blocks; any such run) or ``"steps"`` (single steps, as in the paper's Figure 1; needs
        the model and a mean-field family).
    max_points
        At most so many single steps are drawn.
    settings
        Of the model: ``burn_in``, ``location_prior_scale``, ``scale_prior_scale``, ``subsampling_variance``, as in
        :func:`~dpvi.posterior.na_dpvi.noise_aware`. Points before the burn-in's end are drawn hollow.

    Returns
    -------
    matplotlib.figure.Figure
        Points; the line κ a (φ − φ*) with the pointwise 95 % band of its posterior; dashed at a distance of 1.96
        standard deviations of a point's known noise; and a bar on the zero line, the 95 % interval of φ*.
    """
    if points not in POINTS:
        raise ValueError(f"points must be 'blocks' or 'steps', got {points!r}.")
    model = model_of_run(result.trace, result.family, result.plan, result.estimator, **settings)
    size = len(model.prior_scale)
    if isinstance(coordinate, bool) or not isinstance(coordinate, (int, np.integer)) or not 0 <= coordinate < size:
        raise ValueError(f"coordinate must be a whole number from 0 to {size - 1}, got {coordinate!r}.")
    drawn = _points(result, int(coordinate), points, max_points, settings.get("burn_in", 0.2))
    figure, axes = new_figure(size=(6.5, 4.5))
    panel = axes[0, 0]
    _scatter(panel, drawn, points)
    _draw_line(panel, model, int(coordinate), drawn)
    dimension = np.shape(result.family.location(jnp.asarray(result.trace.final)))[0]
    kind = "location" if coordinate < dimension else "scale"
    panel.set(xlabel=f"iterate φ, coordinate {coordinate} ({kind})", ylabel="noisy gradient g̃")
    panel.legend(frameon=False, fontsize=8)
    return figure


class _Points(NamedTuple):
    """What is drawn of one parameter: φ, g̃, whether it is past the burn-in, and how many steps a point stands for."""

    phi: np.ndarray
    gradient: np.ndarray
    used: np.ndarray
    steps_each: float


def _points(result: Result, coordinate: int, points: str, max_points: int, burn_in: float) -> _Points:
    if points == "steps":
        rows = step_gradients(result, max_points)
        used = rows.steps >= burn_in * result.plan.num_steps
        return _Points(rows.iterates[:, coordinate], rows.gradients[:, coordinate], used, 1.0)
    blocks = result.trace.blocks
    moved = blocks.count > 0
    before = np.concatenate([[0.0], np.cumsum(blocks.count)[:-1]])
    used = before >= burn_in * blocks.count.sum()
    count = blocks.count[moved]
    phi, gradient = (part[moved, coordinate] / count for part in (blocks.phi, blocks.gradient))
    return _Points(phi, gradient, used[moved], float(np.median(count)))


def _scatter(panel: Any, drawn: _Points, points: str) -> None:
    size, label = (14, "block means") if points == "blocks" else (5, "single steps")
    for chosen, colour, name in ((~drawn.used, "none", None), (drawn.used, "C0", label)):
        panel.scatter(
            drawn.phi[chosen], drawn.gradient[chosen], s=size, c=colour, edgecolors="C0", linewidths=0.6, label=name
        )


def _draw_line(panel: Any, model: GradientModel, coordinate: int, drawn: _Points) -> None:
    """The line with its posterior band, the known noise around it, and the interval of φ*."""
    line = gradient_line(model, coordinate, np.linspace(drawn.phi.min(), drawn.phi.max(), 200))
    panel.fill_between(line.phi, line.lower, line.upper, color="0.3", alpha=0.25, linewidth=0, label="95 % of lines")
    panel.plot(line.phi, line.median, color="k", label="κ a (φ − φ*)")
    noise = 1.96 * model.noise_scale[coordinate] / np.sqrt(drawn.steps_each)
    for side in (-noise, noise):
        panel.plot(line.phi, line.median + side, color="k", linewidth=0.7, linestyle="--")
    lower, upper = _optimum_interval(model, coordinate)
    panel.plot([lower, upper], [0, 0], color="C3", linewidth=4, solid_capstyle="butt", label="φ*, 95 %")


def _optimum_interval(model: GradientModel, coordinate: int) -> tuple[float, float]:
    """The central 95 % of φ*, by bisection on the exact distribution function."""
    exact = quadrature(model.take(slice(coordinate, coordinate + 1)))
    reach = 40 * exact.standard_deviation[0]

    def quantile(level: float) -> float:
        low, high = exact.mean[0] - reach, exact.mean[0] + reach
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if exact.cdf(np.array([middle]))[0] < level else (low, middle)
        return float((low + high) / 2)

    return quantile(0.025), quantile(0.975)
