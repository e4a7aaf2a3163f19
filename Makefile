# make demo  sets up everything and runs the main job end to end
# make test  sets up everything and passes
# make help  lists the rest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CC ?= cc
STAMP := $(VENV)/.installed
KERNELS := $(wildcard labeling/*.pyx labeling/*.pxd fmware/*/*.pyx fmware/*/*.pxd fmware/*/*.h cmatch/*.pyx)
MARK ?=
# The versions the project was last tested with; a fresh machine gets the same ones.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo test lint format types check bench clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## make .venv, install, build the kernels

$(STAMP): pyproject.toml setup.py constraints.txt $(KERNELS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fmware needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@command -v $(firstword $(CC)) >/dev/null || \
	  { echo "fmware builds a small native kernel and found no C compiler ('$(CC)'). Install one (Debian: apt-get install gcc libc6-dev) or name it: make CC=clang" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "the venv module failed (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: setup  ## run the main job end to end on generated data
	@$(BIN)/fmware demo

test: setup  ## run the whole test suite, with coverage
	$(BIN)/python -m pytest --cov --cov-report=term $(MARK)

lint: setup  ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup  ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup  ## check types
	$(BIN)/mypy

check: lint types test  ## everything CI runs

bench: setup  ## list the benchmarks
	$(BIN)/python -m bench

clean:  ## remove what was built
	rm -rf $(VENV) build .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find labeling fmware index cmatch -name '*.so' -delete -o -name '_kernel*.c' -delete
