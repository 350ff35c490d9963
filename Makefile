# From a clone to a picture (`make demo`) and to a full test run (`make test`). Everything Python
# goes into .venv; system packages that are missing are named before they are installed.

PYTHON ?= python3
# The devices that the tests must run on, and that the validation layer must see: what is absent
# fails the run.
HZB_TEST_DEVICES ?= llvmpipe,swiftshader,cpu
HZB_TEST_VALIDATION ?= required
# More arguments for pytest: make test ARGS="-x -k sizes"
ARGS ?=
# Processes that share the tests, file by file: drivers compile pipelines on one processor.
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
EXTRAS_demo := plot
EXTRAS_dev := plot,test,dev

BUILD = $(BIN)/python setup.py -q build_ext --inplace
PYTEST = $(BIN)/python -m pytest
SHARED = -n $(JOBS) --dist loadfile
C_FILES = $(shell find csrc shaders tests -name '*.[ch]' -o -name '*.comp' -o -name '*.glsl')

# What runs on builds with sanitizers: all of the C code, on one driver and the processor. Peaks of
# memory are not the program's own there.
SANITIZED := build/sanitize
SANITIZED_FILES = $(SANITIZED_TESTS:%=tests/test_%.py) --deselect tests/test_inputs.py::test_frame_is_copied_once_at_most \
	--deselect tests/test_inputs.py::test_only_the_rectangle_is_copied
# Leaks have no exit status, because Python and the drivers leave memory behind too; so nothing has.
# What counts is that the run came to its end, and that no report names this project's code or
# something other than leaks.
SANITIZER_OPTIONS = allocator_may_return_null=1:exitcode=0:log_path=$(CURDIR)/$(SANITIZED)/report
SANITIZER_FAULTS := 'csrc/|runtime error|CHECK failed|(ERROR|WARNING): (Address|Thread)Sanitizer'

export HZB_TEST_DEVICES HZB_TEST_VALIDATION

.DEFAULT_GOAL := help
.PHONY: help demo build test test-all soak sanitize sanitize-threads lint format clean system-demo system-test system-test-all

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "make %-16s %s\n", $$1, $$2}'

demo: $(VENV)/demo.stamp ## build, make the HZB of a real depth buffer, write mips.png
	@$(BUILD)
	@$(BIN)/python tools/demo.py

build: $(VENV)/demo.stamp ## build the module in place
	@$(BUILD)

test: system-test $(VENV)/dev.stamp ## the tests, with a fixed sample of every sweep
	@$(BUILD)
	$(PYTEST) $(SHARED) $(ARGS)

test-all: system-test-all $(VENV)/dev.stamp ## the tests, with the whole sweeps, and on emulated Arm
	@$(BUILD)
	$(PYTEST) $(SHARED) --whole $(ARGS)

soak: system-test $(VENV)/dev.stamp ## a thousand builds in a row whose workgroups hand numbers on (hours)
	@$(BUILD)
	HZB_TEST_REPEATS=1000 $(PYTEST) tests/test_tiles.py -k last_workgroup $(ARGS)

sanitize: ## tests of the C code under the address, undefined-behaviour and leak sanitizers
sanitize: SANITIZERS := address,undefined
sanitize: SANITIZER_LIBRARY := libasan.so
sanitize: SANITIZED_TESTS := api batches cli contexts features golden inputs leaks native properties refusals sizes tiles trust validation values

sanitize-threads: ## tests with threads under the thread sanitizer
sanitize-threads: SANITIZERS := thread
sanitize-threads: SANITIZER_LIBRARY := libtsan.so
sanitize-threads: SANITIZED_TESTS := api blocks contexts inputs native trust
# The validation layer's own threads race.
sanitize-threads: export HZB_VALIDATION := 0
sanitize-threads: HZB_TEST_VALIDATION :=

sanitize sanitize-threads: system-test $(VENV)/dev.stamp
	@HZB_SANITIZE=$(SANITIZERS) $(BIN)/python setup.py -q build --build-lib $(SANITIZED)
	@rm -f $(SANITIZED)/report*
	HZB_TEST_DEVICES=llvmpipe,cpu PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(SANITIZED) PYTHONMALLOC=malloc \
	LD_PRELOAD="$$($(CC) -print-file-name=$(SANITIZER_LIBRARY)) $$($(CC) -print-file-name=libstdc++.so.6)" \
	ASAN_OPTIONS=$(SANITIZER_OPTIONS) TSAN_OPTIONS=$(SANITIZER_OPTIONS) \
	$(PYTEST) -p no:cacheprovider --junit-xml=$(SANITIZED)/report.xml $(SANITIZED_FILES) $(ARGS)
	@test -e $(SANITIZED)/report.xml
	@! grep -shE -B40 -A20 $(SANITIZER_FAULTS) $(SANITIZED)/report.[0-9]*

lint: $(VENV)/dev.stamp ## layout, style and types
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp ## lay out all code as `make lint` wants it
	$(BIN)/clang-format -i $(C_FILES)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean: ## remove what was built; .venv stays
	rm -rf build dist *.egg-info hzb/*.so mips.png .pytest_cache .hypothesis .mypy_cache .ruff_cache

system-demo system-test system-test-all: system-%:
	@sh tools/ensure_system_packages.sh $* $(PYTHON) $(VENV)

$(BIN)/pip: | system-demo
	$(PYTHON) -m venv $(VENV)

# The build is not isolated, so that it shares objects and NumPy with the in-place builds that
# follow; its requirements are those of [build-system] in pyproject.toml.
$(VENV)/%.stamp: pyproject.toml Makefile | system-demo $(BIN)/pip
	@echo 'Installing hzb[$(EXTRAS_$*)], editable, into $(VENV)'
	@$(BIN)/pip install -q --disable-pip-version-check 'setuptools>=77' 'numpy>=2.0'
	@$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e '.[$(EXTRAS_$*)]'
	@touch $@
