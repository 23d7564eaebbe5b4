# Every target sets up what it needs: a virtual environment in .venv, with the versions of constraints.txt.
# `make core` has its own in .venv-core, without the extras.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
CORE := .venv-core

.PHONY: demo genenv test quick entered core siege lint hooks format clean

demo: $(READY)  ## EnvGen's whole schedule in Crafter, from symbols, in minutes: the table of skills over cycles
	$(BIN)/curricle run crafter

genenv: $(READY)  ## GenEnv beside the agent alone, on chains of operations, in minutes: a table and a picture
	$(BIN)/python experiments/coevolution/study.py demo

test: $(READY)  ## all tests
	$(BIN)/pytest

quick: $(READY)  ## the tests that take a moment: every module in 3 minutes on two cores
	$(BIN)/pytest -m "not slow"

entered: $(READY)  ## the modules that no fast test enters
	$(BIN)/python scripts/entered.py

core: $(CORE)/ready  ## the tests that need no extra, where none is installed; the others skip themselves
	$(CORE)/bin/pytest

siege: $(READY)  ## the long campaign of kills, bad replies, damage and engine steps; SCALE=0.01 for a hundredth of it
	$(BIN)/python tests/hostile/siege.py --scale $(or $(SCALE),1)

lint: $(READY)  ## style, spelling, types, the direction of imports and the shape of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/shape.py

hooks: $(READY)  ## check style, spelling and types before each commit
	$(BIN)/pre-commit install

format: $(READY)  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv $(CORE) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(READY): EXTRAS := dev
$(CORE)/ready: EXTRAS := test
$(READY) $(CORE)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Curricle needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@
