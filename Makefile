# `make demo` and `make test` need nothing but Python 3.11+, pip and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-all bench lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[torch,tensorrt-rtx,dev]'
	touch $(STAMP)

demo: $(STAMP)  ## the main job on the shipped network: out/demo/report.html
	$(BIN)/framefit demo --out out/demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## everything that must hold, in minutes
	$(BIN)/python -m pytest

test-all: lint  ## the slow tests too
	$(BIN)/python -m pytest -m ''

bench: $(STAMP)  ## measures every figure that the documentation states
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv out build .mypy_cache .ruff_cache .pytest_cache
