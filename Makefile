# `make demo` and `make test` need nothing but Python 3.11+, pip and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PEERS_STAMP := .venv-peers/.installed
ARCHITECTURES_STAMP := .venv-architectures/.installed

.PHONY: setup demo test test-all bench bench-quantize bench-unseen bench-architectures lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[torch,train,tensorrt-rtx,dev]'
	touch $(STAMP)

demo: $(STAMP)  ## the main job on the shipped network: out/demo/report.html
	$(BIN)/framefit demo --out out/demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## everything that must hold, in minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m 'not slow and not timing'
	$(BIN)/python -m pytest -m 'timing and not slow'

test-all: test  ## the slow tests too
	$(BIN)/python -m pytest -m slow

bench: $(STAMP)  ## measures the first section of docs/benchmarks.md anew
	$(BIN)/python -m benchmarks

$(PEERS_STAMP): benchmarks/peers/requirements.txt benchmarks/peers/overrides.txt $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-peers
	$(BIN)/uv pip install --quiet --python .venv-peers/bin/python \
		--override benchmarks/peers/overrides.txt -r benchmarks/peers/requirements.txt
	touch $(PEERS_STAMP)

bench-quantize: $(PEERS_STAMP)  ## framefit's files beside those of the tools that people use today
	$(BIN)/python -m benchmarks.package_networks
	$(BIN)/python -m benchmarks.peers

bench-unseen: $(PEERS_STAMP)  ## the same on networks that nothing was tuned to, trained for it
	$(BIN)/python -m benchmarks.unseen

$(ARCHITECTURES_STAMP): benchmarks/architectures/requirements.txt $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-architectures
	$(BIN)/uv pip install --quiet --python .venv-architectures/bin/python \
		-e '.[torch]' -r benchmarks/architectures/requirements.txt
	touch $(ARCHITECTURES_STAMP)

bench-architectures: $(ARCHITECTURES_STAMP)  ## networks as other packages build them
	.venv-architectures/bin/python -m benchmarks.architectures

clean:
	rm -rf .venv .venv-peers .venv-architectures out build .mypy_cache .ruff_cache .pytest_cache
