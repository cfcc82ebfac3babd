# `make` prints what there is. Every target sets up what is missing; PYTHON=python3.12 chooses the interpreter.
.DEFAULT_GOAL := help
export PYTHON
# Many images of containers set it. Every process would compile all that it imports, which takes longer than its work.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin

.PHONY: image images-standin test-containers test-as_root
test-as_root: setup ## Jobs under accounts of their own, full disks: needs root, useradd and mount
	@$(call timed,$@,$(BIN)/pytest tests/as_root)

.PHONY: test-host
test-host: setup ## Hosts with a systemd and a cgroup v2 of their own, emulated: needs root, and a quarter of an hour
	@$(call timed,$@,$(BIN)/pytest tests/host)

.PHONY: test-browser
test-browser: setup ## The console in a real browser, and the API from Node.js: needs Chromium and Node.js
	@.ci/setup-browser
	@$(call timed,$@,$(BIN)/pytest tests/browser)

.PHONY: help setup check lint types layers fmt lock test test-unit test-properties test-contract test-integration \
	test-security test-acceptance \
	demo up sim soak bench docs docs-capture docs-reference clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv with all that running and testing need
	@.ci/setup

demo: setup ## Three pools, three agents, sixty real jobs, one table
	$(BIN)/headrace demo

up: setup ## Run everything on this machine until Ctrl-C
	$(BIN)/headrace up

check: lint types layers ## Lint, format, types and layers

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin shared services/headrace_cli

layers: setup
	$(BIN)/lint-imports --no-logo

fmt: setup ## Format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: test-long test-all
# Tests that compute share the cores; those that wait for processes and servers may be more than the cores.
COMPUTING := -n 2 --dist worksteal
WAITING := -n 4 --dist worksteal
# Runs a command, says how long it took, and ends as it did.
timed = began=$$(date +%s); code=0; $(2) || code=1; echo "make $(1) took $$(( $$(date +%s) - began )) s"; exit $$code

test: setup ## The quick tests of every part: no Docker, no root, no skips
	@$(call timed,$@,$(BIN)/pytest $(WAITING) tests)

test-long: setup ## More random cases of all, and the slow tests
	@export TEST_EFFORT=long; $(call timed,$@,$(BIN)/pytest $(WAITING) --timeout=900 tests)

test-all: setup ## As test-long, with ten times as many random cases
	@export TEST_EFFORT=all; $(call timed,$@,$(BIN)/pytest $(COMPUTING) --timeout=3600 tests)

test-unit: setup ## Engines and other pure code
	$(BIN)/pytest $(COMPUTING) tests/unit

test-properties: setup ## What must hold for any input
	$(BIN)/pytest $(COMPUTING) tests/properties

test-contract: setup ## The bus against a real NATS server
	$(BIN)/pytest $(WAITING) tests/contract

test-integration: setup ## Services on a real NATS server
	$(BIN)/pytest $(WAITING) tests/integration

test-security: setup ## Attacks on a secured cluster, by every kind of credential
	$(BIN)/pytest $(WAITING) tests/security

test-acceptance: setup ## Real processes, kills, the command line
	$(BIN)/pytest $(WAITING) tests/acceptance

test-containers: setup ## The compose stack: needs Docker
	@$(call timed,$@,$(BIN)/pytest tests/containers)

.PHONY: test-recipes
test-recipes: setup ## Recipes with Airflow itself, which is installed into build/, and CPython's tests of executors
	@$(call timed,$@,$(BIN)/pytest --timeout=900 tests/recipes)

image: ## Build the image that compose/compose.yaml runs, from HEADRACE_BASE=image as HEADRACE_IMAGE=name
	docker build --quiet --file compose/Dockerfile $(if $(HEADRACE_BASE),--build-arg BASE=$(HEADRACE_BASE)) \
		--build-arg REVISION=$(shell git rev-parse --short HEAD) --tag $(or $(HEADRACE_IMAGE),headrace:0.1.0) .

images-standin: ## Build the images where no registry of images is reachable
	@compose/images-standin

soak: setup ## Kill real processes at named places, ROUNDS=n of them (200), from FIRST=f on (0)
	$(BIN)/python -m tests.soak --rounds $(or $(ROUNDS),200) --first $(or $(FIRST),0)

.PHONY: soak-api
soak-api: setup ## Random requests to the HTTP API for MINUTES=n (20), with SEED=s (1)
	$(BIN)/python -m tests.soak.api --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1)

sim: setup ## Worlds that break in every way, SEEDS=n of them (200), from FIRST=f on (1)
	$(BIN)/python -m tests.simulation --processes 0 --seeds $(or $(SEEDS),200) --first $(or $(FIRST),1)

bench: setup ## Measure; ONLY=name for one, BENCH_JSON=file for figures, BUSY=1 beside processes that spin
	$(BIN)/python -m tests.bench

.PHONY: bench-peers
bench-peers: setup ## HyperQueue, Dask and Ray beside Headrace, the same jobs in the same minutes, ROUNDS=n times each (3); BUSY=1 beside processes that spin
	@$(BIN)/python -m tests.bench.peers --rounds $(or $(ROUNDS),3)

.PHONY: bench-fleet
bench-fleet: setup ## All services under a fleet of nodes, NODES=n of them (10000), OPERATIONS=n (10000), SECONDS=s (60), SHARE_CORES=1 without a core for the allocator; BENCH_JSON=file
	@$(BIN)/python -m tests.bench.fleet --nodes $(or $(NODES),10000) --operations $(or $(OPERATIONS),10000) --seconds $(or $(SECONDS),60) $(if $(SHARE_CORES),--share-cores)

.PHONY: bench-long
bench-long: setup ## Admission after OPERATIONS=n finished operations (1000000), beside one that has just begun
	@$(BIN)/python -m tests.bench.long_life $(or $(OPERATIONS),1000000)

docs: setup ## Build the documentation site, with search and all pictures, into docs/build/site
	$(BIN)/python docs/pictures/build.py

docs-reference: setup ## Write the pages of docs/reference/ that come from tables, and the table that a Tab is answered from
	$(BIN)/python -m docs.generate.pools_page > docs/reference/pools.md
	$(BIN)/python -m docs.generate.fields_page > docs/reference/fields.md
	$(BIN)/python -m docs.generate.settings_page > docs/reference/settings.md
	$(BIN)/python -m docs.generate.subjects_page > docs/reference/subjects.md
	$(BIN)/python -m docs.generate.metrics_page > docs/reference/metrics.md
	$(BIN)/python -m docs.generate.openapi > services/headrace_web/api/openapi.json
	$(BIN)/python -m docs.generate.commands_table

docs-capture: setup ## Take the picture of the terminal in README.md again
	$(BIN)/python -m docs.generate.readme_capture

lock: ## Renew requirements.lock and requirements-browser.lock, then see that wheels exist
	uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate \
		--no-python-downloads --python-version 3.11 --all-extras --group dev --group build --output-file requirements.lock pyproject.toml >/dev/null
	uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate \
		--no-python-downloads --python-version 3.11 --group browser --output-file requirements-browser.lock >/dev/null
	.ci/check-lock

clean: ## Remove .venv, caches and build results
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist docs/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
