"""Coverage studies of simulated data: what their cases, methods, runs, tables and command line share."""
