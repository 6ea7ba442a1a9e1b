# Two commands do all the set-up: `make demo` and `make test`. Both make .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
OLDEST ?= .venv-oldest

.PHONY: leaderboard env demo test test-all test-oldest lint types layers format clean benchmarks reproduce reproduce-full

env: $(STAMP)

# Made once, and again only when pyproject.toml changes.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "bagwise needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,all]'
	touch $@

demo: env
	$(BIN)/bagwise demo --out demo_output

# One process per core, each with one thread. Bytecode is kept even where the environment says not to:
# without it every process makes that of all tests anew.
PYTEST := -m pytest -n auto --dist worksteal
test test-oldest: export OMP_NUM_THREADS = 1
test test-oldest: export PYTHONDONTWRITEBYTECODE =

test: env
	$(BIN)/python $(PYTEST)

# With the networks: torch is no part of the tests' extra, because for many machines the registry's newest build
# brings gigabytes of GPU libraries. TORCH names another one.
TORCH ?= torch

test-all: env
	$(BIN)/python -c 'import torch' 2> /dev/null || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(MAKE) test

# The lowest versions that pyproject.toml allows, in an environment of their own.
test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/python $(PYTEST)

$(OLDEST)/.installed: pyproject.toml .ci/oldest.py
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python .ci/oldest.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint $(OLDEST)/constraints.txt --editable '.[dev,all]'
	touch $@

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell bagwise papers tests benchmarks docs README.md CHANGELOG.md CONTRIBUTING.md

types: env
	$(BIN)/mypy

layers: env
	$(BIN)/lint-imports

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Figures of docs/benchmarks.md and docs/ored_logistic.md; those on public sets need BAGWISE_DATA.
benchmarks: env
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/first_contact.py
	$(BIN)/python benchmarks/segments_and_metrics.py
	$(BIN)/python benchmarks/parquet_read.py
	$(BIN)/python benchmarks/ored_estep.py
	test -z "$$BAGWISE_DATA" || $(BIN)/python benchmarks/read_all_sets.py
	test -z "$$BAGWISE_DATA" || $(BIN)/python benchmarks/ored_logistic.py

# Every published experiment that the data at hand allow, and what was tried where cells lie outside the published
# figures: within two hours on two cores; stop and resume at will.
reproduce: env
	OMP_NUM_THREADS=1 $(BIN)/python -m papers all --short --reasons --n-jobs 2 --out reproduction \
	    --page docs/reproduction.md --summary docs/reproduction_summary.md

# The papers' own repeats and grids: days. Parts may run on other machines; FROM="folder folder" takes over their rows,
# FROM="docs/reproduction docs/reproduction_full" those behind our own pages.
reproduce-full: env
	OMP_NUM_THREADS=1 $(BIN)/python -m papers all --n-jobs 2 --out reproduction $(FROM:%=--merge %) \
	    --page docs/reproduction_full.md --against-short

# Every estimator at its defaults on every public set at hand; stop and resume at will.
leaderboard: env
	OMP_NUM_THREADS=1 $(BIN)/python -m papers leaderboard --n-jobs 2 --out reproduction --page docs/leaderboard.md

clean:
	rm -rf .venv $(OLDEST) demo_output .pytest_cache .mypy_cache .ruff_cache .hypothesis
