# What a fresh machine needs is Python 3.11 to 3.14 and make. The first target run makes .venv; the later ones reuse it.
# Another interpreter: make test PYTHON=/opt/python3.12/bin/python3
# PyTorch for the CPU alone, without gigabytes of CUDA: make test PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"

SUPPORTED := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c '$(SUPPORTED)' >/dev/null 2>&1 && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# `make demo WITH=torch` has a stamp of its own: it installs more.
DEMO_STAMP := $(VENV)/.installed-demo$(WITH:%=-%)
# Test processes: more than cores, because most of the time goes into waiting for brokers and workers.
WORKERS ?= 3
# One thread a process: those of PyTorch would spin against those of the other processes.
# Compiled modules are kept, whatever the environment says: the tests start a hundred processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# Files begin in the order of tests/conftest.py, the longest first. Without it those with the most tests would.
IN_PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What takes any broker; `--kafka` gives it Apache Kafka.
ON_KAFKA := tests/contract tests/fleetlore/kafka tests/sinks tests/streams
COMMA := ,
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Two distributions from one tree: the agents' package and the pipeline.
PROJECTS := pyproject.toml deploy/server/pyproject.toml deploy/encoder/pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-long test-slow security cluster cluster-short chaos chaos-short fuzz lint format types check wheels release verify-release bench docs site lock sbom licenses audit newest upgrade clean

help:  ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

install: $(STAMP)  ## Make .venv with everything that the checks need

$(BIN)/python:
	@$(PYTHON) -c '$(SUPPORTED)' 2>/dev/null || { \
		echo "fleetlore needs Python 3.11, 3.12, 3.13 or 3.14 with venv (Debian: python3-venv); name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip

# Not before one of the files changed again: a second run starts at once.
$(STAMP): $(BIN)/python $(PROJECTS)
	@echo "Installing what the checks need into $(VENV): some minutes, once"
	$(PIP) install $(PIP_FLAGS) --constraint constraints.txt --editable deploy/encoder --editable '.[dev,docs,s3]' --editable 'deploy/server[embedded,console,llm,policy]'
	@touch $@ $(VENV)/.installed-demo $(VENV)/.installed-demo-torch

# The demo needs the pipeline, a broker and a vector store, and none of the tools of the checks. Modules are compiled when
# they are first imported: most of what comes never is.
$(DEMO_STAMP): $(BIN)/python $(PROJECTS)
	@echo "Installing what the demo needs into $(VENV), once"
	$(PIP) install $(PIP_FLAGS) --no-compile --constraint constraints.txt --editable . --editable 'deploy/server[embedded$(if $(WITH),$(COMMA)policy)]'
	@touch $@

demo: $(DEMO_STAMP)  ## Run the whole loop with a fleet of agents on this machine (WITH=torch, ARGS=--console)
	$(BIN)/python -m benchmarks.demo $(ARGS)

test: $(STAMP)  ## Run the tests, in some two and a half minutes on two cores (ARGS="tests/sinks -x" for some of them)
	$(PYTEST) $(IN_PARALLEL) -m 'not slow and not chaos and not cluster and not long' $(ARGS)

test-all: $(STAMP)  ## Run all tests but those of `make test-slow`, `make cluster` and `make chaos`, in some fifteen minutes
	$(PYTEST) $(IN_PARALLEL) $(ARGS)

test-long: $(STAMP)  ## Run those of `make test-all` that `make test` leaves out
	$(PYTEST) $(IN_PARALLEL) -m 'long and not slow and not chaos and not cluster' $(ARGS)

test-slow: $(STAMP)  ## Run the tests that take longer than 20 seconds
	$(PYTEST) -m 'slow and not cluster' $(ARGS)

cluster-short: $(STAMP)  ## On Apache Kafka with one broker and with three: what takes some five minutes
	$(PYTEST) -m 'cluster and not slow' tests/cluster $(ARGS)
	$(PYTEST) --kafka tests/contract $(ARGS)

cluster: $(STAMP)  ## All tests on Apache Kafka, and those of any broker once more there
	$(PYTEST) -m cluster tests/cluster $(ARGS)
	$(PYTEST) --kafka $(ON_KAFKA) $(ARGS)

security: $(STAMP)  ## Attack what reads the text of others: time, secrets, identities, fences, endpoints
	$(PYTEST) tests/security $(ARGS)

fuzz: $(STAMP)  ## Give odd bytes to all that reads bytes of others, in ten minutes on two cores (FUZZ_SEED=n for the same again)
	$(BIN)/python -m tests.fuzz.run $(ARGS)

chaos-short: $(STAMP)  ## A little of each way to die, in five minutes (CHAOS_SEED=n for another run)
	CHAOS_FORM=short $(BIN)/python -m pytest -m chaos tests/chaos $(ARGS)

chaos: $(STAMP)  ## More than 100 kills and all other ways to die, in forty minutes; writes docs/results/chaos.md
	CHAOS_FORM=long CHAOS_PAGE=docs/results/chaos.md $(BIN)/python -m pytest -m chaos tests/chaos $(ARGS)
	LINK_TIMEOUT_SECONDS=20 CHAOS_PAGE=docs/results/chaos.md $(PYTEST) -m cluster tests/cluster/test_stalled_link.py $(ARGS)

lint: $(STAMP)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)  ## ruff: mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## mypy --strict on the four packages and the benchmarks
	$(BIN)/mypy

