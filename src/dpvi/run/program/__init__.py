"""Many private steps in one compiled program, recorded as a trace."""
