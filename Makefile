# One front door. Every target sets up what it needs: on a fresh machine, `make demo` and `make test` just run.
.PHONY: setup packages demo test check lint format bench docs reproduce fuzz faults lowest audit wheel clean

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

LOWEST_TESTS := tests/io tests/lda tests/kernels tests/corrections tests/images tests/models tests/detector tests/security tests/web

setup: $(STAMP)

# The versions of requirements.lock, for the Python that it was made with; others take what pyproject.toml allows.
LOCKED = $(shell "$(PYTHON)" -c 'import sys; print("-c requirements.lock" * (sys.version_info[:2] == (3, 11)))')

$(STAMP): pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "whet needs Python 3.11 or newer: make PYTHON=/path/to/python setup"; exit 1; }
	test -x $(BIN)/python || $(MAKE_VENV)
	$(INSTALL) -e '.[dev]' $(LOCKED)
	@touch $@

demo: $(STAMP)
	$(BIN)/whet demo --out demo-out

# Chromium and strace for tests, from Debian's packages; without root or apt these tests are skipped.
packages:
	@scripts/system_packages.sh

# Everything: all tests, and the examples in docstrings, README and docs.
test: $(STAMP) packages
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

# Hostile files through every reader, without end; `make fuzz CASES=100000` ends. Findings are kept in fuzz-findings/.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(if $(CASES),--cases $(CASES))

# Every change of a model, killed or failing at every file operation; some minutes.
faults: $(STAMP)
	$(BIN)/python -m tests.faults

# The fast tests with the lowest versions that pyproject.toml allows.
lowest: $(STAMP)
	$(BIN)/python -m scripts.requirements lowest > build-lowest.txt
	test -x .venv-lowest/bin/python || "$(PYTHON)" -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet -e '.[plots,video,studio]' -c build-lowest.txt pytest hypothesis httpx
	rm build-lowest.txt
	.venv-lowest/bin/python -m pytest -m "not slow" $(LOWEST_TESTS) --ignore tests/web/e2e

# Known vulnerabilities of what is installed; needs the network.
audit: $(STAMP)
	$(INSTALL) pip-audit
	$(BIN)/python -m pip_audit --requirement requirements.lock --no-deps --disable-pip

# A wheel whose bytes depend on the sources alone.
wheel: $(STAMP)
	$(INSTALL) build
	SOURCE_DATE_EPOCH=1700000000 $(BIN)/python -m build --wheel --outdir dist

clean:
	rm -rf build dist demo-out reproduced .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests experiments benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +
