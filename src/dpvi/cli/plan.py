"""``dpvi plan``: from a budget to a noise multiplier and a guarantee, or check a stored plan."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpvi.cli.parser import add_command, add_json

if TYPE_CHECKING:
    from dpvi.declared.clipping import PerLayer, QuantileClipping
    from dpvi.declared.plan import Plan

_REQUIRED = ("delta", "sampling_rate", "num_steps", "clip_norm")


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "plan",
        help="turn a privacy budget into noise, or check a stored plan",
        description="Turn a privacy budget into noise and a guarantee, or check the claim of a stored plan.",
        example="dpvi plan --epsilon 1 --delta 1e-6 --sampling-rate 0.01 --num-steps 4000 --clip-norm 2\n"
        "dpvi plan --verify plan.json",
    )
    add_json(parser)
    parser.add_argument("--epsilon", type=float, help="budget; the noise is calibrated to it")
    parser.add_argument("--noise-multiplier", type=float, help="noise over clip norm; epsilon is computed from it")
    parser.add_argument("--delta", type=float, help="probability with which the bound may fail, for example 1e-5")
    parser.add_argument(
        "--sampling-rate",
        type=float,
        help="probability with which a record enters a step; without this "
        "and the next two, the plan takes no steps but measures",
    )
    parser.add_argument("--num-steps", type=int, help="number of steps")
    parser.add_argument("--clip-norm", type=float, help="bound on what one record contributes to a step")
    parser.add_argument("--num-records", type=int, help="number of records, only where it is public")
    parser.add_argument(
        "--layer", action="append", metavar="PATTERN=NORM", help="clip norm of a group of parameters; may be repeated"
    )
    parser.add_argument("--target-quantile", type=float, help="let the clip norm follow this quantile of the norms")
    parser.add_argument("--expected-batch", type=float, help="records per step, as far as public, to follow a quantile")
    parser.add_argument("--adjacency", default="add_remove", help="add_remove (default) or substitute")
    parser.add_argument("--unit", default="one record", help="who is protected, such as 'one patient'")
    parser.add_argument("--rows-per-unit", type=int, default=1, help="the most rows that one unit has in the data")
    parser.add_argument("--compare", action="store_true", help="also print what other accountants would say")
    parser.add_argument("--output", metavar="FILE", help="write the plan to this file as JSON")
    parser.add_argument("--verify", metavar="FILE", help="recompute the cost of a stored plan and check its claim")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Make or check a plan and print it."""
    if options.output and Path(options.output).is_file() and Path(options.output).suffix != ".json":
        raise FileExistsError(f"{options.output} is there already and is no plan; give a name that ends in .json.")
    from dpvi.declared.plan import Plan
    from dpvi.privacy.planning import verify

    if options.verify:
        plan = Plan.load(options.verify)
        spent = verify(plan)
        print(f"The claim holds: the releases spend epsilon = {spent:.6g} at delta = {plan.delta:.3g}.\n")
    else:
        plan = _make(options)
    if options.json:
        if options.output:
            plan.save(options.output)
        print(plan.to_json())
        return 0
    lines = [str(plan.guarantee), "", *_settings(plan)]
    if options.compare:
        lines += ["", *_comparison(plan)]
    if options.output:
        plan.save(options.output)
        lines += ["", f"Written to {options.output}."]
    print("\n".join(lines))
    return 0


def _make(options: argparse.Namespace) -> Plan:
    from dpvi.privacy.planning import plan

    clipping = _asked_clipping(options)
    measures = clipping is None and all(getattr(options, name) is None for name in _REQUIRED[1:])
    needed = _REQUIRED[:1] if measures else _REQUIRED if not options.layer else _REQUIRED[:-1]
    missing = [f"--{name.replace('_', '-')}" for name in needed if getattr(options, name) is None]
    if missing:
        raise ValueError(f"A plan also needs {', '.join(missing)}; see dpvi plan --help.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = plan(
            epsilon=options.epsilon,
            noise_multiplier=options.noise_multiplier,
            adjacency=options.adjacency,
            num_records=options.num_records,
            clipping=clipping,
            unit=options.unit,
            rows_per_unit=options.rows_per_unit,
            **{name: getattr(options, name) for name in _REQUIRED},
        )
    for warning in caught:
        print(f"Warning: {warning.message}", file=sys.stderr)
    return made


