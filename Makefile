# What a fresh machine needs is Python 3.11 to 3.13 and make. The first target run makes .venv; the later ones reuse it.
# Another interpreter: make test PYTHON=/opt/python3.12/bin/python3
# More for pip, as the index that has PyTorch for the CPU alone: make test PIP_FLAGS="--index-url … --extra-index-url …"

SUPPORTED := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(SUPPORTED)' >/dev/null 2>&1 && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := fleetlore models sinks streams

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow chaos chaos-short lint format types check bench docs upgrade clean

help:  ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

install: $(STAMP)  ## Make .venv with everything in it

# Not before pyproject.toml or constraints.txt changed again: a second run starts at once.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c '$(SUPPORTED)' 2>/dev/null || { \
		echo "fleetlore needs Python 3.11, 3.12 or 3.13 with venv (Debian: python3-venv); name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@echo "Installing what pyproject.toml names into $(VENV): some minutes, once"
	$(BIN)/python -m pip install $(PIP_FLAGS) --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --no-deps bfcl-eval==2026.3.23  # its tools and tasks need none of its 40 requirements
	@touch $@

demo: $(STAMP)  ## Run the whole loop with a fleet of agents on this machine
	$(BIN)/fleetlore demo $(ARGS)

test: $(STAMP)  ## Run the tests (ARGS="tests/sinks -x" for some of them)
	$(BIN)/python -m pytest $(ARGS)

test-slow: $(STAMP)  ## Run the tests that take longer than 20 seconds
	$(BIN)/python -m pytest -m slow $(ARGS)

chaos-short: $(STAMP)  ## A little of each way to die, in three minutes (CHAOS_SEED=n for another run)
	CHAOS_FORM=short $(BIN)/python -m pytest -m chaos tests/chaos $(ARGS)

chaos: $(STAMP)  ## More than 100 kills and all other ways to die, in half an hour; writes docs/chaos.md
	CHAOS_FORM=long CHAOS_PAGE=docs/chaos.md $(BIN)/python -m pytest -m chaos tests/chaos $(ARGS)

lint: $(STAMP)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)  ## ruff: mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## mypy --strict on the four packages
	$(BIN)/mypy --strict $(PACKAGES:%=-p %)

check: lint types test  ## lint, types and test

bench: $(STAMP)  ## Measure every row of docs/performance.md against its peers (ARGS="ingest --json" for one)
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMP)  ## Write again what is made from the code: dashboard, docs/metrics.md, tables
	$(BIN)/python deploy/dashboard.py
	$(BIN)/python docs/tables.py
	$(BIN)/python -m benchmarks.page

upgrade:  ## Take the newest versions that pyproject.toml allows into constraints.txt
	$(PYTHON) deploy/upgrade.py

clean:  ## Remove .venv and what was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
