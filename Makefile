# `make demo` needs nothing but a Python from 3.11 on; everything lands in .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-minimum lint bench docs fuzz sbom clean

VENV := .venv
BIN := $(VENV)/bin
# The first Python that is new enough; override with `make PYTHON=/path/to/python3 ...`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
# Set-up is done once for each state of pyproject.toml.
STATE := $(firstword $(shell cksum pyproject.toml))
READY := $(VENV)/.ready-$(STATE)
READY_DEV := $(VENV)/.ready-dev-$(STATE)
WORKERS ?= 2
# What `make test-minimum` runs: everything but pages, packaging and long searches, which do not hang on versions.
# The oldest packages have wheels for the oldest Python only.
OLDEST_PYTHON ?= $(shell command -v python3.11 || echo $(BIN)/python)
MINIMUM_TESTS ?= tests/unit tests/cli tests/published tests/specs tests/properties
# Harmless there: typer brings rich into short commands and click leaves with 0 when nothing is asked; matplotlib counts
# tick labels beyond the axes.
MINIMUM_LEFT_OUT := $(addprefix --deselect=,tests/cli/test_app.py::test_no_arguments_show_the_help \
	tests/cli/test_app.py::test_help_loads_nothing_heavy tests/cli/test_app.py::test_json_loads_no_more_than_it_needs \
	tests/unit/test_figures_sweeps.py::test_nothing_overlaps_or_leaves_the_figure)
# Targets of the search guided by coverage, each with its number of inputs: 1.2 million in half an hour.
FUZZ_TARGETS ?= units:300000 config:300000 scenario:200000 trace:200000 yaml:100000 measured:60000 cases:40000 argv:8000 \
	answers:4000 options:1500
SEED ?= 1

help:
	@echo "make demo    install into .venv and print one estimate"
	@echo "make test    run the tests"
	@echo "make test-minimum  run most of them with the oldest dependencies that are allowed"
	@echo "make lint    ruff, mypy and the licences of all files (reuse)"
	@echo "make bench   run the benchmarks"
	@echo "make docs    write anew what the docs quote of the program"
	@echo "make fuzz    search for bad input that is not met with a clear error, longer than 'make test' does"
	@echo "make sbom    list what an installation is made of, as CycloneDX"
	@echo "make clean   remove .venv and caches"

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "llmcap needs Python 3.11 or newer and found none; name one: make PYTHON=/path/to/python3 ..." >&2; \
		exit 1; fi
	@"$(PYTHON)" -m venv $(VENV) || { \
		echo "could not create $(VENV) with $(PYTHON); is its venv module installed?" >&2; exit 1; }

$(READY): | $(BIN)/python
	@echo "installing llmcap into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(BIN)/python -m compileall -q llmcap
	@rm -f $(VENV)/.ready-* && touch $@

$(READY_DEV): | $(BIN)/python
	@echo "installing llmcap and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -m compileall -q llmcap
	@rm -f $(VENV)/.ready-* && touch $(READY) $@

demo: $(READY)
	@$(BIN)/llmcap estimate

test: $(READY_DEV)
	@$(BIN)/python -m pytest -q -rfEs -n $(WORKERS)

# Anew each time: what was left from another set of bounds would hide a bound that is too low. Warnings are those of old
# packages about older ones, and no errors here.
test-minimum: | $(BIN)/python
	@rm -rf $(VENV)-minimum && $(OLDEST_PYTHON) -m venv $(VENV)-minimum
	@$(BIN)/python tests/packaging/minimum_versions.py > $(VENV)-minimum/versions.txt
	@$(VENV)-minimum/bin/python -m pip install --quiet --disable-pip-version-check -e . -r $(VENV)-minimum/versions.txt \
		hypothesis pytest pytest-xdist scipy
	@$(VENV)-minimum/bin/python -m pytest -q -rfEs -n $(WORKERS) -o filterwarnings=default -p no:cacheprovider \
		$(MINIMUM_LEFT_OUT) $(MINIMUM_TESTS)

lint: $(READY_DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/reuse lint --quiet || $(BIN)/reuse lint

bench: $(READY_DEV)
	@for f in benchmarks/*.py; do [ -e "$$f" ] || continue; echo "== $$f"; $(BIN)/python "$$f" || exit 1; done

fuzz: $(READY_DEV)
	@LLMCAP_FUZZ_EXAMPLES=5000 $(BIN)/python -m pytest -q tests/fuzz
	@if $(BIN)/python -c 'import atheris' 2>/dev/null; then for target in $(FUZZ_TARGETS); do \
		echo "== $$target"; $(BIN)/python tests/fuzz/coverage_guided.py $${target%:*} $${target#*:} $(SEED) || exit 1; done; \
	else echo "for the search guided by coverage: $(BIN)/pip install atheris"; fi

sbom: $(READY)
	@mkdir -p dist && $(BIN)/python tests/packaging/bill_of_materials.py dist/sbom.cdx.json && echo "software bill of materials in dist/sbom.cdx.json"

# Everything in docs that the program writes: quoted output, the reference of commands, tables, the accuracy page.
docs: $(READY_DEV)
	@$(BIN)/python -m llmcap.cli.reference docs/cli.md
	@$(BIN)/python -m llmcap.report.accuracy_page docs/accuracy.md
	@$(BIN)/python tests/docs/test_tier_tables.py
	@$(BIN)/python tests/docs/test_docs.py

clean:
	@rm -rf $(VENV) $(VENV)-minimum build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
