# `make help` lists the targets. Needs python3 with venv (3.11 or newer; 3.10 for torch up to 2.14) and GCC 11 or newer.

DEFAULT_TORCH := 2.15.0
TORCH ?= $(DEFAULT_TORCH)
# The versions of torch that the wheel of `make wheel` supports. The kernels are built with the first one.
TORCHES ?= $(DEFAULT_TORCH) 2.14.1 2.13.0 2.12.1 2.11.0
# The folder for the wheel, and the build folder of `make wheel`.
DIST ?= dist
WHEEL_BUILD ?= build/$(if $(filter off,$(CUDA)),wheel-cpu,wheel)
PYTHON ?= python3
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# The GPU code to build: auto (for this machine's GPU, if there is one), off, native, all (every architecture of a
# package), or a list such as 90-real. See scripts/build/build.sh.
CUDA ?= auto
# A build folder whose kernels are linked instead of compiled again for another torch. `make test` then tests only the
# rest.
KERNELS ?=
# Activations, separated by commas, to whose Python tests `make test` is restricted.
OP ?=
# ON: warnings are errors in the builds of `make test`, as in CI.
WERROR ?= OFF
# The sanitizers of `make sanitize`: address and undefined in one build, or thread. Its build contains one activation of
# each kind, because their own code consists of formulas without memory accesses and branches, and the row operators.
SANITIZER ?= address,undefined
SANITIZED ?= relu;relu6;selu;leaky_relu;hardtanh;hardswish;elu;softplus;sigmoid;gelu;silu;rows
# The instruction sets that `make sanitize` builds besides the baseline: the widest of this processor.
SANITIZED_ISAS ?= $(shell grep -qw avx512f /proc/cpuinfo && echo avx512 || echo avx2)
# The numbers of random calls of `make fuzz`: of the engine, and for each test of the operators. Every run has another
# seed, which is printed.
FUZZ_CASES ?= 100000
EXAMPLES ?= 10000
SEED ?= $(shell date +%s)
SEED := $(SEED)
# The folder in which `make report` looks for the results of `make bench` and `make prove`.
RESULTS ?= build
# More CMake options, such as CMAKE_ARGS=-DCMAKE_CXX_COMPILER=g++-13
CMAKE_ARGS ?=

# VENV is the user's environment, or one that this Makefile makes for each torch. Each has its own build folder.
ifeq ($(origin VENV),undefined)
ifeq ($(TORCH),$(DEFAULT_TORCH))
VENV := .venv
BUILD ?= build
else
VENV := .venv-$(TORCH)
BUILD ?= build/torch-$(TORCH)
endif
endif
BUILD ?= build/$(notdir $(VENV:%/=%))
LOCAL_PREFIX := $(BUILD)/prefix
COMMA := ,

# The library and the prefix that the Python tests and the benchmarks use.
export FASTACT_LIBRARY := $(abspath $(BUILD))/lib/libfastact.so
export FASTACT_PREFIX := $(abspath $(LOCAL_PREFIX))
export PATH := $(abspath $(VENV))/bin:$(PATH)
# Variables of scripts/build/build.sh and scripts/build/step.sh.
export VENV TORCH DEFAULT_TORCH CUDA JOBS PYTHON
FASTACT_STARTED ?= $(shell date +%s)
export FASTACT_STARTED := $(FASTACT_STARTED)
BUILD_ALL = @scripts/build/build.sh $(BUILD) -DFASTACT_KERNELS=$(if $(KERNELS),$(abspath $(KERNELS))) $(CMAKE_ARGS)
STEP = @scripts/build/step.sh
VENV_OF = $(if $(filter $(1),$(DEFAULT_TORCH)),.venv,.venv-$(1))
# The value of CUDA if it names architectures.
GPU_CODE = $(filter-out auto off native,$(CUDA))
# Runs the Python tests that are $(1), such as "not slow". A second torch tests only what depends on torch, with every
# value of each parameter instead of every pair of values.
PYTEST = env OMP_WAIT_POLICY=passive python -m pytest python_tests -rs -n $(JOBS) --maxschedchunk 1 \
  -m "$(1)$(if $(KERNELS), and not kernels and not newest)" $(if $(KERNELS),--strength 1)

.PHONY: help setup build install demo test test-slow sanitize fuzz prove digests docs report release wheel wheel-check \
  prove-selftest mutants exercises cuda-check bench bench-engine bench-models lint format arm-check gpu-check clean \
  distclean
.DEFAULT_GOAL := build

