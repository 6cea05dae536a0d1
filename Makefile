# `make demo` runs the product, `make test` its tests; each installs what it needs into .venv.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p && break; done)
BIN := .venv/bin
ENGINE ?= stub

.PHONY: help demo test test-cluster check format bench-coldstart bench-gateway bench-reconcile clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

INSTALL := pyproject.toml requirements.lock requirements-install.lock scripts/install scripts/install.py scripts/pip_settings.py

.venv/installed: $(INSTALL)
	@PYTHON="$(PYTHON)" scripts/install

.venv/installed-dev: requirements-dev.lock $(INSTALL)
	@PYTHON="$(PYTHON)" scripts/install --dev

demo: .venv/installed ## serve sleeping models on this machine (ENGINE=llama: a real LLM)
	@ENGINE=$(ENGINE) scripts/demo

test: .venv/installed-dev ## the whole gate: format, lint, types, arrows, generated files, tests
	@scripts/check

test-cluster: .venv/installed-dev ## Hearth's whole life in the cluster that KUBECONFIG names
	@HEARTH_TEST_CLUSTER=1 $(BIN)/python -m pytest -q tests/kubernetes $(ARGS)

check: test

format: .venv/installed-dev ## format all Python, and mend what the linter can
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

bench-coldstart: .venv/installed ## from the request to the first token, default probes
	@$(BIN)/python -m bench.coldstart

bench-gateway: .venv/installed ## the data path beside direct, nginx and Go (ARGS=--quick: a minute)
	@$(BIN)/python -m bench.gateway $(ARGS)

bench-reconcile: .venv/installed-dev ## a thousand services at once (ARGS=--cluster: in that of KUBECONFIG)
	@$(BIN)/python -m bench.reconcile $(ARGS)

clean: ## remove what was installed and generated
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage bench/out
