# `make help` lists what can be made. Needs python3 (3.11 or newer, with venv; 3.10 for torch up to 2.14) and GCC 11 or newer.

DEFAULT_TORCH := 2.15.0
TORCH ?= $(DEFAULT_TORCH)
# The versions of torch that make wheel makes a wheel for; the kernels are built with the first.
TORCHES ?= $(DEFAULT_TORCH) 2.14.1 2.13.0 2.12.1 2.11.0
# Where it puts the wheel, and the folder that it builds in.
DIST ?= dist
WHEEL_BUILD ?= build/$(if $(filter off,$(CUDA)),wheel-cpu,wheel)
PYTHON ?= python3
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# The GPU code that is built: auto (this machine's GPU; none where there is none), off, native, all (the
# architectures that a package has), or a list, such as 90-real. scripts/build.sh says more.
CUDA ?= auto
# Another build folder whose kernels are used, in place of compiling them again for another torch:
# what make test TORCH=... then tests is the rest.
KERNELS ?=
# One activation, or several by commas, whose tests make test runs, in place of all.
OP ?=
# Whether warnings are errors in what is built for tests (ON or OFF); in CI they are.
WERROR ?= OFF
# What make sanitize builds with: address and undefined in one build, or thread; and the activations,
# one of each kind, as no other code is theirs than formulas without memory or branches.
SANITIZER ?= address,undefined
SANITIZED ?= relu;selu;leaky_relu;hardtanh;hardswish;elu;softplus;sigmoid;gelu
# What make fuzz tries: calls of the engine, and for each test of the operators. The seed is another
# one at every run, and is shown.
FUZZ_CASES ?= 100000
EXAMPLES ?= 10000
SEED ?= $(shell date +%s)
SEED := $(SEED)
# Where make report finds new results: the folders bench and prove, as make bench and make prove leave them.
RESULTS ?= build
# The environment of make docs.
DOCS_VENV := .venv-docs
# More CMake settings, such as CMAKE_ARGS=-DCMAKE_CXX_COMPILER=g++-13
CMAKE_ARGS ?=

# An environment of one's own, or one that this Makefile makes for each torch; a build folder for each.
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

# What the Python tests and the benchmarks load.
export FASTACT_LIBRARY := $(abspath $(BUILD))/lib/libfastact.so
export FASTACT_PREFIX := $(abspath $(LOCAL_PREFIX))
export PATH := $(abspath $(VENV))/bin:$(PATH)
# What scripts/build.sh and scripts/step.sh read.
export VENV TORCH DEFAULT_TORCH CUDA JOBS PYTHON
FASTACT_STARTED ?= $(shell date +%s)
export FASTACT_STARTED := $(FASTACT_STARTED)
BUILD_ALL = @scripts/build.sh $(BUILD) -DFASTACT_KERNELS=$(if $(KERNELS),$(abspath $(KERNELS))) $(CMAKE_ARGS)
STEP = @scripts/step.sh
VENV_OF = $(if $(filter $(1),$(DEFAULT_TORCH)),.venv,.venv-$(1))
# CUDA, if it names architectures.
GPU_CODE = $(filter-out auto off native,$(CUDA))
# pytest's -k and GoogleTest's filter for OP=gelu,mish
PYTEST_OF_OP = $(if $(OP),-k "$(subst $(COMMA), or ,$(OP))")
GTEST_OF_OP = *$(subst $(COMMA),*:*,$(OP))*

.PHONY: help setup build install demo test sanitize fuzz prove digests docs report wheel wheel-check prove-selftest \
  mutants exercises cuda-check bench bench-engine bench-models lint format arm-check gpu-check clean distclean
.DEFAULT_GOAL := build

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
	  awk -F'|' '{ printf "  make %-18s %s\n", $$1, $$2 }'
	@echo "  TORCH=2.11.0 chooses another torch, VENV=... an environment of your own, CUDA=all|off|90-real"
	@echo "  the GPU code, BUILD=... the build folder, JOBS=4 the number of compilers, PYTHON=... the Python"