def _asked_clipping(options: argparse.Namespace) -> PerLayer | QuantileClipping | None:
    """Layers or a quantile, where one of them was asked for."""
    from dpvi.declared.clipping import PerLayer, QuantileClipping

    if options.layer and options.target_quantile is not None:
        raise ValueError("Give --layer or --target-quantile: layers have fixed clip norms.")
    if options.expected_batch is not None and options.target_quantile is None:
        raise ValueError("--expected-batch is for a clip norm that follows a quantile; give --target-quantile too.")
    if options.layer:
        pairs = [each.rpartition("=") for each in options.layer]
        try:
            return PerLayer(tuple((pattern, float(norm)) for pattern, _, norm in pairs))
        except ValueError as error:
            raise ValueError(f"--layer takes PATTERN=NORM, such as 'encoder*=1.5': {error}") from None
    if options.target_quantile is None:
        return None
    return QuantileClipping(target_quantile=options.target_quantile, expected_batch=options.expected_batch)


def _settings(plan: Plan) -> list[str]:
    lines = []
    for release in plan.releases:
        scale = f"{release.noise_scale:.6g} (noise multiplier times clip norm {release.clip_norm:g})"
        clips_otherwise = release.name == "gradients" and plan.clipping is not None
        lines += [
            f"release            {release.name}",
            f"  noise multiplier {release.noise_multiplier:.6g}",
            *(_clipping(plan) if clips_otherwise else [f"  noise scale      {scale}"]),
            f"  sampling rate    {release.sampling_rate:g}",
            f"  count            {release.count}",
        ]
    return lines


def _clipping(plan: Plan) -> list[str]:
    """How gradients are clipped, and the noise that goes with it, where not by one norm."""
    from dpvi.declared.clipping import PerLayer

    sigma, clipping = plan.noise_multiplier, plan.clipping
    assert clipping is not None
    if isinstance(clipping, PerLayer):
        rows = zip(clipping.patterns, clipping.norms, clipping.noise_scales(sigma), strict=True)
        return [f"  layer            {name}: clip norm {norm:g}, noise scale {scale:.6g}" for name, norm, scale in rows]
    return [
        f"  clip norm        from {plan.clip_norm:g} on, follows the {clipping.target_quantile:g} quantile",
        f"  noise scale      {clipping.gradient_noise_multiplier(sigma):.6g} times the clip norm of the step; "
        f"{clipping.count_noise(sigma):.6g} records on the count of unclipped records",
    ]


def _comparison(plan: Plan) -> list[str]:
    """Both questions side by side: what each accountant claims for this noise, and the noise it would ask for."""
    from dpvi.privacy.comparison import compare, compare_noise

    if len(plan.releases) > 1 or not plan.private:
        raise ValueError("Accountants are compared for private plans with gradients only; leave --compare out.")
    if plan.epsilon == 0:
        raise ValueError(
            "This plan spends epsilon = 0 at its delta, so there is nothing to compare; leave --compare out."
        )
    if plan.rows_per_unit > 1:
        raise ValueError("Accountants are compared for units of one row; leave --compare or --rows-per-unit out.")
    setting = (plan.delta, plan.sampling_rate, plan.num_steps, plan.adjacency)
    claimed, needed = compare(plan.noise_multiplier, *setting), compare_noise(plan.epsilon, *setting)
    rows = [("accountant", "kind", "epsilon for this noise", f"noise for epsilon {plan.epsilon:.4g}", "note")]
    for claim, need in zip(claimed, needed, strict=True):
        rows.append(
            (claim.method, claim.kind, f"{claim.epsilon:.6g}", f"{need.noise_multiplier:.6g}", _note(claim, need))
        )
    return _align(rows)


def _note(claim: Any, need: Any) -> str:
    if claim.kind != need.kind:
        return f"{claim.note} At the noise it asks for it is a {need.kind}."
    return claim.note


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
