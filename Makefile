SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HADOOP := build/hadoop
WORKERS ?= 2

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without cached bytecode every start of the command line would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

native_sources := $(shell find native -name '*.[chi]*' -type f -not -path 'native/tests/*' 2>/dev/null)
native_tests := $(wildcard native/tests/*.cpp)
native_all := $(native_sources) $(shell find native/tests -name '*.[chi]*' -type f 2>/dev/null)
build_tools := import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["build"])

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

EXAMPLE := examples/clicks/job.yaml
JOB ?= $(EXAMPLE)

.PHONY: train
train: $(STAMP) ## Make data, plan, train and evaluate the example; JOB=my.yaml: another job
	@$(if $(filter $(EXAMPLE),$(JOB)),test -e build/data/clicks/synthetic.json || \
		$(BIN)/heterps data synth build/data/clicks --rows 400000 --ids 2000 --files 4)
	$(BIN)/heterps train $(JOB)

.PHONY: test
test: lint native-tests $(HADOOP) ## All that CI runs: lint, types, every test
	$(BIN)/pytest -q -n $(WORKERS)

.PHONY: check
check: lint native-check ## The inner loop: as test, without the tests marked slow and the sanitizers
	$(BIN)/pytest -q -n $(WORKERS) -m "not slow and not soak"

.PHONY: lint
lint: $(STAMP) docs ## Style, types and the direction of imports
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(if $(native_all),$(BIN)/clang-format --dry-run -Werror $(native_all))
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: fmt
fmt: $(STAMP) ## Format Python and C++ in place
	$(BIN)/ruff check -q --fix . || true
	$(BIN)/ruff format -q .
	$(if $(native_all),$(BIN)/clang-format -i $(native_all))

.PHONY: bench
bench: $(STAMP) $(HADOOP) ## Measure the figures of the README
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python -W ignore benchmarks/ps.py --json build/bench/ps.json
	$(BIN)/python benchmarks/data.py --json build/bench/data.json
	$(BIN)/python benchmarks/train.py --json build/bench/train.json
	$(BIN)/python benchmarks/engines.py --json build/bench/engines.json
	$(BIN)/python benchmarks/hdfs.py --rounds 15 --json build/bench/hdfs.json
	$(BIN)/python benchmarks/paper_testbed.py --json build/bench/paper_testbed.json
	$(BIN)/python benchmarks/prediction.py --json build/bench/prediction.json
	$(BIN)/python benchmarks/measured_policy.py --json build/bench/measured_policy.json
	$(BIN)/python benchmarks/elastic.py --json build/bench/elastic.json
	$(BIN)/python benchmarks/far_hosts.py --json build/bench/far_hosts.json

.PHONY: soak
soak: $(STAMP) $(HADOOP) ## The long test matrices
	$(BIN)/pytest -n $(WORKERS) -m soak
	$(BIN)/pytest -n $(WORKERS) -m "hypothesis and not soak" --hypothesis-profile=drawn

.PHONY: docs
docs: $(STAMP) ## Check links, anchors, named examples and snippets of the documentation
	$(BIN)/python scripts/check_docs.py

.PHONY: clean
clean: ## Remove the venv and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Plain, then with the sanitizers that find bad memory and races.
native_test = $(BIN)/cmake -S . -B build/native-tests$(1) -G Ninja -DHETERPS_NATIVE_TESTS=ON \
	-DHETERPS_SANITIZE=$(2) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja --log-level=WARNING >/dev/null \
	&& $(BIN)/cmake --build build/native-tests$(1) -- --quiet && build/native-tests$(1)/heterps_native_tests
comma := ,

.PHONY: native-check
native-check: $(STAMP)
ifneq ($(native_tests),)
	@$(call native_test,,)
endif

.PHONY: native-tests
native-tests: native-check
ifneq ($(native_tests),)
	@$(call native_test,-address,address$(comma)undefined)
	@$(call native_test,-thread,thread)
endif

# The package in editable form. An edit of C++ alone rebuilds in seconds and leaves the rest be.
full = $(filter pyproject.toml,$?)
$(STAMP): pyproject.toml CMakeLists.txt $(native_sources)
	@echo "installing into $(VENV)$(if $(full),: takes a minute or two)"
	@scripts/prepare.sh $(VENV)
	@$(if $(full),$(BIN)/pip install -qq $$($(BIN)/python -c '$(build_tools)'))
	@$(BIN)/pip install -qq $(if $(full),,--no-deps) --no-build-isolation -e '.[dev]'
	@touch $@

# The HDFS that tests read from.
$(HADOOP): scripts/fetch_hadoop.py | $(STAMP)
	@scripts/prepare_hadoop.sh $@ $(BIN)/python
