"""How a run divides its steps: the optimiser may move first, then scores are measured at points that do not move."""

from __future__ import annotations

from dataclasses import dataclass

from dpvi.declared import validation


@dataclass(frozen=True)
class Schedule:
    """A moving phase and a measuring phase of one run.

    Parameters
    ----------
    move_share
        Share of the steps that the optimiser takes, in [0, 1]. With 0 the first point is the prior's centre. Give it a
        share where the answer may be so far from there that nearly every score is clipped; a private gradient step is
        mostly noise, so for other models measuring finds the way in fewer steps. With 1 nothing is measured.
    num_blocks
        J, how many blocks the other steps are cut into; before each, the point is chosen anew from what was released.
    growth
        How many times as long as the one before a block is. With 2, what chose a block's point was always as much as
        the block will add.

    Examples
    --------
    >>> Schedule(move_share=0.2).move_steps(10_000)
    2000
    >>> Schedule(num_blocks=3).block_steps(70, done=0), Schedule(num_blocks=3).block_steps(60, done=1)
    (10, 20)
    """

    move_share: float = 0.0
    num_blocks: int = 8
    growth: float = 2.0

    def __post_init__(self) -> None:
        move_share, growth = validation.number("move_share", self.move_share), validation.number("growth", self.growth)
        if not 0 <= move_share <= 1:
            raise ValueError(f"move_share must lie in [0, 1], got {self.move_share!r}.")
        if not 1 <= growth <= 10:
            raise ValueError(f"growth must lie in [1, 10], got {self.growth!r}.")
        num_blocks = validation.whole_number("num_blocks", self.num_blocks)
        validation.keep(self, move_share=move_share, num_blocks=num_blocks, growth=growth)

    @property
    def measures(self) -> bool:
        """Whether any step measures."""
        return self.move_share < 1

    def move_steps(self, num_steps: int) -> int:
        """How many of ``num_steps`` steps move; those left must suffice for the blocks."""
        moving = 0 if self.move_share == 0 else max(2, round(self.move_share * num_steps))
        if self.measures and num_steps - moving < self.num_blocks:
            raise ValueError(
                f"{num_steps} steps are too few to move for {moving} and measure in {self.num_blocks} blocks; plan "
                "more steps, fewer blocks or Schedule(move_share=1)."
            )
        return min(moving, num_steps)

    def block_steps(self, steps_left: int, done: int) -> int:
        """Length of the next block, after ``done`` blocks; every block has a step."""
        left = self.num_blocks - done
        share = 1 / sum(self.growth**k for k in range(left))
        return min(max(1, round(share * steps_left)), steps_left - (left - 1))
