"""The study as tables beside the paper's, and as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.vae.settings import DATASETS, PAPER, PAPER_SAMPLERS

_KINDS = ("private", "not private")


def table(content: dict[str, Any]) -> str:
    """Markdown, from the JSON alone."""
    settings = content["settings"]
    chunk = f" Chunks of at most {content['chunk_megabytes']} MB." if content["chunk_megabytes"] else ""
    lines = [
        "# Variational auto-encoder (d3p, Tables 2 and 3, Figure 3)",
        "",
        f"Made by `{content['command']}` on {content['machine']}, jax {content['jax']}. Network "
        f"784-{settings['hidden']}-{settings['code_size']} and back, {content['num_parameters']:,} parameters, "
        f"{settings['num_records']:,} images, {settings['num_epochs']:g} epochs of batches of "
        f"{settings['batch_size']}, Adam at "
        f"{settings['learning_rate']:g}, C = {settings['clip_norm']:g}, σ = {settings['noise_multiplier']:g}: "
        f"ε = {content['epsilon']:.3f} at δ = {settings['delta']:g} for adding or removing an image.{chunk}",
        "",
        "Private is the program of `fit` and `DPSVI.run`: exact Poisson batches, ChaCha20 noise, a recorded trace. Not "
        "private is NumPyro's `SVI.update` with the same network and optimiser in one compiled loop per epoch, fixed "
        "batches from a shuffle. Precision is that of the network's matrix products in both; norms and clipped sums "
        "always have the highest.",
    ]
    for part, write in (
        ("training", _training),
        ("readings", _readings),
        ("samplers", _samplers),
        ("memory", _memory),
        ("batches", _batches),
    ):
        if content[part]:
            lines += ["", *write(content)]
    return "\n".join(lines) + "\n"


def figure(content: dict[str, Any], path: Path) -> None:
    """Time of a step against batch size."""
    from dpvi.reporting.plots import new_figure

    rows = sorted(content["batches"], key=lambda row: row["batch_size"])
    picture, axes = new_figure(size=(5.5, 4.0))
    axis = axes[0, 0]
    for kind, marker in zip(_KINDS, "os", strict=True):
        sizes, times = [row["batch_size"] for row in rows], [1e3 * row[kind] for row in rows]
        axis.plot(sizes, times, marker=marker, label=kind)
    axis.set(xscale="log", yscale="log", xlabel="batch size", ylabel="milliseconds per step", title=content["machine"])
    axis.set_xticks([row["batch_size"] for row in rows], [str(row["batch_size"]) for row in rows])
    axis.set_xticks([], minor=True)
    axis.legend()
    picture.savefig(path, dpi=120)


def _training(content: dict[str, Any]) -> list[str]:
    return [
        "## Training (Table 2)",
        "",
        "Seconds per epoch, median over runs, the one that compiles apart; a run in which a batch outgrows its slots "
        "for the first time compiles one more program. Negative ELBO per test image after training, mean ± standard "
        "error over runs. *Paper*: d3p and NumPyro on a V100."
        + (
            " JAX kept compiled programs, so that the second data set found those of the first."
            if content["compilation_cache"]
            else ""
        ),
        "",
        "| data | precision | | seconds per epoch | ratio | compiling | loss | paper: seconds | paper: loss |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(line for row in content["training"] for line in _training_rows(row)),
        "",
        *_verdicts(content),
    ]


def _training_rows(row: dict[str, Any]) -> list[str]:
    base = np.median(row["not private"]["seconds_per_epoch"])
    lines = []
    for kind in _KINDS:
        part, paper = row[kind], PAPER[row["dataset"]][kind]
        seconds = np.median(part["seconds_per_epoch"])
        lines.append(
            f"| {DATASETS[row['dataset']]} | {row['precision']} | {kind} | {seconds:.4f} | {seconds / base:.2f} | "
            f"{part['seconds_to_compile']:.1f} s | {_mean(part['losses'], 2)} | {paper[0]:.2f} | "
            f"{paper[1]:.2f} ± {paper[2]:.2f} |"
        )
    return lines


def _verdicts(content: dict[str, Any]) -> list[str]:
    if content["size"] == "quick" or content["settings"]["num_epochs"] != 20:
        return ["Losses are not comparable with the paper's: its network, images and 20 epochs belong to size `full`."]
    lines = []
    for row in content["training"]:
        _, paper, error = PAPER[row["dataset"]]["private"]
        losses = np.array(row["private"]["losses"])
        room = np.hypot(error, losses.std(ddof=1) / np.sqrt(len(losses)) if len(losses) > 1 else 0.0)
        word = "better than" if losses.mean() < paper - room else "within" if losses.mean() <= paper + room else "above"
        lines.append(
            f"* {DATASETS[row['dataset']]}, {row['precision']}: private loss {word} "
            f"{'the paper' if word != 'within' else 'the error of the paper'} ({losses.mean():.2f}, {paper:.2f})."
        )
    return lines


def _readings(content: dict[str, Any]) -> list[str]:
    """Private losses for each way of reading the paper, the default one from the first table."""
    default = {row["dataset"]: row["private"] for row in reversed(content["training"])}
    rows = [{"dataset": name, "grey": False, "closed_form": True} | part for name, part in default.items()]
    rows = sorted([*rows, *content["readings"]], key=lambda row: (list(DATASETS).index(row["dataset"]), row["grey"]))
    return [
        "## Private losses, by what the paper leaves open",
        "",
        "Images made black and white whenever they are drawn, or trained on and judged in grey; the divergence of a "
        "code's law from its prior by formula, or at the draw, as d3p takes it. *Averaged*: the default posterior.",
        "",
        "| data | images | divergence | last iterate | averaged | paper |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {DATASETS[row['dataset']]} | {'grey' if row['grey'] else 'black and white'} | "
            f"{'by formula' if row['closed_form'] else 'at the draw'} | {_mean(row['losses'], 2)} | "
            f"{_mean(row['averaged_losses'], 2)} | {_of_paper(row['dataset'])} |"
            for row in rows
        ),
    ]


def _of_paper(dataset: str) -> str:
    _, loss, error = PAPER[dataset]["private"]
    return f"{loss:.2f} ± {error:.2f}"


def _samplers(content: dict[str, Any]) -> list[str]:
    lines = [
        "## Drawing batches (Table 3)",
        "",
        "Seconds to draw the batches of an epoch, nothing else. In the paper an epoch of MNIST takes "
        f"{PAPER_SAMPLERS['mnist'][0]:.2f} s with its own sampler and {PAPER_SAMPLERS['mnist'][1]:.2f} s with "
        "`jax.random.choice`, training included.",
        "",
        "| sampler | seconds per epoch |",
        "| --- | --- |",
    ]
    return lines + [f"| {name} | {row['seconds_per_epoch']:.5f} |" for name, row in content["samplers"].items()]


def _memory(content: dict[str, Any]) -> list[str]:
    memory = content["memory"]
    lines = [
        f"## Memory of a step at batch size {memory['batch_size']:,}",
        "",
        "Megabytes that the compiled step needs beside the images, by the compiler's own account. A private run also "
        "holds the draws and rows of its chunks, whose size is bounded whatever the batch.",
        "",
        "| | total | temporary |",
        "| --- | --- | --- |",
    ]
    for kind in _KINDS:
        lines.append(f"| {kind} | {memory[kind]['total']:.1f} | {memory[kind]['temporary']:.1f} |")
    ratios = [memory["private"][part] / max(memory["not private"][part], 1e-9) for part in ("total", "temporary")]
    return [*lines, f"| ratio | {ratios[0]:.2f} | {ratios[1]:.2f} |"]


def _batches(content: dict[str, Any]) -> list[str]:
    lines = [
        "## Batch size (Figure 3)",
        "",
        "Milliseconds per step; the private one with its draws, without the recording of the trace. The paper: private "
        "time grows linearly, and more steeply than without privacy.",
        "",
        "| batch size | private | not private | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for row in sorted(content["batches"], key=lambda row: row["batch_size"]):
        times = [1e3 * row[kind] for kind in _KINDS]
        lines.append(f"| {row['batch_size']:,} | {times[0]:.3f} | {times[1]:.3f} | {times[0] / times[1]:.2f} |")
    return lines


def _mean(values: list[float], digits: int) -> str:
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"
