# Needs make and Python 3.11 or newer; everything else goes into .venv.
# Another interpreter: make test PYTHON=/path/to/python

PYTHON ?=
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install -q -c constraints.txt

export PIP_ROOT_USER_ACTION := ignore
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Numba's cache does not see a change in a function that a kernel calls, or in compile options,
# so every state of the kernels has a cache of its own.
KERNELS := $(shell cat src/coblock/kernels/*.py 2>/dev/null | cksum | tr ' ' '-')
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba/$(KERNELS)

.DEFAULT_GOAL := help
.NOTPARALLEL:  # one pip at a time in the environment
.DELETE_ON_ERROR:
.PHONY: help demo test fuzz boundscheck nojit lint format docs dist audit bench profile paper clean

help:  ## list the commands
	@sed -n 's/^\([a-z]*\):.*## /  make \1  \t/p' Makefile

demo: $(VENV)/core.stamp  ## find the blocks in the votes of a US Senate
	@$(VENV)/bin/coblock demo

test: lint  ## lint, then run every test
	$(RUN) -m pytest -n 2 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder

# Forged files have digests that fit. atheris has no wheels for some systems. RECORD=--record keeps
# the figures of docs/robustness.md, which fuzz/record.py writes.
INPUTS := 100000
FORGED := 10000
KILLS := 20
PAIRS := 10
GUIDED := 60
TARGETS := checkpoints descriptions models multi_checkpoints multi_models
fuzz: $(VENV)/dev.stamp  ## hostile tests: damaged and forged files, kills, pairs; INPUTS=n KILLS=n PAIRS=n
	$(RUN) fuzz/run.py --target readers --inputs $(INPUTS) $(RECORD)
	for target in $(TARGETS); do \
	    $(RUN) fuzz/run.py --target $$target --inputs $(FORGED) $(RECORD) || exit 1; \
	done
	$(RUN) fuzz/processes.py --kills $(KILLS) --pairs $(PAIRS) $(RECORD)
	$(RUN) fuzz/cluster.py $(RECORD)
	$(RUN) fuzz/empty_objects.py $(RECORD)
	@$(PIP) atheris || echo "atheris does not install here."
	for target in readers $(TARGETS); do \
	    $(RUN) fuzz/guided.py --target $$target -max_total_time=$(GUIDED) || exit 1; \
	done

KERNEL_TESTS := $(addprefix tests/test_,kernels.py moves.py score.py special.py state.py engine.py degrees.py \
    multi.py posterior.py grouping.py)
boundscheck: $(VENV)/dev.stamp  ## tests of the kernels with every index checked
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(NUMBA_CACHE_DIR)-boundscheck \
	    $(RUN) -m pytest -n 2 --max-worker-restart 0 --dist loadfile $(KERNEL_TESTS)

NOJIT_TESTS := $(addprefix tests/test_,kernels.py score.py special.py hyperparameters.py)
nojit: $(VENV)/dev.stamp  ## tests of the kernels without compilation, with their coverage
	NUMBA_DISABLE_JIT=1 $(RUN) -m pytest -m "not slow" --cov=coblock.kernels $(NOJIT_TESTS)

lint: $(VENV)/dev.stamp  ## style, types and layers
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/dev.stamp  ## put the code in shape
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

docs: $(VENV)/dev.stamp  ## the documentation as web pages, in docs/_build/html
	@$(RUN) -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "Documentation: $(CURDIR)/docs/_build/html/index.html"

INSTALLED := .cache/installed
dist: $(VENV)/release.stamp  ## build wheel and sdist, check them, and run the installed wheel
	rm -rf dist $(INSTALLED)
	$(RUN) -m build --no-isolation
	$(RUN) -m twine check --strict dist/*
	$(RUN) -m venv $(INSTALLED)
	$(INSTALLED)/bin/python -m pip install -q -c constraints.txt dist/*.whl
	$(INSTALLED)/bin/coblock demo --out $(INSTALLED)/demo

audit: $(VENV)/made.stamp  ## known vulnerabilities of the pinned packages; needs a network
	@$(PIP) pip-audit
	$(VENV)/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

# Finished measurements are not repeated; BENCH="--only 'fit ml1m'" chooses, BENCH=--help says more.
# graph-tool comes from Debian's package python3-graph-tool.
DATA ?= ../shared/data
bench: $(VENV)/peers.stamp  ## speed beside other programs: make bench DATA=folder
	@DATA="$(DATA)" PYTHONPATH=benchmarks $(RUN) -m speed $(BENCH)

profile: $(VENV)/core.stamp  ## where the time of a default fit goes: make profile DATA=folder
	@DATA="$(DATA)" PYTHONPATH=benchmarks $(RUN) -m speed.profile $(PROFILE)

# A few runs within BUDGET minutes; RUNS=5 is the full protocol. Finished runs are not repeated, and
# BUDGET=0 only writes the page from benchmarks/results/paper.jsonl.
paper: $(VENV)/core.stamp  ## the paper's experiments: make paper DATA=folder [RUNS=5]
	@DATA="$(DATA)" PYTHONPATH=benchmarks $(RUN) -m paper $(if $(RUNS),--runs $(RUNS)) \
	    $(if $(BUDGET),--budget $(BUDGET)) $(if $(LIMIT),--limit $(LIMIT)) $(PAPER)

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf build dist htmlcov .coverage .coverage.* coblock-demo docs/_build docs/reference/commands.md
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/made.stamp:
	@found=; novenv=; \
	for python in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3 python); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    found=1; \
	    if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then novenv=; break; fi; \
	    novenv=$${novenv:-$$python}; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "coblock needs Python 3.11 or newer, but found none$(if $(PYTHON), at $(PYTHON))." \
	         "Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	elif [ -n "$$novenv" ]; then \
	    package=$$("$$novenv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	    echo "$$novenv cannot make virtual environments: its venv module is missing." \
	         "On Debian or Ubuntu, install the package $$package." >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$python" --version)."; \
	"$$python" -m venv --clear $(VENV)
	@touch $@

$(VENV)/core.stamp: $(VENV)/made.stamp pyproject.toml constraints.txt
	@echo "Installing coblock."
	@$(PIP) -e .
	@touch $@

$(VENV)/release.stamp: $(VENV)/made.stamp pyproject.toml constraints.txt
	@echo "Installing the tools that build packages."
	@$(PIP) -e ".[release]"
	@touch $@

# The page of make bench says which program is missing.
$(VENV)/peers.stamp: $(VENV)/core.stamp
	@echo "Installing the programs to compare with."
	@for peer in leidenalg sparsebm; do $(PIP) $$peer || echo "$$peer does not install here."; done
	@touch $@

# The development environment holds the plain one.
$(VENV)/dev.stamp: $(VENV)/made.stamp pyproject.toml constraints.txt
	@echo "Installing coblock and the development tools."
	@$(PIP) -e ".[dev]"
	@touch $(VENV)/core.stamp $@
