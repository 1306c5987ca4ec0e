# marathond: every target does its own set-up, as root or not, without a terminal; `make` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.PHONY: help setup demo test fuzz lint check bench bench-check sim soak install uninstall clean

PY := .venv/bin/python
SETUP := $(PY) -m marathond.demo
PREFIX ?= /opt/marathond
# Programs are started by the hundred: none is to compile the package anew.
export PYTHONDONTWRITEBYTECODE :=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: .venv/.installed ## make .venv with the package and its tools (done by every other target)

.venv/.installed: pyproject.toml
	@marathond/demo/venv.sh .venv .cache/setup.log
	@touch $@

demo: setup ## run the sample campaign on real Docker
	@$(SETUP) with-engine -- $(PY) -m marathond.demo run

# Four test processes, each whole files, for most of them wait for engines; networks and ports are cut up in tests/support/worker.py.
# WORKERS=0: one process.  Their folder has a short name, for paths of sockets are bounded.
WORKERS ?= 4
test: setup ## run all tests, style and types included
	@$(PY) -m tests.support.harbor_env
	@base=$$(mktemp -d /tmp/mtXXXX); \
	$(SETUP) with-engine --optional --sweep -- $(PY) -m pytest --basetemp=$$base \
		$(if $(filter-out 0,$(WORKERS)),-n $(WORKERS) --dist loadfile --no-loadscope-reorder) $(ARGS); \
	status=$$?; rm -rf --one-file-system $$base; exit $$status

# Of each test; not the same ones as in `make test`, and what fails is kept in .hypothesis to fail again at once.
FUZZ_EXAMPLES ?= 2000
fuzz: setup ## spoil real input of every parser, FUZZ_EXAMPLES=2000 times a test
	@base=$$(mktemp -d /tmp/mtXXXX); \
	HYPOTHESIS_PROFILE=search FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(PY) -m pytest --basetemp=$$base --timeout=0 \
		$(if $(filter-out 0,$(WORKERS)),-n $(WORKERS) --dist loadfile --no-loadscope-reorder) tests/fuzz $(ARGS); \
	status=$$?; rm -rf --one-file-system $$base; exit $$status

lint: setup ## ruff: rules and format
	@$(PY) -m ruff check -q . && $(PY) -m ruff format -q --check .

check: lint ## lint, mypy --strict, import contracts
	@$(PY) -m mypy && .venv/bin/lint-imports

bench: setup ## every figure in one run, side by side with what it is compared with
	@$(SETUP) with-engine --sweep -- $(PY) -m tests.bench $(ARGS)

# Ratios of CPU time, bytes, and floors that take turns.  After a change on purpose, on a quiet machine: make bench-check ARGS=--update
bench-check: setup ## fail where a ratio is 20 % worse than the one checked in
	@$(SETUP) with-engine --sweep -- $(PY) -m tests.bench $(if $(findstring --update,$(ARGS)),,--check) $(ARGS)

# Whole campaigns in virtual time, each by its seed; `python -m tests.sim --seed N -v` prints what happened in one.
SEEDS ?= 1000
sim: setup ## simulate campaigns on failing engines, daemons killed at any call (SEEDS=1000, or SEEDS=5..9)
	@$(PY) -m tests.sim --seeds $(if $(findstring ..,$(SEEDS)),$(SEEDS),1..$(SEEDS)) --jobs $(if $(filter-out 0,$(WORKERS)),$(WORKERS),1) $(ARGS)

# Random kills of daemon and gateway for so many minutes, then of a dockerd of its own; a seed repeats the moments.
MINUTES ?= 30
soak: setup ## kill daemon, gateway and dockerd under a running campaign, then count (MINUTES=30 SEED=…)
	@$(SETUP) with-engine -- $(PY) -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

install: ## install into PREFIX (default /opt/marathond), with the systemd units and the commands in /usr/local/bin
	@[ -z "$(DESTDIR)" ] || { echo "make install: a virtual environment cannot be staged; for the unit alone: DESTDIR=… PROGRAM=… systemd/install.sh"; exit 2; }
	@python3 -m venv $(PREFIX) && $(PREFIX)/bin/pip install -q .
	@PROGRAM=$(PREFIX)/bin/marathond systemd/install.sh
	@ln -sf $(PREFIX)/bin/marathonctl $(PREFIX)/bin/marathond /usr/local/bin/

uninstall: ## remove units, commands and PREFIX; configuration, ledger and artifacts stay
	@PREFIX=$(PREFIX) systemd/uninstall.sh

clean: ## remove .venv, caches and the private engine's data
	@PYTHONPATH=. python3 -m marathond.demo clean
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