help:  ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
	  awk -F'|' '{ printf "  make %-18s %s\n", $$1, $$2 }'
	@echo "  TORCH=2.11.0 chooses another torch, VENV=... an environment of your own, CUDA=all|off|90-real"
	@echo "  the GPU code, BUILD=... the build folder, JOBS=4 the number of compilers, PYTHON=... the Python"

setup:  ## make the virtual environment with torch and the build tools
	$(STEP) "set-up" scripts/build/setup.sh $(VENV) $(TORCH)

build:  ## build build/lib/libfastact.so for this machine
	$(BUILD_ALL) -t fastact_aten

install: CUDA := package
install: BUILD := $(BUILD)/package
install:  ## build for every GPU architecture, and install to PREFIX (/usr/local)
	$(BUILD_ALL) -t fastact_aten
	$(STEP) "install to $(PREFIX)" cmake --install $(BUILD) --prefix $(PREFIX)

wheel: CUDA := all
wheel:  ## build a Python wheel for all TORCHES and GPU architectures; CUDA=off: for the CPU only
	scripts/build/wheel.sh $(WHEEL_BUILD) $(DIST) $(TORCHES)

wheel-check:  ## inspect the wheels in DIST, and test each in a new environment with each of TORCHES
	$(STEP) "check wheels" python3 scripts/build/wheel_check.py $(DIST) $(foreach t,$(TORCHES),$(call VENV_OF,$(t)))

