# `make read` and `make test` are all one needs. Every target does its own set-up.
#
# Variables: PYTHON picks the interpreter of the environment (3.11, 3.12 or 3.13), VENV its folder,
# PORT where the book is served, OUT where benchmarks put their records. Where nothing can be
# installed, `make gpu PY=python3` takes that interpreter as it is, without any set-up.

VENV ?= .venv
PORT ?= 8000
OUT ?= _build/measured
TOPICS ?= roofline precision collectives zero offload pipeline pipeline_search attention \
    hopper_rmse decode machine_code
PYTHON ?=

SETUP := sh lib/setup.sh $(VENV)
ifeq ($(origin PY),command line)
  SETUP := : as it is:
  export PYTHONPATH := lib
else
  PY := $(VENV)/bin/python
endif
PYTEST := $(PY) -m pytest -c lib/pyproject.toml --rootdir . -o junit_family=xunit1
BOTH_CORES := -n 2 --dist loadfile --no-loadscope-reorder
TESTS := lib/tests lib/weft --doctest-modules
LABS := notebooks --nbval --nbval-sanitize-with notebooks/sanitize.cfg
BOOK_TESTS := $(wildcard lib/tests/test_book_*.py)
REPORTS := _build/tests
# pytest ends with 5 where nothing was marked; the census at the end knows what had to run.
OR_NONE := || [ $$? = 5 ]
LINTED := lib notebooks book solutions

# Each target is one thing after the other, two cores at work in it.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help light setup read book serve notebooks lab test test-all test-plan test-lib \
        test-notebooks test-book bench gpu check clean browser

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' Makefile | awk -F'#' '{printf "%-22s %s\n", $$1, $$2}'

setup: ## make .venv with everything in it (the other targets call this)
	@$(SETUP) all $(PYTHON)

light: # what reading, planning and linting need: no torch
	@$(SETUP) light $(PYTHON)

# --- the book ---------------------------------------------------------------------------------

read: book ## build the book and serve it on 127.0.0.1
	@$(PY) book/serve.py --port $(PORT)

book: light ## build the book into _build/html, warnings are errors
	@$(PY) book/build.py

serve: light ## serve the book that is already built
	@$(PY) book/serve.py --port $(PORT)

# --- the labs ---------------------------------------------------------------------------------

# JupyterLab would ask about news and look for updates; as root it wants to be told that it may.
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings
QUIET_LAB := {"@jupyterlab/apputils-extension:notification": \
    {"fetchNews": "false", "checkForUpdates": false}}
LAB_ARGS := --LabApp.news_url=None --LabApp.default_url=/lab/tree/notebooks \
    $(if $(filter 0,$(shell id -u)),--allow-root)

lab: setup ## JupyterLab on the notebooks (ARGS: more arguments for it)
	@mkdir -p $(LAB_SETTINGS) && echo '$(QUIET_LAB)' > $(LAB_SETTINGS)/overrides.json
	@$(PY) -m jupyterlab $(LAB_ARGS) $(ARGS)

notebooks: setup ## run the notebooks whose source has changed (ARGS=--force: all)
	$(PY) notebooks/build.py $(ARGS)

# --- the tests --------------------------------------------------------------------------------

test: setup ## every test there is
	@rm -rf $(REPORTS)
	@$(MAKE) --no-print-directory test-all
	@$(PY) lib/tests/census.py $(REPORTS)

test-all: check book browser
	$(PYTEST) $(BOTH_CORES) -m "not alone" --junit-xml $(REPORTS)/most.xml $(TESTS) $(LABS)
	$(PYTEST) -m alone --junit-xml $(REPORTS)/alone.xml lib/tests $(OR_NONE)

# What a topic thinks, draws, searches for and asks in its page-tier exercises needs no torch.
PLAN_TESTS := $(foreach what,plan draw search exercises,$(wildcard lib/tests/test_*_$(what).py))
PLAN_TESTS += $(patsubst %,lib/tests/test_%.py,layers setup census cli memory_cli)

test-plan: light ## the tests that need no torch
	$(PYTEST) $(BOTH_CORES) -m "not alone" $(PLAN_TESTS) --doctest-modules lib/weft/plan

test-lib: setup ## unit, property, doctest and multi-process tests, exercises and their zoo
	$(PYTEST) $(BOTH_CORES) -m "not alone" $(TESTS) $(BOOK_TESTS:%=--ignore=%)
	$(PYTEST) -m alone lib/tests $(OR_NONE)

test-notebooks: setup ## every cell of every notebook, outputs compared
	$(PYTEST) $(BOTH_CORES) $(LABS)

test-book: setup book browser ## links, and the pages in a browser
	$(PYTEST) $(BOTH_CORES) $(BOOK_TESTS)

browser: light # Chromium, for the tests that look at the pages
	@$(PY) lib/tests/browser.py --ensure

check: light ## seconds: lint, format, stale generated files, who imports whom
	@$(PY) -m ruff check --config lib/pyproject.toml $(LINTED)
	@$(PY) -m ruff format --config lib/pyproject.toml --check $(LINTED)
	@$(PY) notebooks/build.py --check
	@$(PY) -m weft.grade.build --check
	@$(PYTEST) --quiet lib/tests/test_layers.py

# --- measurements -----------------------------------------------------------------------------

bench: setup ## run the benchmarks; records go to OUT=_build/measured
	@for topic in $(TOPICS); do $(PY) -m weft bench $$topic --out $(OUT) || exit 1; done

gpu: setup ## tests and benchmarks that need a GPU; records go to OUT=_build/measured
	@$(PY) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || { \
	    echo "make gpu: no CUDA device here; weft doctor says what is missing" >&2; exit 1; }
	$(PYTEST) -m gpu lib/tests
	@$(MAKE) --no-print-directory bench TOPICS="$(TOPICS) hopper"

clean: ## remove what was built (not .venv)
	rm -rf _build .pytest_cache .ruff_cache .hypothesis lib/*.egg-info
	find . -name .venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
