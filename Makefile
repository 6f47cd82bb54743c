# headstart: every target makes and uses .venv/ by itself; nothing else is needed but Python 3.11 to
# 3.14 and a C compiler (headstart/setup_check.py).
PYTHON ?= python3
# A path, which may have spaces, or a command with flags: `python3 -B`.
RUN_PYTHON = $(shell command -v "$(PYTHON)" >/dev/null 2>&1 && echo '"$(PYTHON)"' || echo '$(PYTHON)')
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := constraints.txt
MODEL ?= small
# PyTorch's build: auto (for CPUs alone where there is no NVIDIA GPU), cpu, or cuda (PyPI's).
TORCH ?= auto
# Another index with PyTorch's builds for CPUs.
TORCH_INDEX ?=
TORCH_HERE = $(if $(wildcard $(VENV)/lib/python3*/site-packages/torch-*+cpu.dist-info),cpu,cuda)
# `make lock UPGRADE=` keeps every version that the ranges still allow.
UPGRADE ?= --upgrade

# pip unpacks gigabytes in TMPDIR, and /tmp may be a small part of memory.
# setuptools' remark about editable installations takes ten lines, which look like an error.
PIP_INSTALL := TMPDIR="$${TMPDIR:-$(CURDIR)/$(VENV)/tmp}" PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install -c $(LOCK)
STOPPED := { echo "headstart: set-up stopped; pip says why above. If it could not connect, there is no network, or a proxy that it does not know (HTTPS_PROXY, PIP_INDEX_URL). Then run the same command again" >&2; exit 1; }
# PyTorch's CUDA build brings Triton; the GPU kernels' types and tests need it.
WITH_TRITON := set -- $(VENV)/lib/python3*/site-packages/torch-*+cpu.dist-info; test ! -e "$$1" || $(PIP_INSTALL) --quiet triton || $(STOPPED)

.DEFAULT_GOAL := help
.PHONY: help setup hooks weights demo serve test coverage test-firefox test-clients test-backends test-arm bench lock style types tree screenshots clean

help: ## show this list
	@echo "headstart: make TARGET [MODEL=small|tiny|medium] [PYTHON=python3.12] [TORCH=auto|cpu|cuda]"; echo
	@awk -F ':.*## ' '/^## /{print "\n" substr($$0, 4)} /^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' \
		$(MAKEFILE_LIST)

# Another build of PyTorch than the one that is there was asked for.
ifeq ($(filter auto $(TORCH_HERE),$(TORCH)),)
.PHONY: change-torch
$(STAMP): change-torch
endif

$(STAMP): pyproject.toml $(LOCK)
	@command -v "$(PYTHON)" >/dev/null || command -v "$(firstword $(PYTHON))" >/dev/null || { echo "headstart needs Python 3.11 to 3.14, and there is no $(PYTHON) (Debian and Ubuntu: apt install python3 python3-venv gcc libc6-dev)" >&2; exit 1; }
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then set -- $(BIN)/python; else set -- $(RUN_PYTHON); fi; "$$@" -I headstart/setup_check.py $(VENV) $(TORCH)
	@rm -rf $(VENV)/tmp $@
	@echo "headstart: making $(VENV)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(RUN_PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
	@mkdir $(VENV)/tmp
	@$(PIP_INSTALL) --quiet --upgrade pip || $(STOPPED)
	@$(BIN)/python -m headstart.setup_torch $(TORCH) --index "$(TORCH_INDEX)" || { echo "headstart: set-up stopped; why is said above" >&2; exit 1; }
	@$(PIP_INSTALL) --progress-bar on --build-constraint $(LOCK) -e '.[test,voice,otel]' || $(STOPPED)
	@rm -rf $(VENV)/tmp
	$(BIN)/python -m headstart.kernels.build
	@$(BIN)/python -m compileall -q headstart gateway engine kernels || echo "headstart: set-up goes on; Python compiles these itself, at each start"
	@$(BIN)/python -m headstart.web_assets || echo "headstart: set-up goes on without it"
	@touch $@

## Use it
setup: $(STAMP) ## make .venv/ with everything in it (demo, serve and test do so too)
	@$(BIN)/python -m headstart.setup_torch remark

weights: setup ## fetch and verify the weights of MODEL (small)
	$(BIN)/headstart models fetch $(MODEL)
	@$(BIN)/headstart models fetch joe || echo "headstart: without that voice answers sound plainer"

demo: weights ## answer two spoken questions, then leave the server and its page running
	$(BIN)/headstart demo --model $(MODEL)

serve: weights ## run the server until Ctrl-C
	$(BIN)/headstart serve --model $(MODEL)

## Change it
hooks: setup ## install the git hooks of .pre-commit-config.yaml
	@$(WITH_TRITON)
	$(BIN)/pre-commit install

lock: setup ## renew constraints.txt: the newest versions that pyproject.toml allows (then: make test)
	$(BIN)/uv pip compile --quiet --universal --all-extras --fork-strategy fewest --no-annotate \
		$(UPGRADE) --custom-compile-command 'make lock' --output-file $(LOCK) pyproject.toml

style: setup ## lint, and check the format (`ruff format .` mends that)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## type-check
	@$(WITH_TRITON)
	$(BIN)/mypy

tree: setup ## write docs/tree.md anew
	$(BIN)/python -m tests.source_tree

screenshots: weights ## take pictures of every page and state (build/screenshots/), and the README's
	$(BIN)/python -m headstart.web_assets
	$(BIN)/python -m tests.web_demo.screenshots build/screenshots/talk
	$(BIN)/python -m tests.web_demo.dashboard.screenshots build/screenshots/dashboard
	$(BIN)/python -m tests.web_demo.readme_picture docs/page.png docs/dashboard.png

test: setup ## run the whole suite: style, types, tests
	@$(WITH_TRITON)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/headstart models fetch tiny
	$(BIN)/headstart models fetch joe
	$(BIN)/python -m headstart.web_assets
	$(BIN)/python -m tests.web_demo.chromium
	$(BIN)/python -m tests.debian_tools
	$(BIN)/python -m pytest -n auto

coverage: setup ## run the tests and report the lines and branches that they reach (twice as long)
	@$(WITH_TRITON)
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -n auto
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --directory build/coverage/html --fail-under 0
	$(BIN)/coverage report

test-firefox: setup ## run the pages' tests in Firefox (Debian's firefox-esr)
	$(BIN)/headstart models fetch tiny
	$(BIN)/headstart models fetch joe
	$(BIN)/python -m headstart.web_assets
	$(BIN)/python -m tests.web_demo.debian firefox
	$(BIN)/python -m tests.web_demo.debian pulseaudio
	HEADSTART_TEST_BROWSER=firefox $(BIN)/python -m pytest -rs tests/web_demo

test-clients: setup ## run the stock clients of docs/clients.md against real servers
	$(BIN)/headstart models fetch tiny
	$(BIN)/python -m tests.clients.run

test-backends: setup ## run headstart in front of real LLM servers: llama.cpp's and vLLM on the CPU
	$(BIN)/headstart models fetch tiny
	$(BIN)/python -m tests.backends.run

test-arm: setup ## cross-compile the C code for 64-bit Arm and run its tests under qemu (Debian)
	$(BIN)/python -m tests.kernels.arm.run

bench: weights ## run all benchmarks, each ending in one JSON line
	$(BIN)/python -m pip install --quiet -c $(LOCK) --build-constraint $(LOCK) -e '.[bench]'
	$(BIN)/headstart bench all --json

clean: ## remove what was made here; weights stay in the user's cache
	rm -rf $(VENV) .venv-clients build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