setup:  ## the virtual environment with torch and the build tools
	$(STEP) "set-up" scripts/setup.sh $(VENV) $(TORCH)

build:  ## build/lib/libfastact.so, for this machine
	$(BUILD_ALL) -t fastact_aten

install: CUDA := package
install: BUILD := $(BUILD)/package
install:  ## build for every GPU architecture, and install to PREFIX (/usr/local)
	$(BUILD_ALL) -t fastact_aten
	$(STEP) "install to $(PREFIX)" cmake --install $(BUILD) --prefix $(PREFIX)

wheel: CUDA := all
wheel:  ## a Python wheel for all TORCHES with the code of every GPU architecture; CUDA=off: for the CPU
	scripts/wheel.sh $(WHEEL_BUILD) $(DIST) $(TORCHES)

wheel-check:  ## the wheels in DIST: what is in them; each in a fresh environment for each of TORCHES
	$(STEP) "check wheels" python3 scripts/wheel_check.py $(DIST) $(foreach t,$(TORCHES),$(call VENV_OF,$(t)))

demo: build  ## train on handwritten digits in Python, run the archives in C++
	$(STEP) "install to $(LOCAL_PREFIX)" cmake --install $(BUILD) --prefix $(LOCAL_PREFIX)
	$(STEP) "demo" python examples/digits/demo.py --prefix $(LOCAL_PREFIX) --build-dir $(BUILD)/digits
	@scripts/summary.sh $(BUILD)

# Several processes share the cores: a thread of torch's that waits by spinning takes the time of another
# (numbers, bits, the proof and torch.compile on two cores: 282 s with spinning, 223 s without).
test:  ## GoogleTest, the installed package, pytest; OP=gelu: the tests of one activation
	$(BUILD_ALL) -DFASTACT_BUILD_TESTS=ON -DFASTACT_WERROR=$(WERROR)
	$(STEP) "install to $(LOCAL_PREFIX)" cmake --install $(BUILD) --prefix $(LOCAL_PREFIX)
ifeq ($(OP),)
	$(STEP) "C++ tests" ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error
else ifeq ($(KERNELS),)
	$(STEP) "C++ tests of $(OP)" $(BUILD)/bin/fastact_ops_tests --gtest_brief=1 "--gtest_filter=$(GTEST_OF_OP)"
endif
	$(STEP) "Python tests" env OMP_WAIT_POLICY=passive python -m pytest python_tests -rs -n $(JOBS) \
	  $(if $(KERNELS),-m "not kernels and not newest") $(PYTEST_OF_OP)
	@scripts/summary.sh $(BUILD)

sanitize: BUILD := $(BUILD)/$(subst $(COMMA),-,$(SANITIZER))
sanitize: CUDA := off
sanitize:  ## SANITIZER=address, undefined, both or thread: build for the CPU and test with it
	$(BUILD_ALL) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFASTACT_BUILD_TESTS=ON \
	  -DFASTACT_SANITIZE=$(SANITIZER) "-DFASTACT_ONLY=$(SANITIZED)"
	$(STEP) "tests under $(SANITIZER)" \
	  ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error

fuzz:  ## nightly: EXAMPLES random calls a test, FUZZ_CASES of the engine, threads, leaks
	$(BUILD_ALL) -DFASTACT_BUILD_TESTS=ON
	FASTACT_FUZZ_CASES=$(FUZZ_CASES) FASTACT_FUZZ_SEED=$(SEED) \
	  $(BUILD)/bin/fastact_ops_tests --gtest_filter='FuzzTest.*'
	FASTACT_FUZZ_EXAMPLES=$(EXAMPLES) FASTACT_FUZZ_SEED=$(SEED) FASTACT_NIGHTLY=1 python -m pytest -rs \
	  --hypothesis-seed=$(SEED) $(addprefix python_tests/test_,fuzz.py combinations.py concurrency.py resources.py)

prove: build  ## every result against the exact one; ARGS="--op selu --dtype float32" for a part
	python prove $(ARGS)

digests: build  ## the bits of this machine's instruction sets against those of all others
	$(STEP) "digests" python prove --digest $(ARGS)

