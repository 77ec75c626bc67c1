# The two commands of a newcomer: `make demo` and `make test`. Both set everything up by themselves.
.PHONY: help setup demo test testall check nightly clients bench bench-check docs site release evaluation menus reproduction paper lint types format lock clean
.DEFAULT_GOAL := help

# Compiled files are kept: the tests start our command hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
UNUSED := /(tests|rllib|mypy|setuptools)/|/ray/(tune|train)/

# The first Python from 3.11 on that is found and can run; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1	/' | expand -t 20

setup: $(STAMP) ## create .venv with everything, from the lock

# pip would compile on one core, and the packages' own tests and large parts that nobody here imports, too.
$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python from 3.11 on was found; install one, or say make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is no Python from 3.11 on; say make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@"$(PYTHON)" -m venv --clear $(VENV) || { echo "$(PYTHON) could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) from requirements.lock, by uv if it is there: once, some minutes; nothing is printed meanwhile"
	@uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes --no-deps -r requirements.lock 2>/dev/null || { \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-deps -r requirements.lock && \
		{ $(BIN)/python -W ignore -m compileall -qq -j 0 -x '$(UNUSED)' $(VENV)/lib || true; }; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "$(VENV) is ready; . $(VENV)/bin/activate puts adacompute on your path"

demo: $(STAMP) ## a real model behind the gateway, a verdict, two models in money and a page, in a minute or two
	@$(BIN)/adacompute demo

# Two more processes than there are cores, because tests of servers wait; one thread in each. The same examples each
# time, so that nobody's change fails by chance (plain pytest looks for new ones). tests/tiers.py says which
# tests each of the three leaves out.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 6 --dist worksteal
test testall nightly: export OMP_NUM_THREADS := 1
test testall nightly: export OPENBLAS_NUM_THREADS := 1

test: $(STAMP) ## the tests that every change needs, in four minutes or so
	@echo "the tests that every change needs: about 4 minutes on 2 cores"
	@$(PYTEST) --hypothesis-seed=0 --tier quick

testall: $(STAMP) ## also Ray, browser, real model, demo, real clients, the paper's study: one test or more of each kind
	@echo "tests of every kind: about 15 minutes on 2 cores"
	@$(PYTEST) --hypothesis-seed=0 --tier check

check: $(STAMP) ## what a change must pass to land: lint and strict types beside tests of every kind
	@$(MAKE) --no-print-directory -j 3 lint types testall

nightly: $(STAMP) ## every test at full size: whole studies, long fuzzing, each real client, a soak; takes most of an hour
	@$(PYTEST)
	@$(BIN)/python -m benchmarks soak

clients: $(STAMP) ## real clients directly and through the gateway, in an environment of their own: docs/peers.md
	PYTHONPATH=tests/serve $(BIN)/python tests/compatibility/suite.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP) ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure the ratios of docs/reference/benchmarks.md, and write them there
	$(BIN)/python -m benchmarks

bench-check: export OMP_NUM_THREADS := 1
bench-check: export OPENBLAS_NUM_THREADS := 1
bench-check: $(STAMP) ## compare the key ratios with benchmarks/baseline.json, in minutes; BASELINE=write keeps new ones
	@$(BIN)/python -m benchmarks.check $(if $(filter write,$(BASELINE)),--write,$(BASELINE))

docs: $(STAMP) ## renew the parts of the docs that are made by running commands
	$(BIN)/python scripts/docs.py

site: $(STAMP) ## the docs as a static site with a search, in site/; opens without a server or a network
	@$(BIN)/python scripts/website.py

release: ## build the wheel and the sdist, check and try them in clean environments (minutes); uploads nothing
	@test -n "$(PYTHON)" || { echo "no Python from 3.11 on was found" >&2; exit 1; }
	@"$(PYTHON)" scripts/release.py

evaluation: $(STAMP) ## measure every policy on the recordings beside the checkout: docs/reference/evaluation.md
	$(BIN)/python scripts/evaluation.py

menus: $(STAMP) ## measure menus beside cascades and a router, similar problems held out: docs/reference/menus-held-out.md
	$(BIN)/python scripts/menu_table.py

reproduction: $(STAMP) ## the paper's experiment on the recordings at hand: studies/paper/reproduction.md
	$(BIN)/python -m studies.paper reproduce -o studies/paper/reproduction.md

POOL ?= words
OUT ?= adacompute-paper
paper: $(STAMP) ## every table and figure of the paper on a pool, as one page: make paper POOL=words OUT=folder
	$(BIN)/python -m studies.paper report $(POOL) -o $(OUT)

lock: ## resolve pyproject.toml anew into requirements.lock, and the image's part of it (needs uv)
	uv pip compile pyproject.toml --universal --python-version 3.11 --upgrade --all-extras --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet -o requirements.lock
	uv pip compile pyproject.toml --universal --python-version 3.11 --constraints requirements.lock --extra otel --extra redis --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet -o requirements-gateway.lock
	for group in site release; do \
		uv pip compile --group pyproject.toml:$$group --universal --python-version 3.11 --upgrade --generate-hashes \
			--no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet -o requirements-$$group.lock; \
	done

clean: ## remove what setup and the tests made
	rm -rf $(VENV) .clients .peers .site .release site .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
