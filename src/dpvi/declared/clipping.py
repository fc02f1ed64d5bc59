"""Clipping other than by one fixed norm: a norm for each group of parameters, or a norm that follows a quantile.

Both are settings of a plan. A plan without them clips a record's whole release to one norm C and adds noise σC.

**Per layer.** The part of a release that belongs to layer l of L is clipped to C_l, so a record adds a vector of norm
at most √(Σ C_l²). Noise on layer l has standard deviation σ√L C_l: measured in its own noise a layer moves by at most
1/(σ√L), all of them together by 1/σ, which is what one norm costs at noise multiplier σ. Noise follows C_l because
equal noise, σ√(Σ C_l²) everywhere, would drown layers with small clip norms, for whose sake layers are told apart.

**By quantile.** A step also releases how many sampled records were left unclipped, each adding between −½ and ½ to that
count. With noise σ_g C_t on the gradients and σ_b on the count, a record moves both together by at most 1/σ in units of
their noise, where

    σ⁻² = σ_g⁻² + (2σ_b)⁻².

Both are one Gaussian release of multiplier σ, sampled once. ``count_share`` is the count's part of the right-hand side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from dpvi.declared import validation


@dataclass(frozen=True)
class PerLayer:
    """A clip norm for each group of parameters.

    Parameters
    ----------
    clip_norms
        ``{pattern: C_l}``. A pattern (``*`` stands for anything) names parameters of a guide and its model, such as
        ``"encoder*"`` or ``"decoder/Dense_0/*"``, or, without a guide, sites of the model. A parameter belongs to the
        first pattern that fits its name, so ``"*"`` at the end takes the rest.

    Guarantees
    ----------
    What a record adds to layer l has norm at most C_l. It costs as much privacy as one clip norm at the same noise
    multiplier; what it changes is that a layer with large gradients does not shrink the others.

    Examples
    --------
    >>> layers = PerLayer({"encoder*": 3.0, "*": 4.0})
    >>> layers.clip_norm, layers.noise_scales(noise_multiplier=1.0)
    (5.0, (4.242640687119286, 5.656854249492381))
    >>> layers.layers_of(["encoder/weight", "decoder/weight", "encoder/bias"])
    (0, 1, 0)
    """

    clip_norms: Mapping[str, float] | tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        given = self.clip_norms.items() if isinstance(self.clip_norms, Mapping) else self.clip_norms
        pairs = tuple((pattern, validation.clip_norm(value)) for pattern, value in given)
        patterns = [pattern for pattern, _ in pairs]
        if not pairs or not all(isinstance(each, str) and each for each in patterns):
            raise ValueError(f"PerLayer needs {{pattern: clip norm}} with patterns that are text, got {patterns}.")
        if len(set(patterns)) != len(patterns):
            raise ValueError(f"PerLayer needs every pattern once, got {patterns}.")
        validation.keep(self, clip_norms=pairs)
        validation.clip_norm(self.clip_norm)

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(dict(self.clip_norms))

    @property
    def norms(self) -> tuple[float, ...]:
        """C_l in the order of the patterns."""
        return tuple(dict(self.clip_norms).values())

    @property
    def clip_norm(self) -> float:
        """√(Σ C_l²), the bound on the norm of all that a record adds."""
        return math.hypot(*self.norms)

    def noise_scales(self, noise_multiplier: float) -> tuple[float, ...]:
        """σ√L C_l, the standard deviation of the noise on each coordinate of layer l, σ = ``noise_multiplier``."""
        return tuple(noise_multiplier * math.sqrt(len(self.norms)) * each for each in self.norms)

    def layers_of(self, names: Sequence[str]) -> tuple[int, ...]:
        """The layer of each parameter; refuses a name without a pattern and a pattern without a name."""
        owners = [next((i for i, each in enumerate(self.patterns) if fnmatchcase(name, each)), None) for name in names]
        left = [name for name, owner in zip(names, owners, strict=True) if owner is None]
        idle = [pattern for i, pattern in enumerate(self.patterns) if i not in owners]
        if left:
            raise ValueError(
                f"PerLayer must have a pattern for every parameter; none of {list(self.patterns)} fits "
                f"{list(dict.fromkeys(left))}. Add one, such as '*' at the end for the rest."
            )
        if idle:
            raise ValueError(
                f"PerLayer has nothing left for {idle}, whose share of the budget would be wasted: a parameter goes to "
                f"the first pattern that fits, and the parameters are {list(dict.fromkeys(names))}."
            )
        return tuple(owner for owner in owners if owner is not None)


@dataclass(frozen=True)
class QuantileClipping:
    """A clip norm that follows a quantile of the norms: C_{t+1} = C_t exp(−η(b̃_t − γ)), b̃_t the noisy unclipped share.

    The plan's ``clip_norm`` is where it starts, C_0. Every C_t is a function of earlier noisy counts, so it is public;
    the trace keeps it, because the noise of step t is σ_g C_t.

    Parameters
    ----------
    target_quantile
        γ, the share of records that should stay unclipped.
    learning_rate
        η.
    count_share
        The count's part of the squared signal, in (0, 1). 0.01 costs the gradients half a per cent more noise.
    expected_batch
        How many records a step samples on average, as far as that is public: it turns the count into a share. With
        γ = ½ a wrong number changes the pace only, otherwise also the quantile that is followed; never the privacy.
        None takes it from the plan, where the number of records is public.

    References
    ----------
    Andrew, Thakkar, McMahan and Ramaswamy (2021), Differentially private learning with adaptive clipping.

    Examples
    --------
    >>> clipping = QuantileClipping(count_share=0.01)
    >>> round(clipping.gradient_noise_multiplier(1.5), 4), clipping.count_noise(1.5)
    (1.5076, 7.5)
    """

    target_quantile: float = 0.5
    learning_rate: float = 0.2
    count_share: float = 0.01
    expected_batch: float | None = None

    def __post_init__(self) -> None:
        for name in ("target_quantile", "count_share"):
            share = validation.number(name, getattr(self, name))
            if not 0 < share < 1:
                raise ValueError(f"{name} must lie strictly between 0 and 1, got {getattr(self, name)!r}.")
            validation.keep(self, **{name: share})
        validation.keep(self, learning_rate=validation.positive("learning_rate", self.learning_rate))
        if self.expected_batch is not None:
            validation.keep(self, expected_batch=validation.positive("expected_batch", self.expected_batch))

    def gradient_noise_multiplier(self, noise_multiplier: float) -> float:
        """σ_g, what gradients get where gradients and count together have σ = ``noise_multiplier``."""
        return noise_multiplier / math.sqrt(1 - self.count_share)

    def count_noise(self, noise_multiplier: float) -> float:
        """σ_b, standard deviation of the noise on the count, in records: a record moves it by ½ at most."""
        return noise_multiplier / (2 * math.sqrt(self.count_share))

    def with_batch(self, sampling_rate: float, num_records: int | None) -> QuantileClipping:
        """With the expected batch of a public number of records, where none was given."""
        if self.expected_batch is not None:
            return self
        if num_records is None:
            raise ValueError(
                "QuantileClipping needs to know about how many records a step samples, and this plan does not declare "
                "their number public: pass QuantileClipping(expected_batch=...), from public knowledge or a guess. "
                "With target_quantile=0.5 a wrong guess changes the pace only."
            )
        return replace(self, expected_batch=sampling_rate * num_records)


Clipping = PerLayer | QuantileClipping
_KINDS: dict[str, type[PerLayer] | type[QuantileClipping]] = {
    "per_layer": PerLayer,
    "quantile": QuantileClipping,
}


def clipping_to_dict(clipping: Clipping) -> dict[str, Any]:
    """A JSON-serialisable form."""
    kind = next(name for name, each in _KINDS.items() if isinstance(clipping, each))
    content = asdict(clipping)
    if isinstance(clipping, PerLayer):
        content["clip_norms"] = [list(pair) for pair in clipping.clip_norms]
    return {"kind": kind, **content}


def clipping_from_dict(content: Mapping[str, Any]) -> Clipping:
    """The inverse of :func:`clipping_to_dict`."""
    fields = dict(content)
    return _KINDS[fields.pop("kind")](**fields)
