# `make read` and `make test` are all one needs. Every target does its own set-up.
#
# Variables: PYTHON picks the interpreter of the environment (3.11, 3.12 or 3.13), VENV its folder,
# PORT where the book is served, OUT where benchmarks put their records. Where nothing can be
# installed, `make gpu PY=python3` takes that interpreter as it is, without any set-up. On a GPU,
# LIMIT is how many seconds long records are begun, COMMIT what they say where git is not to be had.

VENV ?= .venv
PORT ?= 8000
OUT ?= _build/measured
TOPICS ?= roofline precision collectives zero offload pipeline attention hopper-rmse decode \
    ring linear sparse griffin experts machine_code
GPU_TOPICS ?= roofline hopper attention decode precision zero experts sparse linear griffin ring \
    tensor
LIMIT ?= 480
PYTHON ?=

SETUP := sh lib/setup.sh $(VENV)
ifeq ($(origin PY),command line)
  SETUP := : as it is:
  export PYTHONPATH := lib
else
  PY := $(VENV)/bin/python
endif
# Every rank and every command that a test starts would compile the library again.
unexport PYTHONDONTWRITEBYTECODE
# nbval takes 3 s to load, in each worker; who runs labs asks for it.
PYTEST := $(PY) -m pytest -c lib/pyproject.toml --rootdir . -o junit_family=xunit1 -p no:nbval
# Four workers on two cores, for a third of the time they wait. Each takes a file after the other,
# in the order of lib/tests/conftest.py; so a lab's cells stay together.
WORKERS := -n 4 --dist loadfile --no-loadscope-reorder
TESTS := lib/tests lib/weft --doctest-modules
ALONE = $$(grep -l 'mark[.]alone' lib/tests/test_*.py)
GPU_TESTS = $$(grep -l 'mark[.]gpu' lib/tests/test_*.py)
GPU_WORKERS = $$($(PY) -c 'import xdist; print("-n 4")' 2>/dev/null)
# Copies by TMA and mbarriers are beyond these tools but memcheck; Triton's own sanitizer sees them.
TRITON_RUNS := attention attention_versions decode adam
NBVAL := -p nbval --nbval --nbval-sanitize-with notebooks/sanitize.cfg
LABS := $(NBVAL) $(wildcard notebooks/*.ipynb)
BOOK_TESTS := $(wildcard lib/tests/test_book_*.py)
REPORTS := _build/tests
# pytest ends with 5 where nothing was marked; the census at the end knows what had to run.
OR_NONE := || [ $$? = 5 ]
LINTED := lib notebooks book solutions

# Each target is one thing after the other, two cores at work in it.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help light setup read book pdf serve notebooks lab test test-all test-plan test-lib \
        test-notebooks test-book bench gpu gpu-here gpu-test gpu-bench sanitize sanitize-gluon \
        check lint clean browser

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' Makefile | awk -F'#' '{printf "%-22s %s\n", $$1, $$2}'

setup: ## make .venv with everything in it (the other targets call this)
	@$(SETUP) all $(PYTHON)

light: # what reading, planning and linting need: no torch
	@$(SETUP) light $(PYTHON)

# --- the book ---------------------------------------------------------------------------------

read: light ## build the book and serve it on 127.0.0.1
	@$(PY) book/build.py --quiet
	@$(PY) book/serve.py --port $(PORT)

book: light ## build the book into _build/html, warnings are errors
	@$(PY) book/build.py

pdf: light browser ## the whole book as one PDF, _build/warp-and-weft.pdf
	@$(PY) book/pdf.py

serve: light ## serve the book that is already built
	@$(PY) book/serve.py --port $(PORT)

# --- the labs ---------------------------------------------------------------------------------

# JupyterLab would ask about news and look for updates; as root it wants to be told that it may.
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings
QUIET_LAB := {"@jupyterlab/apputils-extension:notification": \
    {"fetchNews": "false", "checkForUpdates": false}}
LAB_ARGS := --LabApp.news_url=None --LabApp.default_url=/lab/tree/work \
    $(if $(filter 0,$(shell id -u)),--allow-root)

lab: setup ## JupyterLab on copies of the labs, yours, in work/ (ARGS: more arguments for it)
	@mkdir -p $(LAB_SETTINGS) && echo '$(QUIET_LAB)' > $(LAB_SETTINGS)/overrides.json
	@$(PY) notebooks/copies.py
	@$(PY) -m jupyterlab $(LAB_ARGS) $(ARGS)

notebooks: setup ## run the notebooks whose source has changed (ARGS=--force: all)
	$(PY) notebooks/build.py $(ARGS)

# --- the tests --------------------------------------------------------------------------------

ifdef TOPIC
TOPIC_TESTS := $(wildcard lib/tests/test_$(TOPIC)_*.py lib/tests/test_$(TOPIC).py \
    lib/weft/*/$(TOPIC) lib/weft/*/$(TOPIC).py)
TOPIC_LABS := $(wildcard notebooks/$(TOPIC).ipynb)

test: setup
	@[ -n "$(TOPIC_TESTS)" ] || { echo "make test: nothing is called $(TOPIC)" >&2; exit 2; }
	$(PYTEST) $(WORKERS) -m "not alone" $(if $(TOPIC_LABS),$(NBVAL) $(TOPIC_LABS)) \
	    $(TOPIC_TESTS) --doctest-modules
	$(PYTEST) -m alone $(filter lib/tests/%,$(TOPIC_TESTS)) $(OR_NONE)
else
test: setup ## every test there is (TOPIC=zero: those of one topic)
	@rm -rf $(REPORTS)
	@$(MAKE) --no-print-directory test-all
	@$(PY) lib/tests/support/census.py $(REPORTS)
endif

# One worker builds the book (book_site.py) while the others go on.
test-all: lint browser
	$(PYTEST) $(WORKERS) -m "not alone" --junit-xml $(REPORTS)/most.xml $(LABS) $(TESTS)
	$(PYTEST) -m alone --junit-xml $(REPORTS)/alone.xml $(ALONE)

# What a topic thinks, draws, searches for and asks in its page-tier exercises needs no torch.
PLAN_TESTS := $(foreach what,plan draw search exercises,$(wildcard lib/tests/test_*_$(what).py))
PLAN_TESTS += $(patsubst %,lib/tests/test_%.py,layers setup census cli memory_cli)

test-plan: light ## the tests that need no torch
	$(PYTEST) $(WORKERS) -m "not alone" $(PLAN_TESTS) --doctest-modules \
	    $(patsubst %,lib/weft/%,process plan draw explore)

test-lib: setup ## unit, property, doctest and multi-process tests, exercises and their zoo
	$(PYTEST) $(WORKERS) -m "not alone" $(TESTS) $(BOOK_TESTS:%=--ignore=%)
	$(PYTEST) -m alone $(ALONE)

test-notebooks: setup ## every cell of every notebook, outputs compared
	$(PYTEST) $(WORKERS) $(LABS)

test-book: setup book browser ## links, and the pages in a browser
	$(PYTEST) $(WORKERS) $(BOOK_TESTS)

browser: light # Chromium, for the tests that look at the pages
	@$(PY) lib/tests/support/browser.py --ensure

check: lint ## seconds: lint, format, stale generated files, who imports whom
	@$(PYTEST) --quiet lib/tests/test_layers.py lib/tests/test_house.py

lint: light # what of `check` is no test
	@$(PY) -m ruff check --config lib/pyproject.toml $(LINTED)
	@$(PY) -m ruff format --config lib/pyproject.toml --check $(LINTED)
	@$(PY) notebooks/build.py --check
	@$(PY) -m weft.grade.build --check

# --- measurements -----------------------------------------------------------------------------

bench: setup ## run the benchmarks; records go to OUT=_build/measured
	@for topic in $(TOPICS); do $(PY) -m weft bench $$topic --out $(OUT) || exit 1; done

gpu: gpu-test gpu-bench ## tests and benchmarks that need a GPU; each part fits into ten minutes

gpu-here: setup
	@$(PY) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || { \
	    echo "make gpu: no CUDA device here; weft doctor says what is missing" >&2; exit 1; }

# Compiling takes longer than running, so four at a time. Other plugins may warn, which is an error.
gpu-test: gpu-here ## tests that need a GPU, without the sanitizers' (ARGS: more arguments)
	$(PYTEST) -p no:benchmark $(GPU_WORKERS) \
	    -m gpu -k "not sanitizer" $(GPU_TESTS) $(ARGS)

gpu-bench: gpu-here ## records of a GPU, for LIMIT=480 s (TOPICS, ARGS="--only NAME"); they go to OUT
	$(PY) -u -m weft bench $(if $(filter file,$(origin TOPICS)),$(GPU_TOPICS),$(TOPICS)) \
	    --out $(OUT) --seconds $(LIMIT) $(if $(COMMIT),--commit $(COMMIT)) $(ARGS)

# Each tool for itself, and the next one also where one complains.
sanitize: gpu-here ## compute-sanitizer on the kernels, five minutes at most
	@failed=0; for tool in memcheck racecheck synccheck initcheck; do \
	    echo "$$tool"; runs=$$([ $$tool = memcheck ] || echo $(TRITON_RUNS)); \
	    timeout 75 compute-sanitizer --tool $$tool --error-exitcode 9 \
	        $(PY) lib/tests/support/sanitize.py $$runs || failed=1; \
	done; exit $$failed

sanitize-gluon: gpu-here ## Triton's concurrency sanitizer on the Gluon kernels (compiles for minutes)
	$(PYTEST) -p no:benchmark $(GPU_WORKERS) -m gpu -k sanitizer lib/tests/test_hopper_kernels.py $(ARGS)

# Records that `make bench` has measured are no build: nothing makes them again as they were.
clean: ## remove what was built (not .venv, not the records of make bench)
	[ ! -d _build ] || find _build -mindepth 1 -maxdepth 1 ! -name measured -exec rm -rf {} +
	rm -rf .pytest_cache .ruff_cache .hypothesis lib/*.egg-info
	find . -name .venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
