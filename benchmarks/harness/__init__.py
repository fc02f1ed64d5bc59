"""What every side-by-side benchmark needs: problems, worker processes, ratios, tables."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # `studies` is not installed
