# Two commands do everything on a machine with Python: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-all lint format estimators docs audit bench bench-peers compatibility kills reproduce clean

demo: $(VENV)/.demo
	$(BIN)/dpvi demo --output demo

# tests of a file share fits and compiled programs: workers walk through whole files, and share the last ones
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --durations=25

test: $(VENV)/.dev lint
	$(PYTEST) -m "not slow"

# whole fits, statistics, attacks, leaks, several processes, experiments and benchmarks
test-slow: $(VENV)/.dev
	$(PYTEST) -m slow

test-all: test test-slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# scikit-learn's checks of estimators with real private runs, where `make test` has a stand-in
estimators: $(VENV)/.dev
	DPVI_REAL_RUNS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/estimators

# the documentation site, build/site/docs/index.html; a warning is an error
docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -b html . build/site

# the shipped mechanism and planted faults, judged by what plans promise
audit: $(VENV)/.dev
	$(BIN)/python benchmarks/audit.py --output benchmarks/results/audit.json

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/step.py --output benchmarks/results/step.json
	$(BIN)/python benchmarks/scaling.py --output benchmarks/results/scaling.json
	$(BIN)/python benchmarks/many.py --output benchmarks/results/many.json
	$(BIN)/python benchmarks/adult.py
	$(BIN)/python benchmarks/na_dpvi_engines.py --output benchmarks/results/na_dpvi_engines.json
	$(BIN)/python benchmarks/ghost_clipping.py --output benchmarks/results/ghost_clipping.json
	$(BIN)/python benchmarks/rounding.py
	$(BIN)/python benchmarks/rewrites.py
	$(BIN)/python benchmarks/evaluation.py

# models after tutorials, as they are: who runs, who is refused and why, and some posteriors beside NUTS
compatibility: $(VENV)/.dev
	$(BIN)/python benchmarks/compatibility.py

# runs that are killed at random moments and resumed
kills: $(VENV)/.dev
	$(BIN)/python benchmarks/kills.py

# makes an environment per peer; MNIST is looked for where studies.datasets looks
bench-peers: $(VENV)/.dev
	$(BIN)/python benchmarks/peers.py --output benchmarks/results/peers.json

reproduce: $(VENV)/.dev
	@test -n "$(EXPERIMENT)" || { echo "which? make reproduce EXPERIMENT=$$(cd experiments && ls */__main__.py | cut -d/ -f1 | paste -sd' ')"; exit 2; }
	$(BIN)/python -m experiments.$(EXPERIMENT) $(OPTIONS)

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plot]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .venv-* demo .pytest_cache .ruff_cache .hypothesis
