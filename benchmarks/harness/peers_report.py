"""The Markdown of ``peers.json``; made from the JSON alone: ``python -m harness.peers_report FILE.json``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.output import table

OURS = "dpvi"
TITLES = {
    "logistic": "Logistic regression",
    "hierarchical": "Hierarchical logistic regression (d3p's)",
    "vae": "Variational auto-encoder, 784-400-50, MNIST",
}
HEADER = (
    *("contestant", "private", "trains", "ms per step", "× dpvi", "first model, s", "× dpvi", "peak MB", "× dpvi"),
    *("test log loss", "batches", "σ"),
)
SPEED_TARGET = 10.0  # d3p and Opacus on logistic regression

NOTES = """\
* **ms per step**: median (quartiles) over rounds; whole models trained in turn by processes that have compiled.
  **First model**: from the start of a process to a trained model with all steps, imports and compilation included;
  noise multipliers are given to all. **Peak MB**: of that process, up to its first model.
* **Test log loss**: nats per fresh record, mean ± standard error over rounds; of the posterior predictive distribution
  with 100 draws, of the mode, or the negative ELBO. dpvi's posterior is its default; other libraries give their last
  iterate. The auto-encoder takes too few steps to learn under noise: its table compares speed and memory, not losses.
* **The same true ε**, add/remove adjacency, by dpvi's accountant on what each really samples. Fixed-size batches need
  twice the noise of Poisson batches (proof: `benchmarks/harness/true_epsilon.py`).
* The same for all: records, batch size (expected, where batches are Poisson), steps, clip norm, Adam and its rate.
  **Not** the same: of a regression dpvi clips the score of a record with respect to the model's parameters, with one
  draw per step; d3p, jax-privacy and Opacus clip its gradient with respect to location and scale, with a draw per
  record. d3p clips prior and entropy along, in shares of 1/N; the others add them after the noise. dpvi draws noise
  from ChaCha20 and 53-bit uniforms and keeps a trace; d3p has ChaCha20 and float32; Opacus and jax-privacy use their
  default generators, which are not made for secrets.
* Opacus has no posteriors: the mode of a linear layer stands in, and a mean-field layer written by hand. Opacus and
  jax-privacy have no modelling language: the hierarchical model has M integrated out there by hand.
