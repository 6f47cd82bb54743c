# headstart: every target makes and uses .venv/ by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test bench style types clean help

help:
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(STAMP): pyproject.toml
	@echo "headstart: making $(VENV) (torch and friends: about 2.5 GB to download, once)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "headstart needs Python 3.11 or newer, found " + sys.version.split()[0])'
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --progress-bar on --upgrade pip
	$(BIN)/python -m pip install --progress-bar on -e '.[test]'
	@touch $@

setup: $(STAMP) ## make .venv/ with everything in it

