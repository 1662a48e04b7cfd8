# One front door. Every target sets up what it needs: on a fresh machine, `make demo` and `make test` just run.
.PHONY: setup browser demo test check lint format bench docs reproduce clean

# `make VENV=.venv-3.12 PYTHON=python3.12 check` runs the checks on another Python, next to the usual one.
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
UV    := $(shell command -v uv 2>/dev/null)

# A Python of at least 3.11; `make PYTHON=python3.12 test` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# Data sets that lie beside the project; without them, what needs them is skipped and says so.
ifneq ($(wildcard ../shared/data),)
export WHET_DATA ?= $(abspath ../shared/data)
endif

ifdef UV
INSTALL = uv pip install --quiet --python $(BIN)/python
MAKE_VENV = uv venv --seed --python "$(PYTHON)" $(VENV)
else
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
MAKE_VENV = "$(PYTHON)" -m venv $(VENV)
endif

# Tests start many processes: without bytecode files, each of them compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "whet needs Python 3.11 or newer: make PYTHON=/path/to/python setup"; exit 1; }
	test -x $(BIN)/python || $(MAKE_VENV)
	$(INSTALL) -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/whet demo --out demo-out

# Chromium for the end-to-end tests of the studio, from Debian's packages; without root or apt the tests are skipped.
browser:
	@scripts/browser.sh

# Everything: all tests, and the examples in docstrings, README and docs.
test: $(STAMP) browser
	$(BIN)/python -m pytest -n auto --dist worksteal

# The fast part, in less than a minute on two quiet cores once the kernels are compiled: no test marked `slow`, fewer
# examples of Hypothesis, and of the examples in docstrings and pages those of the library and the README.
check: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" tests src/whet README.md

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Each prints JSON; `.venv/bin/python -m benchmarks.NAME` runs one.
bench: $(STAMP)
	$(BIN)/python -m benchmarks.online_update
	$(BIN)/python -m benchmarks.adaboost
	$(BIN)/python -m benchmarks.node

docs: $(STAMP)
	$(INSTALL) -e '.[docs]'
	$(BIN)/python -m sphinx -q -W -b html docs build/docs
	@echo "Open build/docs/index.html"

# Every experiment of the paper in its small size, and reproduced/paper.html with all claims, figures and verdicts.
# Experiments whose data are missing are skipped, and the page says so. `.venv/bin/python -m experiments all --size paper`
# takes hours and continues where it was interrupted.
reproduce: $(STAMP)
	$(BIN)/python -m experiments all --size small --out reproduced

clean:
	rm -rf build dist demo-out reproduced .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests experiments benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +
