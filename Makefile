# `make help` lists what can be made. Needs python3 (3.10 or newer, with venv) and a C++20 compiler.

DEFAULT_TORCH := 2.15.0
TORCH ?= $(DEFAULT_TORCH)
PYTHON ?= python3
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# What make sanitize builds with: address and undefined in one build, or thread; and the activations,
# one of each kind, as no other code is theirs than formulas without memory or branches.
SANITIZER ?= address,undefined
SANITIZED ?= relu;selu;leaky_relu;hardtanh;hardswish;sigmoid;gelu
# What make fuzz tries: calls of the engine, and for each test of the operators. The seed is another
# one at every run, and is shown.
FUZZ_CASES ?= 100000
EXAMPLES ?= 10000
SEED ?= $(shell date +%s)
SEED := $(SEED)
# What make performance-report reads.
RESULTS ?= $(wildcard build/bench/cpu.json build/bench/cuda.json)
# More CMake settings, such as CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=90-real
CMAKE_ARGS ?=

ifeq ($(TORCH),$(DEFAULT_TORCH))
VENV := .venv
BUILD := build
else
VENV := .venv-$(TORCH)
BUILD := build/torch-$(TORCH)
endif
LOCAL_PREFIX := $(BUILD)/prefix
COMMA := ,

# What the Python tests and the benchmarks load.
export FASTACT_LIBRARY := $(CURDIR)/$(BUILD)/lib/libfastact.so
export FASTACT_PREFIX := $(CURDIR)/$(LOCAL_PREFIX)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
CONFIGURE = cmake -S . -B $(BUILD) -G Ninja -DPython3_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python $(CMAKE_ARGS)
COMPILE = cmake --build $(BUILD) -j $(JOBS)

.PHONY: help setup build install demo test sanitize fuzz prove digests accuracy-report \
  prove-selftest bench bench-engine performance-report operator-pages lint format gpu-check clean distclean
.DEFAULT_GOAL := build

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
	  awk -F'|' '{ printf "  make %-18s %s\n", $$1, $$2 }'
	@echo "  TORCH=2.11.0 chooses another torch, JOBS=4 the number of compilers, PYTHON=... the Python"

setup: $(VENV)/.fastact-setup  ## the virtual environment with torch, nvcc and the build tools

$(VENV)/.fastact-setup: requirements.txt scripts/setup.sh
	@PYTHON=$(PYTHON) scripts/setup.sh $(VENV) $(TORCH)

build: setup  ## build/lib/libfastact.so
	$(CONFIGURE) -DFASTACT_BUILD_TESTS=OFF
	$(COMPILE)

install: build  ## install to PREFIX (/usr/local)
	cmake --install $(BUILD) --prefix $(PREFIX)

demo: build  ## train on handwritten digits in Python, run the archives in C++
	cmake --install $(BUILD) --prefix $(LOCAL_PREFIX)
	python examples/digits/demo.py --prefix $(LOCAL_PREFIX) --build-dir $(BUILD)/digits

# Several processes share the cores: a thread of torch's that waits by spinning takes the time of another
# (numbers, bits, the proof and torch.compile on two cores: 282 s with spinning, 223 s without).
test: setup  ## GoogleTest, the installed package, pytest
	$(CONFIGURE) -DFASTACT_BUILD_TESTS=ON -DFASTACT_WERROR=ON
	$(COMPILE)
	cmake --install $(BUILD) --prefix $(LOCAL_PREFIX)
	ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error
	OMP_WAIT_POLICY=passive python -m pytest python_tests -rs -n $(JOBS)

sanitize: BUILD := $(BUILD)/$(subst $(COMMA),-,$(SANITIZER))
sanitize: setup  ## SANITIZER=address, undefined, both or thread: build for the CPU and test with it
	$(CONFIGURE) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFASTACT_WITH_CUDA=OFF -DFASTACT_BUILD_TESTS=ON \
	  -DFASTACT_SANITIZE=$(SANITIZER) "-DFASTACT_ONLY=$(SANITIZED)"
	$(COMPILE)
	ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error

fuzz: setup  ## nightly: EXAMPLES random calls a test, FUZZ_CASES of the engine, threads, leaks
	$(CONFIGURE) -DFASTACT_BUILD_TESTS=ON
	$(COMPILE)
	FASTACT_FUZZ_CASES=$(FUZZ_CASES) FASTACT_FUZZ_SEED=$(SEED) \
	  $(BUILD)/bin/fastact_ops_tests --gtest_filter='FuzzTest.*'
	FASTACT_FUZZ_EXAMPLES=$(EXAMPLES) FASTACT_NIGHTLY=1 python -m pytest -rs \
	  --hypothesis-seed=$(SEED) $(addprefix python_tests/test_,fuzz.py concurrency.py resources.py)

prove: build  ## every result against the exact one; ARGS="--op selu --dtype float32" for a part
	python prove $(ARGS)

digests: build  ## the bits of this machine's instruction sets against those of all others
	python prove --digest $(ARGS)

accuracy-report: setup  ## docs/accuracy.md from what make prove found
	python prove --report $(ARGS)

prove-selftest: setup  ## break copies of the library: the proof must notice
	python scripts/prove_selftest.py --jobs $(JOBS)

bench: setup  ## FastAct beside PyTorch and a copy; ARGS="--quick --op selu" for a part
	scripts/google_benchmark.sh || true  # the engine's benchmark alone needs it
	$(CONFIGURE) -DFASTACT_BUILD_BENCHMARKS=ON
	$(COMPILE)
	python benchmarks $(ARGS)

bench-engine: setup  ## the CPU engine without torch; ARGS=--benchmark_filter=selu/avx512
	scripts/google_benchmark.sh
	$(CONFIGURE) -DFASTACT_BUILD_BENCHMARKS=ON
	$(COMPILE)
	$(BUILD)/bin/fastact_engine_benchmark $(ARGS)

performance-report: setup  ## docs/performance.md from RESULTS="CPU.json GPU.json" of make bench
	python benchmarks --report $(RESULTS)

operator-pages: build  ## docs/operators/: a page and a plot for each activation
	python scripts/operator_pages.py

$(VENV)/.fastact-lint: requirements-lint.txt $(VENV)/.fastact-setup
	python -m pip install --disable-pip-version-check --quiet -r requirements-lint.txt
	touch $@

lint: $(VENV)/.fastact-lint  ## clang-format, clang-tidy and ruff
	$(CONFIGURE) -DFASTACT_BUILD_TESTS=ON -DFASTACT_BUILD_BENCHMARKS=ON
	scripts/lint.sh $(BUILD) $(JOBS)

format: $(VENV)/.fastact-lint  ## format C++, CUDA and Python in place
	scripts/format.sh

gpu-check:  ## build, test and time on a GPU machine, with its own torch and nvcc
	scripts/gpu_check.sh $(STEPS)

clean:  ## remove what was built
	rm -rf build

distclean: clean  ## remove the virtual environments too
	rm -rf .venv .venv-* .deps