check: lint types test  ## lint, types and test

wheels: $(STAMP)  ## Build both distributions, and try each in an empty environment
	$(BIN)/python deploy/check_wheels.py

bench: $(STAMP)  ## Measure every row of docs/results/performance.md against its peers (ARGS=ingest for one)
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMP)  ## Write the pages and tables that are made from the code, and the dashboard
	$(BIN)/python deploy/dashboard.py
	$(BIN)/python deploy/kubernetes.py
	$(BIN)/python deploy/reference.py
	$(BIN)/python -m benchmarks.page

site: $(STAMP)  ## Build the documentation's site in build/site; a dead link or a warning fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

release: $(STAMP)  ## Build what a release consists of into dist/: wheels, image context, chart, client, checksums, signed (KEY=release.pem where no OIDC identity is)
	$(BIN)/python deploy/release.py $(KEY:%=--key %)

verify-release: $(STAMP)  ## Check checksums, signature, provenance and SBOM of dist/ (FINGERPRINT=… of the key, or IDENTITY=… ISSUER=…)
	PYTHONPATH=. $(BIN)/python deploy/verify_release.py $(ARGS) $(FINGERPRINT:%=--fingerprint %) \
		$(IDENTITY:%=--identity %) $(ISSUER:%=--issuer %)

lock: $(STAMP)  ## Write deploy/requirements*.txt: what the images install, each file by its hash
	$(BIN)/python deploy/lock.py

sbom: $(STAMP)  ## Write build/sbom.json: what the image installs beside PyTorch, as CycloneDX has it
	mkdir -p build
	$(BIN)/cyclonedx-py requirements deploy/requirements.txt --pyproject deploy/server/pyproject.toml \
		--output-reproducible --output-file build/sbom.json

licenses: $(STAMP)  ## Write THIRD_PARTY.md: the licenses of what the images install
	$(BIN)/python deploy/third_party.py

audit: $(STAMP)  ## Ask PyPI for known vulnerabilities of what the image installs
	$(BIN)/python -m pip_audit --disable-pip --require-hashes --strict --requirement deploy/requirements.txt

newest: $(STAMP)  ## Test the doors with the oldest and the newest packages that are allowed; writes docs/results/newest.md
	$(BIN)/python deploy/newest.py $(ARGS)

upgrade:  ## Take the newest versions that pyproject.toml allows into constraints.txt
	$(PYTHON) deploy/upgrade.py

clean:  ## Remove .venv and what was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