"""


def markdown(content: dict[str, Any]) -> str:
    """All tables of one run."""
    machine = content["machine"]
    parts = [
        "# dpvi and its peers",
        f"Made by `{content['command']}` on {machine['cores']} cores ({machine['architecture']}), all contestants in "
        "one run. A ratio above 1 means that dpvi is ahead.",
    ]
    for name, each in content["tasks"].items():
        parts += _task(name, each)
    parts += [
        "## Goals",
        table(("goal", "measured", "met"), _goals(content["tasks"])),
        "## How to read this",
        NOTES.rstrip(),
    ]
    return "\n\n".join([*parts, *_versions(content["tasks"])]) + "\n"


def _task(name: str, content: dict[str, Any]) -> list[str]:
    task, title = content["task"], f"## {TITLES[name]}"
    if "skipped" in content:
        return [title, f"Skipped: {content['skipped']}"]
    groups = f", {task['num_groups']} groups" if task["num_groups"] > 1 else ""
    losses = "; ".join(f"{what} {value:.4g}" for what, value in content["reference_log_losses"].items())
    parts = [
        title,
        f"N = {task['num_records']:,}, {task['dimension']} columns{groups}, batch {task['batch_size']}, "
        f"{task['num_steps']:,} steps, clip norm {task['clip_norm']:g}, Adam {task['learning_rate']:g}; "
        f"ε = {task['epsilon']:g}, δ = {task['delta']:g}; {content['rounds']} rounds. "
        f"Log losses to compare with: {losses}.",
        table(HEADER, [_row(who, row) for who, row in content["contestants"].items()]),
    ]
    if content["not_measured"]:
        parts.append("\n".join(f"* {who}: {reason}" for who, reason in content["not_measured"].items()))
    hidden = content["true_epsilon_of_fixed_size_as_poisson"]
    parts.append(
        f"Fixed-size batches whose noise is chosen for ε = {task['epsilon']:g} by the formula for Poisson batches, as "
        f"d3p's accountant does, have a true ε of {hidden:.3g} here."
    )
    return parts


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    ratios, privacy, loss = row.get("ratios_to_dpvi"), row["privacy"], row["test_log_loss"]
    error = "" if loss["standard_error"] is None else f" ± {loss['standard_error']:.2g}"
    digits = 4 if loss["mean"] < 10 else 1

    def times(key: str) -> str:
        if not ratios:
            return ""
        value = ratios[key]["median"] if isinstance(ratios[key], dict) else ratios[key]
        return f"{value:.2f}" if value < 10 else f"{value:.0f}"

    return (
        f"**{name}**" if name == OURS else name,
        "yes" if row["private"] else "no",
        row["trains"],
        _spread(row["milliseconds_per_step"]),
        times("milliseconds_per_step"),
        f"{row['first_model_seconds']:.1f}",
        times("first_model_seconds"),
        f"{row['peak_megabytes']:,}",
        times("peak_megabytes"),
        f"{loss['mean']:.{digits}f}{error}",
        privacy["sampling"] if privacy else "fixed size",
        f"{privacy['noise_multiplier']:.3f}" if privacy else "",
    )


def _goals(tasks: dict[str, Any]) -> list[tuple[str, ...]]:
    """Per task and quantity the private peer that comes nearest to dpvi, and the speed goals of logistic regression."""
    rows = []
    for name, content in tasks.items():
        contestants = content.get("contestants", {})
        peers = {k: v for k, v in contestants.items() if v["private"] and k != OURS}
        if OURS not in contestants or not peers:
            continue
        for key, what in (
            ("milliseconds_per_step", "time per step"),
            ("first_model_seconds", "first model"),
            ("peak_megabytes", "peak memory"),
        ):
            ratios = {who: row["ratios_to_dpvi"][key] for who, row in peers.items()}
            medians = {who: value["median"] if isinstance(value, dict) else value for who, value in ratios.items()}
            nearest = min(medians, key=lambda who: medians[who])
            rows.append((f"{name}, {what}: ahead of every private peer", *_met(nearest, medians[nearest], 1.0)))
            if name == "logistic" and key == "milliseconds_per_step":
                rows += [_fast(library, medians) for library in ("d3p", "Opacus") if _of(library, medians)]
        if name == "vae":  # too few steps for its losses to say anything
            continue
        best = min(peers, key=lambda who: peers[who]["test_log_loss"]["mean"])
        ours, theirs = (contestants[who]["test_log_loss"] for who in (OURS, best))
        rows.append(
            (
                f"{name}, test log loss: ahead of every private peer",
                f"{ours['mean']:.4g}; {best} {theirs['mean']:.4g}",
                "yes" if ours["mean"] < theirs["mean"] else "no",
            )
        )
    return rows


def _of(library: str, medians: dict[str, float]) -> dict[str, float]:
    return {who: value for who, value in medians.items() if who.startswith(library)}


def _fast(library: str, medians: dict[str, float]) -> tuple[str, ...]:
    found = _of(library, medians)
    nearest = min(found, key=lambda who: found[who])
    return f"logistic, time per step: {library} ≥ {SPEED_TARGET:g} × dpvi", *_met(nearest, found[nearest], SPEED_TARGET)


def _met(who: str, value: float, bound: float) -> tuple[str, str]:
    return f"{value:.2f} ({who})", "yes" if value >= bound else "no"


def _versions(tasks: dict[str, Any]) -> Iterable[str]:
    found: dict[str, str] = {}
    for content in tasks.values():
        for name, row in content.get("contestants", {}).items():
            found[name] = ", ".join(f"{package} {version}" for package, version in row["versions"].items())
    return ["\n".join(f"* Versions, {name}: {listed}." for name, listed in found.items())]


def _spread(values: dict[str, float]) -> str:
    def figure(value: float) -> str:
        return f"{value:.3f}" if value < 1 else f"{value:.3g}"

    return f"{figure(values['median'])} ({figure(values['lower_quartile'])} to {figure(values['upper_quartile'])})"


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text())))
