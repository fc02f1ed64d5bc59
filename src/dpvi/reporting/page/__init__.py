"""Pages of HTML that stand alone: one file, no network, for a screen, for paper, for a screen reader."""
