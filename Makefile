# Everything a newcomer needs: `make demo` and `make test`. Each target sets up what it needs by itself.
SHELL := /bin/bash
PYTHON ?= $(shell tools/find-python)
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-for test-slow check format bench bench-service pins clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.demo: requirements/demo.txt pyproject.toml tools/setup
	tools/setup "$(PYTHON)" $(VENV) requirements/demo.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml tools/setup
	tools/setup "$(PYTHON)" $(VENV) requirements/dev.txt
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## set up and run the live demo with its page
	$(BIN)/swerve demo

test: $(VENV)/.dev  ## set up and run the default tests
	tools/system-packages gcc chromium
	$(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 4 --dist loadfile

#: The essentials: verbs and kernels against plain Python, decisions and feedback, the store, the service over HTTP.
QUICK := tests/core tests/bandits/test_ucb1.py tests/policies/test_bwc.py tests/store tests/test_docs.py

test-quick: $(VENV)/.dev  ## the essentials, in under a minute with compiled code
	$(BIN)/python -m pytest -m "not slow" -q -n auto --maxprocesses 4 --dist loadfile $(QUICK)

test-for: $(VENV)/.dev  ## the tests that hold one file: make test-for FILE=src/swerve/core/engine.py
	$(BIN)/python -m pytest -m "not slow" -q $$($(BIN)/python tools/tests_for.py "$(FILE)")

test-slow: $(VENV)/.dev  ## the longer proofs
	tools/system-packages gcc chromium
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.dev  ## format, lint, types, import rules, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docs.py

format: $(VENV)/.dev  ## put the sources into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## the speed and memory of the kernels
	tools/system-packages gcc
	$(BIN)/swerve bench kernels

bench-service: $(VENV)/.dev  ## the speed, memory and disk of the HTTP service
	$(BIN)/swerve bench service

pins: $(VENV)/.dev  ## resolve the pinned requirements anew
	tools/pin

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
