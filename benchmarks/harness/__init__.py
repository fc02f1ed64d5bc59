"""What every side-by-side benchmark needs: problems, worker processes, ratios, tables."""