prove-selftest: setup  ## break copies of the library: the proof must notice
	python scripts/prove_selftest.py --jobs $(JOBS)

mutants: setup  ## which tests catch which deliberate breaks of the library; ARGS="--only vmap --first"
	python scripts/mutants.py --keep $(BUILD)/mutants --jobs $(JOBS) $(ARGS)

exercises:  ## "Add an activation" and "Add a form" of CONTRIBUTING in a copy of the tree; CUDA=90-real: with GPU code
	$(STEP) "set-up" scripts/setup.sh $(VENV) $(TORCH) $(if $(GPU_CODE),nvcc)
	$(STEP) "exercises" python scripts/exercises.py --jobs $(JOBS) $(if $(GPU_CODE),--cuda "$(CUDA)")

cuda-check: CUDA := 90-real
cuda-check:  ## compile GPU code without a GPU: every form as PTX, which an interpreter runs
	@scripts/cuda_check.sh $(BUILD)/cuda-check

bench:  ## FastAct beside PyTorch and a copy; ARGS="--quick --op selu" for a part
	scripts/google_benchmark.sh || true  # the engine's benchmark alone needs it
	$(BUILD_ALL) -DFASTACT_BUILD_BENCHMARKS=ON
	python benchmarks $(ARGS)

bench-models: build  ## whole models with and without FastAct, unedited; ARGS="--network vit"
	cmake --build $(BUILD) --target fastact_package
	python benchmarks/models.py $(ARGS)

bench-engine:  ## the CPU engine without torch; ARGS=--benchmark_filter=selu/avx512
	scripts/google_benchmark.sh
	$(BUILD_ALL) -DFASTACT_BUILD_BENCHMARKS=ON
	$(BUILD)/bin/fastact_engine_benchmark $(ARGS)

report: build  ## all generated pages and figures, with the new results in RESULTS (build)
	python benchmarks --report $(RESULTS)/bench
	python prove --report --results $(RESULTS)/prove
	python scripts/operator_pages.py

$(DOCS_VENV)/.fastact-docs: requirements-docs.txt
	$(PYTHON) -m venv --clear $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --disable-pip-version-check --quiet -r requirements-docs.txt
	touch $@

docs: $(DOCS_VENV)/.fastact-docs  ## the documentation as a static site in build/site
	$(STEP) "documentation" env NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet

$(VENV)/.fastact-lint: requirements-lint.txt | setup
	python -m pip install --disable-pip-version-check --quiet -r requirements-lint.txt
	touch $@

# Files that include torch's headers are analysed several at a time, as the build compiles them, because parsing the
# headers takes most of the time. make lint CMAKE_ARGS=-DFASTACT_UNITY=OFF analyses each file on its own, and so finds
# missing includes. Precompiled headers are GCC's.
lint: $(VENV)/.fastact-lint  ## clang-format, clang-tidy and ruff
	$(STEP) "configure" cmake -S . -B $(BUILD)/lint -G Ninja --log-level=WARNING \
	  -DPython3_EXECUTABLE=$(abspath $(VENV))/bin/python -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DFASTACT_UNITY=ON \
	  -DFASTACT_WITH_CUDA=OFF -DFASTACT_BUILD_TESTS=ON -DFASTACT_BUILD_BENCHMARKS=ON $(CMAKE_ARGS)
	$(STEP) "generated sources" cmake --build $(BUILD)/lint --target fastact_catalogue
	$(STEP) "lint" scripts/lint.sh $(BUILD)/lint $(JOBS)

format: $(VENV)/.fastact-lint  ## format C++, CUDA and Python in place
	scripts/format.sh

arm-check: setup  ## build the engine for 64-bit Arm, test it and its digests in an emulator
	@scripts/arm_check.sh $(BUILD)/arm

gpu-check:  ## build, test and time on a GPU machine, with its own torch and nvcc
	scripts/gpu_check.sh $(STEPS)

clean:  ## remove what was built
	rm -rf build dist

distclean: clean  ## remove the virtual environments too
	rm -rf .venv .venv-* .deps
