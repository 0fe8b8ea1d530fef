# `make demo` shows it and `make test` checks it; both do all their own set-up in .venv. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
NOTEBOOK ?= examples/01_first_light.ipynb
HEADLESS ?=
HOUSE ?=
ONLY ?=
MATRIX ?=

run := $(VENV)/bin/python
sources := pyproject.toml constraints.txt tools/venv.sh
allow_root := $(if $(filter 0,$(shell id -u)),--allow-root)
# Jupyter's own settings and kernels of the person stay out of what we start.
jupyter := env JUPYTER_PREFER_ENV_PATH=1 $(run) -m

.PHONY: help demo test quick lint house format bench peers corpus sweep faults gpu matrix ecosystem dist screenshots outputs docs gallery coverage clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.has-lab ## open the first example in JupyterLab; with HEADLESS=1 run it and write a static page
ifeq ($(filter-out 0,$(HEADLESS)),)
	$(jupyter) jupyterlab $(allow_root) $(NOTEBOOK)
else
	$(jupyter) tensormagic demo --headless --notebook $(NOTEBOOK) demo
endif

test: $(VENV)/.has-test $(VENV)/.has-system ## everything a change has to pass: ruff, mypy, import contracts, all tests
	tools/check.sh $(run)

quick: $(VENV)/.has-test ## what needs no browser, kernel, ranks or corpus: minutes; ONLY=rng: what is about that, in seconds
	ONLY='$(ONLY)' tools/check.sh $(run) quick

lint: $(VENV)/.has-test ## ruff, mypy and import contracts alone
	tools/check.sh $(run) lint

house: $(VENV)/.has-test ## how large the package is, and how far a reader walks in it (HOUSE=--write: into CONTRIBUTING.md)
	$(run) tools/house.py $(HOUSE)

format: $(VENV)/.has-test ## let ruff mend what it can
	$(run) -m ruff check --fix .
	$(run) -m ruff format .

bench: $(VENV)/.has-test ## what tracing costs, as ratios inside one run
	$(run) -m pytest tests/benchmarks -o python_files='bench_*.py' -m benchmark -s --no-header

peers: $(VENV)/.has-test ## the other tools, installed beside this one and measured; writes docs/comparison.md
	$(run) -m tests.benchmarks.peers

ecosystem: $(VENV)/.has-test ## other people's training loops and launchers, installed beside and run under every follower; writes docs/libraries.md
	$(run) -m tests.ecosystem

corpus: $(VENV)/.has-test ## how right the findings are: precision and recall of every code, over real programs
	$(run) -m tests.corpus.score

sweep: $(VENV)/.has-test ## what is promised, held against all of torch's own test tables: minutes
	$(run) -m pytest tests/sweeps -o python_files='sweep_*.py' -m sweep -s --no-header

faults: $(VENV)/.has-test ## interrupts at every place where a run begins or ends, and thousands of damaged reports: minutes
	TENSORMAGIC_STRIDE=1 TENSORMAGIC_DAMAGED=5000 $(run) -m pytest tests/collectors/runs/test_interrupted.py \
	  tests/reports/test_damaged.py tests/collectors/test_odd_objects.py -v

gpu: $(VENV)/.has-test ## what only a GPU can show: 13 parts in one table, then the tests marked gpu; without one, what is skipped
	$(run) -m tests.gpu
	$(run) -m pytest -m gpu tests/collectors

matrix: $(VENV)/.has-test ## every magic and the quick tests on every combination of versions that is promised: an hour (MATRIX=--smoke: magics alone; --cuda: builds of torch for CUDA, too)
	$(run) -m tools.matrix $(MATRIX)

dist: $(VENV)/.has-release ## the sdist and the wheel in dist/, checked as for an upload
	rm -rf dist
	$(run) -m build
	$(run) -m twine check --strict dist/*

screenshots: $(VENV)/.has-test $(VENV)/.has-system ## the pictures in docs/images, taken of a real run
	$(run) -m tools.screenshots

gallery: $(VENV)/.has-test $(VENV)/.has-system ## every panel on one page, light beside dark, and the pictures in docs/images/panels
	$(run) -m tools.gallery

outputs: $(VENV)/.has-test $(VENV)/.has-system ## what GitHub shows of the examples: runs them, and stores the outputs that have changed
	$(run) -m tools.outputs

docs: $(VENV)/.has-docs ## the documentation site in build/docs/html, with every example run: minutes
	$(jupyter) tools.docs

coverage: $(VENV)/.has-test ## the tests without browser, with a coverage report
	$(run) -m pytest -m 'not browser' --cov --cov-report=term

clean: ## remove everything that was built here, .venv included
	rm -rf $(VENV) build dist demo htmlcov .coverage *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find tensormagic tests tools examples -name __pycache__ -prune -exec rm -rf {} +

# Stamps: repeated runs are quick; a changed requirement, or a checkout that was moved, installs again.
moved := $(shell test ! -e $(VENV)/.home || test "$$(cat $(VENV)/.home)" = "$$PWD" || echo FORCE)
.PHONY: FORCE
FORCE:

$(VENV)/.has-lab: $(sources) $(moved)
	PYTHON=$(PYTHON) tools/venv.sh $(VENV) lab
	@touch $@

$(VENV)/.has-test: $(sources) $(moved)
	PYTHON=$(PYTHON) tools/venv.sh $(VENV) test
	@touch $@ $(VENV)/.has-lab

$(VENV)/.has-docs: $(sources) $(moved)
	PYTHON=$(PYTHON) tools/venv.sh $(VENV) docs
	@touch $@ $(VENV)/.has-lab

$(VENV)/.has-release: $(sources) $(moved)
	PYTHON=$(PYTHON) tools/venv.sh $(VENV) release
	@touch $@

# Looked for every time, since it is cheap and what was missing may have come.
.PHONY: $(VENV)/.has-system
$(VENV)/.has-system: $(VENV)/.has-test
	$(run) tools/system.py
