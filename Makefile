# headstart: every target makes and uses .venv/ by itself; nothing else is needed but Python >= 3.11
# and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODEL ?= small

.PHONY: help setup weights demo test test-clients bench style types clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "headstart needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 ...")'
	@{ command -v $${CC:-cc} || command -v gcc || command -v clang; } >/dev/null || \
		{ echo "headstart needs a C compiler (Debian and Ubuntu: apt install gcc)" >&2; exit 1; }
	@echo "headstart: making $(VENV) (about 2.5 GB to download, 6.5 GB on disk, once; PyTorch is most of it)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --progress-bar on -e '.[test,voice]'
	$(BIN)/python -m headstart.kernels.build
	@$(BIN)/python -m headstart.web_assets || echo "headstart: set-up goes on without it"
	@touch $@

setup: $(STAMP) ## make .venv/ with everything in it

weights: setup ## fetch and verify the weights of MODEL (small)
	$(BIN)/headstart models fetch $(MODEL)
	$(BIN)/headstart models fetch joe || echo "headstart: without that voice answers sound plainer"

demo: weights ## listen to a spoken question about a picture, answer it, leave the web page running
	$(BIN)/headstart demo --model $(MODEL)

test: setup ## the whole test suite: style, types, tests
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/headstart models fetch tiny
	$(BIN)/headstart models fetch joe
	$(BIN)/python -m headstart.web_assets
	$(BIN)/python -m tests.web_demo.chromium
	$(BIN)/python -m pytest

test-clients: setup ## stock clients of other people, each in an environment of its own, against real servers
	$(BIN)/headstart models fetch tiny
	$(BIN)/python -m tests.clients.run

bench: weights ## all benchmarks, each ending in one JSON line
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	$(BIN)/headstart bench all --json

style: setup ## lint
	$(BIN)/ruff check .

types: setup ## type-check
	$(BIN)/mypy

clean: ## remove what was made here (weights stay in the user's cache)
	rm -rf $(VENV) .venv-clients build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
