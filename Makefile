# make demo  sets up everything and runs the main job end to end
# make test  sets up everything and passes
# make help  lists the rest

# The first Python that is new enough; name another with make PYTHON=...
PYTHON ?= $(shell for each in python3 python3.11 python3.12 python3.13 python3.14 python; do \
  $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
CC ?= cc
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet
PACKAGES := labeling index cmatch fmware datasets
KERNELS := $(shell find $(PACKAGES) -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h')
TESTS ?=
# Of `make fuzz`, for all targets together.
SECONDS ?= 60
# Two at a time, a file each; WORKERS=0 runs them one after the other, as a debugger wants it.
WORKERS ?= 2

# The versions the project was last tested with; a fresh machine gets the same ones.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo test coverage lint format types check bench sanitized sanitize fuzz docs wheel clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.built  ## make .venv, install, build the kernels

# What the build needs goes into the venv first, and the build uses it from there: the kernels are
# compiled against the very lxml that they run with, and a change to one takes seconds.
$(VENV)/.prepared: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fmware needs Python 3.11 or later; found: $$($(or $(PYTHON),python3) -V 2>&1). Name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@command -v $(firstword $(CC)) >/dev/null || { \
	  echo "fmware builds a small native kernel and found no C compiler ('$(CC)'). Install one (Debian, Ubuntu: apt-get install gcc libc6-dev) or name it: make CC=clang" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || { \
	  echo "fmware builds a small native kernel and found no Python.h (Debian, Ubuntu: apt-get install python3-dev)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) could not make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	$(PIP) $(shell sed -n 's/^requires = \[\(.*\)\]/\1/p' pyproject.toml | tr -d ',')
	@touch $@

$(VENV)/.installed: $(VENV)/.prepared
	FMWARE_KERNELS_LATER=1 $(PIP) --no-build-isolation --editable ".[dev]"
	@touch $@

$(VENV)/.built: $(VENV)/.installed setup.py $(KERNELS)
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel 2
	@touch $@

demo: setup  ## run the main job end to end on generated data
	@$(BIN)/fmware demo

test: setup  ## run the tests; TESTS=tests/cli runs some
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TESTS)

# Tracing every line makes the tests take 1.8 times the CPU, so `make test` does without.
coverage: setup  ## run the tests and show which lines they miss
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report=term $(TESTS)

lint: setup  ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup  ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup  ## check types
	$(BIN)/mypy

check: lint types test  ## style, types, tests; CI also runs sanitize and fuzz for a moment

bench: setup  ## list the benchmarks
	@$(BIN)/python -m bench

# The kernels with AddressSanitizer, UBSan and gcc's coverage, in a tree of their own beside copies
# of everything else: those in place stay as they are. -Og builds in half the time that -O1 takes.
# Findings end a process, but for leaks: Python itself never frees all. PYTHONMALLOC has each object
# be a block that is watched, and libstdc++ is loaded first because pyarrow throws through it.
SANITIZED := build/sanitize
SANITIZED_TREE := $(SANITIZED)/tree
# What reaches all kernels in some minutes; properties with hundreds of examples take too long here.
SANITIZE_TESTS ?= tests/fuzz tests/labeling/test_fast.py::test_drawn_and_mutated_documents_give_the_same_tables \
  tests/labeling/test_fast.py::test_joined_records_give_the_same_table \
  tests/labeling/test_bad_input.py tests/labeling/test_entities.py tests/labeling/test_vocabulary.py \
  tests/filtering/test_engine.py tests/filtering/test_explain.py tests/filtering/test_many.py \
  tests/index/test_read_index.py tests/index/test_values.py \
  tests/matching/test_columns.py tests/matching/test_local_columns.py
# It bounds seconds and memory, which are others here.
SANITIZE_NOT := --deselect tests/labeling/test_bad_input.py::test_bad_input_is_cheap
# Not checked: that memcpy and memcmp of no bytes are given places. Empty columns have none, and
# setup.py has the compiler conclude nothing from such calls.
SANITIZER = -fsanitize=address,undefined -fno-sanitize=nonnull-attribute -fno-sanitize-recover=all \
  -fsanitize-coverage=trace-pc
WATCHED = cd $(SANITIZED_TREE) && PYTHONPATH="$$PWD" PYTHONMALLOC=malloc \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so) $(CURDIR)/$(SANITIZED)/edges.so" \
  $(CURDIR)/$(BIN)/python

# Other flags, another build.
$(SANITIZED)/.flags: Makefile
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	@touch $@

sanitized: $(VENV)/.installed $(SANITIZED)/.flags
	CC=gcc FMWARE_KERNEL_FLAGS="-Og -g1 -fno-omit-frame-pointer $(SANITIZER)" $(BIN)/python setup.py \
	  --quiet build --build-base $(SANITIZED) --build-lib $(SANITIZED_TREE) --parallel 2
	gcc -O2 -shared -fPIC -o $(SANITIZED)/edges.so tests/fuzz/edges.c
	rm -rf $(SANITIZED_TREE)/tests $(SANITIZED_TREE)/bench
	cp -R tests bench docs pyproject.toml $(SANITIZED_TREE)

sanitize: sanitized  ## run the tests of native code under AddressSanitizer and UBSan (gcc)
	$(WATCHED) -m pytest -q -p no:cacheprovider $(SANITIZE_NOT) $(SANITIZE_TESTS)

fuzz: sanitized  ## fuzz what reads messages, statements and indexes; SECONDS=600 looks longer
	$(WATCHED) -m tests.fuzz --seconds $(SECONDS) --corpus $(CURDIR)/tests/fuzz/corpus

docs: setup  ## build the documentation into build/docs, offline, warnings as errors
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

wheel: setup  ## build a wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:  ## remove what was made
	rm -rf $(VENV) build dist demo-out .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	rm -f $(patsubst %.pyx,%.c,$(filter %.pyx,$(KERNELS)))
	find $(PACKAGES) -name '*.so' -delete
	find $(PACKAGES) bench tests -name __pycache__ -prune -exec rm -rf {} +
