# One front door. Every target sets up what it needs: on a fresh machine, `make demo` and `make test` just run.
.PHONY: setup demo test lint format bench docs clean

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

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "whet needs Python 3.11 or newer: make PYTHON=/path/to/python setup"; exit 1; }
ifdef UV
	test -x $(BIN)/python || uv venv --seed --python "$(PYTHON)" $(VENV)
	uv pip install --quiet --python $(BIN)/python -e '.[dev]'
else
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
endif
	@touch $@

demo: $(STAMP)
	$(BIN)/whet demo --out demo-out

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.online_update

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]' 2>/dev/null || uv pip install --quiet --python $(BIN)/python -e '.[docs]'
	$(BIN)/python -m sphinx -q -W -b html docs build/docs
	@echo "Open build/docs/index.html"

clean:
	rm -rf build dist demo-out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
