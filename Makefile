# Two commands set everything up on a machine that has only Python >= 3.11 and pip.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test bench lint wheel clean

demo: $(VENV)/.package
	$(BIN)/puma-coffea demo --output demo

test: $(VENV)/.tests
	$(BIN)/python -m pytest -n auto

bench: $(VENV)/.bench
	$(BIN)/puma-coffea bench --json bench.json

lint: $(VENV)/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/repo-review .

wheel: $(VENV)/.package
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

$(VENV)/.package: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all]"
	touch $@

$(VENV)/.tests: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group test
	touch $@

$(VENV)/.bench: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group bench
	touch $@

$(VENV)/.lint: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	touch $@

clean:
	rm -rf $(VENV) demo build dist
