# `make demo` and `make test` are all that a newcomer needs. Each target sets up its own requirements.
SHELL := /bin/bash
PYTHON ?= $(shell tools/find-python)
VENV := .venv
BIN := $(VENV)/bin
#: Tests of services and browsers wait for half of their time, so there is one more worker than there are cores; four at most.
WORKERS := $(shell cores=$$(nproc 2>/dev/null || echo 1); echo $$((cores < 3 ? cores + 1 : 4)))
#: Tests start hundreds of processes, which import the same modules: bytecode is kept, whatever the environment says of it.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "not slow and not engines" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-for test-slow test-engines test-opensearch check format docs report bench bench-service pins clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.demo: requirements/demo.txt pyproject.toml clients/python/pyproject.toml tools/setup
	tools/setup "$(PYTHON)" $(VENV) requirements/demo.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml clients/python/pyproject.toml tools/setup
	tools/setup "$(PYTHON)" $(VENV) requirements/dev.txt
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: requirements/docs.txt pyproject.toml tools/setup
	tools/setup "$(PYTHON)" $(VENV) requirements/docs.txt
	@touch $@

demo: $(VENV)/.demo  ## set up and run the live demo with its page
	$(BIN)/swerve demo

test: $(VENV)/.dev  ## set up and run the default tests
	tools/system-packages gcc chromium
	$(PYTEST)

#: The essentials: verbs and kernels against plain Python, a bandit and BWC against their twins, the store, the docs.
QUICK := tests/core tests/bandits/test_ucb1.py tests/policies/test_bwc.py tests/store tests/test_docs.py

test-quick: $(VENV)/.dev  ## run the essential tests, in under a minute with compiled code
	$(PYTEST) -q $(QUICK)

test-for: $(VENV)/.dev  ## run the tests for one file: make test-for FILE=src/swerve/core/engine.py
	@files=$$($(BIN)/python tools/tests_for.py "$(FILE)") && $(BIN)/python -m pytest -m "not slow and not engines" -q $$files

test-slow: $(VENV)/.dev  ## run the longer tests
	tools/system-packages gcc chromium prometheus
	$(BIN)/python -m pytest -m "slow and not engines"

test-engines: $(VENV)/.dev  ## prove the store's network engines against real servers
	tools/system-packages gcc postgresql redis-server
	$(BIN)/python -m pytest -m engines tests/store tests/service tests/faults

test-opensearch: $(VENV)/.dev  ## prove the proxy against a real OpenSearch (tools/opensearch says which)
	tools/opensearch $(BIN)/python -m pytest -m opensearch -q tests/opensearch

check: $(VENV)/.dev  ## check format, lint, types, import rules and docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docs.py

format: $(VENV)/.dev  ## format the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs  ## build the docs site, strictly: site/index.html
	$(BIN)/python tools/build_docs.py

report: $(VENV)/.docs  ## build the technical report: build/report/swerve-report.html, and a PDF where Chromium is installed
	$(BIN)/python tools/build_report.py

bench: $(VENV)/.dev  ## measure the speed and memory of the kernels
	tools/system-packages gcc
	$(BIN)/swerve bench kernels

bench-service: $(VENV)/.dev  ## measure the speed, memory and disk of the HTTP service
	$(BIN)/swerve bench service

pins: $(VENV)/.dev  ## resolve the pinned requirements again
	tools/pin

clean:  ## remove everything that the targets created
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
