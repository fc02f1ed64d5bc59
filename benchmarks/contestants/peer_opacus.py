"""Opacus 1.6.0: ``PrivacyEngine.make_private`` around torch modules, its Poisson loader, Adam.

Opacus has no posteriors. ``kind`` says what stands in for one:

``"point"``
    The mode: a linear layer, with the prior's gradient added after the noise. Per-example gradients by hooks.
``"ghost"``
    The same by ghost clipping.
``"mean field"``
    A layer of our own with location and raw scale, whose per-example gradients Opacus takes by functorch. Every record
    has a draw of its own; prior and entropy are added after the noise.

Of an auto-encoder the negative ELBO is an ordinary loss; there ``"point"`` is hooks and ``"ghost"`` ghost clipping.
Records come from a data set that hands out whole batches; torch's own ``TensorDataset`` would take them one by one.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness.judge import NUM_DRAWS
from harness.tasks import CODE, LAYERS, Arrays, Task, Trained, prior_precision
from opacus import PrivacyEngine
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

FIRST_SCALE = -2.0


class Batches(torch.utils.data.Dataset):
    """Tensors with a common leading axis, indexed with a whole batch at once."""

    def __init__(self, *columns: torch.Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        return tuple(column[index] for column in self.columns)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, ...]:
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return tuple(column[chosen] for column in self.columns)


class MeanField(nn.Module):
    """Logits of records (batch, d) at weights drawn once per record; its input is [record, standard normals]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.location = nn.Parameter(torch.zeros(size))
        self.raw_scale = nn.Parameter(torch.full((size,), FIRST_SCALE))

    def forward(self, record_and_noise: torch.Tensor) -> torch.Tensor:
        x, noise = record_and_noise.chunk(2, dim=-1)
        return torch.sum(x * (self.location + softplus(self.raw_scale) * noise), dim=-1, keepdim=True)


class AutoEncoder(nn.Module):
    """Logits of the pixels, and location and log scale of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(*size) for name, size in LAYERS.items()})
        for layer in self.layers.values():
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = softplus(self.layers["encoder in"](images))
        location, log_scale = self.layers["encoder location"](hidden), self.layers["encoder scale"](hidden)
        code = location + torch.exp(log_scale) * torch.randn(len(images), CODE)
        logits = self.layers["decoder out"](softplus(self.layers["decoder in"](code)))
        return logits, location, log_scale


class Likelihood(nn.Module):
    """Negative log likelihood of labels given logits, one column each."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "sum"  # ghost clipping sets it to "none" to have one number per record

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        each = binary_cross_entropy_with_logits(logits[:, 0], labels, reduction="none")
        return each if self.reduction == "none" else each.sum()


class NegativeElbo(nn.Module):
    """Of images, given what the auto-encoder returned."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "sum"

    def forward(self, outputs: tuple[torch.Tensor, ...], images: torch.Tensor) -> torch.Tensor:
        logits, location, log_scale = outputs
        likelihood = -binary_cross_entropy_with_logits(logits, images, reduction="none").sum(dim=1)
        divergence = 0.5 * torch.sum(torch.exp(2 * log_scale) + location**2 - 1 - 2 * log_scale, dim=1)
        each = divergence - likelihood
        return each if self.reduction == "none" else each.sum()


def records_of(task: Task, data: Arrays) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets; with groups, one block of columns per group, so that weights of all groups are one row."""
    if task.name == "vae":
        images = torch.from_numpy(data["images"].astype(np.float32))
        return images, images
    design = np.zeros((task.num_records, task.num_groups, task.dimension), np.float32)
    design[np.arange(task.num_records), data["group"]] = data["x"]
    return torch.from_numpy(design.reshape(task.num_records, -1)), torch.from_numpy(data["y"])


def public_gradient(task: Task, data: Arrays, module: nn.Module) -> Callable[[], None]:
    """Adds the gradient of what knows no record, minus log prior and minus entropy, to gradients that carry noise."""
    precision = torch.from_numpy(prior_precision(task, data))
    shape = (task.num_groups, task.dimension)
    location = module.location if isinstance(module, MeanField) else next(module.parameters())

    @torch.no_grad()
    def add() -> None:
        location.grad += (precision @ location.reshape(shape)).reshape(location.shape)
        if isinstance(module, MeanField):
            scale = softplus(module.raw_scale)
            spread = (torch.diag(precision)[:, None] * scale.reshape(shape)).reshape(-1) - 1 / scale
            module.raw_scale.grad += spread * torch.sigmoid(module.raw_scale)

    return add


def module_of(task: Task, kind: str) -> nn.Module:
    if task.name == "vae":
        return AutoEncoder()
    size = task.num_groups * task.dimension
    if kind == "mean field":
        return MeanField(size)
    layer = nn.Linear(size, 1, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def train(task: Task, data: Arrays, seed: int, kind: str) -> Trained:
    warnings.filterwarnings("ignore", category=UserWarning)  # of secure mode, and of hooks on inputs without gradient
    torch.manual_seed(seed)
    module = module_of(task, kind)
    inputs, targets = records_of(task, data)
    loader = torch.utils.data.DataLoader(
        Batches(inputs, targets), batch_size=task.batch_size, collate_fn=lambda batch: batch
    )
    made = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.Adam(module.parameters(), lr=task.learning_rate),
        criterion=NegativeElbo() if task.name == "vae" else Likelihood(),
        data_loader=loader,
        noise_multiplier=task.noise_multiplier,
        max_grad_norm=task.clip_norm,
        loss_reduction="sum",
        grad_sample_mode="ghost" if kind == "ghost" else "hooks",
    )
    private, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if kind == "ghost" else NegativeElbo() if task.name == "vae" else Likelihood()
    if task.name != "vae":
        scale_and_add(task, data, module, optimizer)
    start = time.perf_counter()
    for inputs, targets in itertools.islice(endless(loader), task.num_steps):
        if kind == "mean field":
            inputs = torch.cat([inputs, torch.randn_like(inputs)], dim=1)
        optimizer.zero_grad()
        criterion(private(inputs), targets).backward()
        optimizer.step()
    seconds = (time.perf_counter() - start) / task.num_steps
    return Trained(seconds, handed_in(task, module))


def endless(loader: Any) -> Any:
    while True:
        yield from loader


def scale_and_add(task: Task, data: Arrays, module: nn.Module, optimizer: Any) -> None:
    """From the noisy sum over a batch to the gradient of minus log posterior or ELBO, before Adam sees it."""
    count, add = optimizer.step_hook, public_gradient(task, data, module)
    factor = math.ceil(task.num_records / task.batch_size)  # one over the rate at which its loader samples

    def hook(optimizer: Any) -> None:
        count(optimizer)
        for parameter in optimizer.params:
            parameter.grad *= factor
        add()

    optimizer.attach_step_hook(hook)


def handed_in(task: Task, module: nn.Module) -> Arrays:
    if isinstance(module, AutoEncoder):
        layers = {name: (layer.weight.detach().T, layer.bias.detach()) for name, layer in module.layers.items()}
        weights = {f"{name} weights": weight.numpy() for name, (weight, _) in layers.items()}
        return weights | {f"{name} bias": bias.numpy() for name, (_, bias) in layers.items()}
    with torch.no_grad():
        if isinstance(module, MeanField):
            noise = torch.randn(NUM_DRAWS, len(module.location))
            return {"weights": (module.location + softplus(module.raw_scale) * noise).numpy()}
        return {"weights": next(module.parameters()).numpy()}
