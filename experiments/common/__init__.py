"""What experiments share: sizes and command lines, cells that are run once, statistics of repeats."""