release: DIST := dist/release
release: CUDA := all
release: setup .venv-release/.fastact-tools  ## build and check what is uploaded: sources and wheels, in dist/release
	$(STEP) "version" python scripts/build/release.py check
	rm -rf $(DIST)
	$(STEP) "sources" env FASTACT_TORCHES="$(TORCHES)" python scripts/build/release.py sdist $(DIST)
	$(MAKE) wheel wheel-check DIST=$(DIST) CUDA=$(CUDA)
	$(STEP) "files" python scripts/build/release.py files $(DIST)
	$(STEP) "twine" .venv-release/bin/twine check --strict $(DIST)/*

demo: build  ## train networks on handwritten digits in Python, and run them in C++
	$(STEP) "install to $(LOCAL_PREFIX)" cmake --install $(BUILD) --prefix $(LOCAL_PREFIX)
	$(STEP) "demo" python examples/digits/demo.py --prefix $(LOCAL_PREFIX) --build-dir $(BUILD)/digits
	@scripts/build/summary.sh $(BUILD)

# OMP_WAIT_POLICY: several processes share the cores, and a torch thread that spins while it waits takes time from the
# others (numbers, bits, the proof and torch.compile on two cores: 282 s with spinning, 223 s without).
test:  ## run GoogleTest, the installed package's tests, pytest; OP=gelu: only the Python tests of one activation
ifeq ($(OP),)
	$(BUILD_ALL) -DFASTACT_BUILD_TESTS=ON -DFASTACT_WERROR=$(WERROR)
	$(STEP) "install to $(LOCAL_PREFIX)" cmake --install $(BUILD) --prefix $(LOCAL_PREFIX)
	$(STEP) "C++ tests" ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error
	$(STEP) "Python tests" $(call PYTEST,not slow)
else
	$(BUILD_ALL) -t fastact_aten -t fastact_package
	$(STEP) "Python tests of $(OP)" $(call PYTEST,not slow) --op $(OP)
endif
	@scripts/build/summary.sh $(BUILD)

test-slow: build  ## run the Python tests that make test leaves out, because each starts programs or compilers
	cmake --build $(BUILD) --target fastact_package
	$(STEP) "install to $(LOCAL_PREFIX)" cmake --install $(BUILD) --prefix $(LOCAL_PREFIX)
	$(STEP) "slow Python tests" $(call PYTEST,slow)

sanitize: BUILD := $(BUILD)/$(subst $(COMMA),-,$(SANITIZER))
sanitize: CUDA := off
sanitize:  ## build and test with SANITIZER=address, undefined, both or thread
	$(BUILD_ALL) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFASTACT_BUILD_TESTS=ON \
	  -DFASTACT_SANITIZE=$(SANITIZER) "-DFASTACT_ONLY=$(SANITIZED)" "-DFASTACT_CPU_ISAS=$(SANITIZED_ISAS)"
	$(STEP) "tests under $(SANITIZER)" \
	  ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error

fuzz:  ## run the nightly tests: EXAMPLES random calls per test, FUZZ_CASES of the engine, threads, leaks
	$(BUILD_ALL) -DFASTACT_BUILD_TESTS=ON
	FASTACT_FUZZ_CASES=$(FUZZ_CASES) FASTACT_FUZZ_SEED=$(SEED) \
	  $(BUILD)/bin/fastact_ops_tests --gtest_filter='FuzzTest.*'
	FASTACT_FUZZ_EXAMPLES=$(EXAMPLES) FASTACT_FUZZ_SEED=$(SEED) FASTACT_NIGHTLY=1 python -m pytest -rs \
	  --hypothesis-seed=$(SEED) $(addprefix python_tests/test_,fuzz.py combinations.py concurrency.py resources.py)

prove: build  ## compare every result with the exact one; ARGS="--op selu --dtype float32" for a part
	python prove $(ARGS)

digests: build  ## compare the bits of this machine's instruction sets with the recorded digests
	$(STEP) "digests" python prove --digest $(ARGS)

prove-selftest: setup  ## break copies of the library: the proof must find each break
	python scripts/checks/prove_selftest.py --jobs $(JOBS)

mutants: setup  ## find out which tests find which deliberate breaks; ARGS="--only vmap --first"
	python scripts/checks/mutants.py --keep $(BUILD)/mutants --jobs $(JOBS) $(ARGS)

exercises:  ## perform the exercises of CONTRIBUTING in a copy of the tree; CUDA=90-real: with GPU code
	$(STEP) "set-up" scripts/build/setup.sh $(VENV) $(TORCH) $(if $(GPU_CODE),nvcc)
	$(STEP) "exercises" python scripts/checks/exercises.py --jobs $(JOBS) $(if $(GPU_CODE),--cuda "$(CUDA)")

cuda-check: CUDA := 90-real
cuda-check:  ## compile GPU code without a GPU, and run Inductor's formulas as PTX in an interpreter
	@scripts/checks/cuda_check.sh $(BUILD)/cuda-check

bench:  ## measure FastAct, PyTorch and a copy; ARGS="--quick --op selu" for a part
	scripts/build/google_benchmark.sh || true  # only the engine's benchmark needs it
	$(BUILD_ALL) -DFASTACT_BUILD_BENCHMARKS=ON
	python benchmarks $(ARGS)

bench-models: build  ## measure whole models with and without FastAct; ARGS="--network vit"
	cmake --build $(BUILD) --target fastact_package
	python benchmarks/models.py $(ARGS)

bench-engine:  ## measure the CPU engine without torch; ARGS=--benchmark_filter=selu/avx512
	scripts/build/google_benchmark.sh
	$(BUILD_ALL) -DFASTACT_BUILD_BENCHMARKS=ON
	$(BUILD)/bin/fastact_engine_benchmark $(ARGS)

report: build  ## write all generated pages and figures, with the new results in RESULTS (build)
	python benchmarks --report $(RESULTS)/bench
	python prove --report --results $(RESULTS)/prove
	python scripts/codegen/operator_pages.py

# An environment of its own for make docs and for make release.
.venv-%/.fastact-tools: requirements-%.txt
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --disable-pip-version-check --quiet -r $<
	touch $@

docs: .venv-docs/.fastact-tools  ## build the documentation as a static site in build/site
	$(STEP) "documentation" env NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

$(VENV)/.fastact-lint: requirements-lint.txt | setup
	python -m pip install --disable-pip-version-check --quiet -r requirements-lint.txt
	touch $@

# clang-tidy analyses files that include torch's headers in groups, like the build, because parsing these headers takes
# most of the time. `make lint CMAKE_ARGS=-DFASTACT_UNITY=OFF` analyses each file separately and finds missing includes.
# Precompiled headers are disabled, because they are GCC's.
lint: $(VENV)/.fastact-lint  ## check with clang-format, clang-tidy and ruff
	$(STEP) "configure" cmake -S . -B $(BUILD)/lint -G Ninja --log-level=WARNING \
	  -DPython3_EXECUTABLE=$(abspath $(VENV))/bin/python -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DFASTACT_UNITY=ON \
	  -DFASTACT_WITH_CUDA=OFF -DFASTACT_BUILD_TESTS=ON -DFASTACT_BUILD_BENCHMARKS=ON $(CMAKE_ARGS)
	$(STEP) "generated sources" cmake --build $(BUILD)/lint --target fastact_catalogue
	$(STEP) "lint" scripts/checks/lint.sh $(BUILD)/lint $(JOBS)

format: $(VENV)/.fastact-lint  ## format C++, CUDA and Python in place
	scripts/checks/format.sh

arm-check: setup  ## build the engine for 64-bit Arm, and test it in an emulator
	@scripts/checks/arm_check.sh $(BUILD)/arm

gpu-check:  ## build, test and measure on a GPU machine, with its own torch and nvcc
	scripts/checks/gpu_check.sh $(STEPS)

clean:  ## remove what was built
	rm -rf build dist

distclean: clean  ## remove the virtual environments too
	rm -rf .venv .venv-* .deps
