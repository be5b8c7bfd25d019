# SPDX-License-Identifier: Apache-2.0
# The commands do all the set-up on Debian or Ubuntu. For users: make, make demo, make install, make uninstall, make wheel, make
# tarball, make wheel-cuda, make deb; for developers: make test, make check, make test-arm64, make lint, make tsan, make fuzz, make rank-bits, make format, make clean.
# Where nvcc is found, the CUDA plug-in is compiled, too, for the GPU that is here, or for all: make SNUG_CUDA=OFF leaves it out.

BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# Matmuls are oneDNN's on x86-64 only.
PACKAGES := gcc g++ cmake make ninja-build pkg-config libcurl4-openssl-dev $(if $(filter x86_64,$(shell uname -m)),libdnnl-dev) libjansson-dev \
    libutf8proc-dev libxxhash-dev nettle-dev zlib1g-dev
TEST_PACKAGES := $(PACKAGES) libcmocka-dev libopenmpi-dev openmpi-bin libmpich-dev mpich iproute2 \
    dpkg-dev

# The CUDA plug-in: AUTO where there is nvcc, ON, OFF.
SNUG_CUDA ?= AUTO

# ON in CI: warnings are errors in the build of `make test`, as in those of `make check`, `make lint` and `make tsan` always.
WERROR ?= OFF

# OFF in CI, where no backtrace is read: the build of `make test` then has no lines of functions.
DEBUG_INFO ?= ON

# What the CUDA plug-in is compiled for, and nvcc's flags in `make test`. CUDA is NATIVE (the GPU that is here), ALL, or compute
# capabilities (CUDA=90); where it is not given, packages are for ALL, and the rest as before in this folder, or NATIVE. CI, which
# does not run the plug-in, takes one capability and no optimization: a quarter of the time.
CUDA ?=
architectures = $(if $(or $(CUDA),$(1)),'-DSNUG_CUDA_ARCHITECTURES=$(or $(CUDA),$(1))')
NVCC_FLAGS ?=

# How long `make fuzz` runs each target, JOBS of them at a time: seconds, or executions where RUNS is given (make fuzz
# RUNS=10000000); FUZZ=reader runs some targets alone.
FUZZ_SECONDS ?= 4

.PHONY: all arm64 test-arm64 install uninstall deb wheel tarball wheel-cuda demo test check check-long rank-bits sanitize tsan lint fuzz format format-check clean

# Ninja, where it is: its files start no processes but compilers and linkers. A folder that has other files keeps them.
# configure FOLDER OPTIONS; prints the output of cmake only if it fails, and what the CUDA plug-in is compiled for
configure = @mkdir -p $(1) && CMAKE_GENERATOR="$$(command -v ninja > /dev/null && echo Ninja || echo Unix Makefiles)" cmake -S . -B $(1) $(2) > $(1)/configure.log 2>&1 || { cat $(1)/configure.log; exit 1; }; \
    sed -n 's/^-- \(the CUDA plug-in is compiled\)/\1/p' $(1)/configure.log
build = @cmake --build $(1) --parallel $(JOBS) --target $(2)
# Four tests more than there are processors: some only wait for signals and processes.
ctest = ctest --test-dir $(1) --output-on-failure --no-tests=error --parallel $(shell echo $$(($(JOBS) + 4)))

all:
	@tools/install-packages $(PACKAGES)
	$(call configure,$(BUILD),-DSNUG_TESTS=OFF -DSNUG_CUDA=$(SNUG_CUDA) $(architectures))
	$(call build,$(BUILD),all)

install:
	@tools/install-packages $(PACKAGES)
	$(call configure,$(BUILD),-DSNUG_TESTS=OFF -DSNUG_CUDA=$(SNUG_CUDA) $(architectures) -DCMAKE_INSTALL_PREFIX=$(abspath $(PREFIX)))
	$(call build,$(BUILD),all)
	@DESTDIR="$(DESTDIR)" tools/package/install install $(BUILD) $(abspath $(PREFIX))

# Removes what make install wrote to the same PREFIX and DESTDIR.
uninstall:
	@DESTDIR="$(DESTDIR)" tools/package/install uninstall $(abspath $(PREFIX))

# A Debian package of what this machine can build: with the CUDA backend where there is nvcc.
deb:
	@tools/install-packages $(PACKAGES) dpkg-dev
	$(call configure,$(BUILD),-DSNUG_TESTS=OFF -DSNUG_CUDA=$(SNUG_CUDA) $(call architectures,ALL) -DCMAKE_INSTALL_PREFIX=/usr)
	$(call build,$(BUILD),all)
	@tools/package/deb $(BUILD) $(BUILD)

# For every x86-64 Linux with glibc 2.28 or later, with all libraries inside, for the CPU (tools/portable).
wheel tarball:
	@tools/install-packages $(PACKAGES) binutils dpkg-dev mmdebstrap python3-venv
	$(call configure,$(BUILD)-portable,-DSNUG_TESTS=OFF -DSNUG_PORTABLE=ON -DSNUG_CUDA=OFF)
	$(call build,$(BUILD)-portable,snug_wheel snug_manual)
	@mkdir -p $(BUILD)
	@tools/portable/pack $@ $(BUILD)-portable $(BUILD)

# The CUDA plug-in for that wheel; it takes cuBLASLt from NVIDIA's packages.
wheel-cuda:
	@tools/install-packages $(PACKAGES) binutils dpkg-dev python3-venv
	$(call configure,$(BUILD)-portable-cuda,-DSNUG_TESTS=OFF -DSNUG_PORTABLE=ON -DSNUG_CUDA=ON -DSNUG_ONEDNN=OFF -DSNUG_CURL=OFF $(call architectures,ALL))
	$(call build,$(BUILD)-portable-cuda,snug_cuda)
	@mkdir -p $(BUILD)
	@tools/portable/pack wheel_cuda $(BUILD)-portable-cuda $(BUILD)

demo:
	@tools/install-packages $(PACKAGES)
	$(call configure,$(BUILD),-DSNUG_TESTS=OFF -DSNUG_CUDA=$(SNUG_CUDA) $(architectures))
	$(call build,$(BUILD),snug_cli)
	@examples/demo.sh $(BUILD)/snug

test:
	@tools/install-packages $(TEST_PACKAGES)
	$(call configure,$(BUILD),-DSNUG_TESTS=ON -DSNUG_CUDA=$(SNUG_CUDA) -DSNUG_WERROR=$(WERROR) -DSNUG_DEBUG_INFO=$(DEBUG_INFO) $(architectures) $(if $(NVCC_FLAGS),-DCMAKE_CUDA_FLAGS=$(NVCC_FLAGS)))
	$(call build,$(BUILD),all)
	@$(call ctest,$(BUILD))

# The format, and all tests again: with clang, under the sanitizers, counting the lines and branches that they run.
check: format-check sanitize

# A cross-compiled snug for aarch64 Linux: $(BUILD)-arm64/snug; on an ARM machine, `make` builds one. Debian's cross compiler, and its
# libraries in a folder of the build.
ARM64_PACKAGES := cmake gcc-aarch64-linux-gnu make mmdebstrap ninja-build pkg-config qemu-user
ARM64_OPTIONS = -DCMAKE_TOOLCHAIN_FILE=tools/arm64/aarch64.cmake -DSNUG_SYSROOT=$(BUILD)-arm64/root -DSNUG_CUDA=OFF -DSNUG_WERROR=ON -DSNUG_DEBUG_INFO=OFF
arm64:
	@tools/install-packages $(ARM64_PACKAGES)
	@tools/arm64/arm64-root $(BUILD)-arm64/root
	$(call configure,$(BUILD)-arm64,$(ARM64_OPTIONS) -DSNUG_TESTS=OFF)
	$(call build,$(BUILD)-arm64,snug_cli)

# Tests of it in qemu-user's emulator: ARM64_TESTS names them. Of test_ops and test_golden a part (tests/CMakeLists.txt).
ARM64_TESTS ?= test_adam8bit test_core test_differentiate test_dropout test_golden test_op_properties test_ops test_optimizers test_pace \
    test_plan test_safetensors test_session test_tokenizer test_tokenizer_parts test_weights
empty :=
test-arm64:
	@tools/install-packages $(ARM64_PACKAGES)
	@tools/arm64/arm64-root $(BUILD)-arm64/root
	$(call configure,$(BUILD)-arm64,$(ARM64_OPTIONS) -DSNUG_TESTS=ON)
	$(call build,$(BUILD)-arm64,snug_cli $(ARM64_TESTS))
	@ctest --test-dir $(BUILD)-arm64 --output-on-failure --no-tests=error --parallel $(JOBS) -R '^($(subst $(empty) ,|,$(strip $(ARM64_TESTS))))$$'

# Before a release, in some hours: all variants of the tests, of which `make test` runs a part, and the searches of tools/long.
check-long:
	@tools/install-packages $(TEST_PACKAGES)
	$(call configure,$(BUILD),-DSNUG_TESTS=ON)
	$(call build,$(BUILD),all)
	@SNUG_LONG=1 $(call ctest,$(BUILD))
	@OMP_WAIT_POLICY=passive $(BUILD)/test_differentiate 400 4000
	@SNUG_MIXES=1000 OMP_WAIT_POLICY=passive $(BUILD)/test_mixes
	@$(MAKE) --no-print-directory rank-bits KILLS=50
	@tools/long/kill-test 200
	@tools/long/kill-test --interrupt 100
	@tools/long/folder-fuzz 2000
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=60
	@tools/long/failure-test $(JOBS)

# The bits of 3, 4 and 8 CPU ranks in every ZeRO stage: of whole runs, and of runs that are killed KILLS times and resumed on
# other numbers of ranks.
rank-bits:
	@tools/install-packages $(TEST_PACKAGES)
	$(call configure,$(BUILD),-DSNUG_TESTS=ON)
	$(call build,$(BUILD),test_zero test_ranks_failure)
	@SNUG_LONG=1 SNUG_RANKS_MOST=8 $(BUILD)/test_zero test_stages_have_the_same_bits
	@SNUG_RANKS_MOST=8 SNUG_RANK_KILLS=$(or $(KILLS),12) $(BUILD)/test_ranks_failure test_kills_at_random

sanitize:
	$(call configure,$(BUILD)-asan,-DCMAKE_C_COMPILER=clang -DSNUG_SANITIZE=ON -DSNUG_WERROR=ON -DSNUG_COVERAGE=ON -DSNUG_CUDA=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo)
	$(call build,$(BUILD)-asan,all)
	@rm -rf $(BUILD)-asan/coverage
	@LLVM_PROFILE_FILE=$(abspath $(BUILD)-asan)/coverage/%m.profraw $(call ctest,$(BUILD)-asan)
	@tools/coverage $(BUILD)-asan check 95

# Data races, by ThreadSanitizer; and the build without libcurl.
tsan:
	@tools/install-packages $(PACKAGES) clang libomp-dev
	$(call configure,$(BUILD)-tsan,-DCMAKE_C_COMPILER=clang -DSNUG_SANITIZE=thread -DSNUG_WERROR=ON -DSNUG_TESTS=OFF -DSNUG_CUDA=OFF -DSNUG_CURL=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo)
	$(call build,$(BUILD)-tsan,snug_cli)
	@tests/package/test_races.sh $(BUILD)-tsan

# clang-tidy and cppcheck on all C, including the host code of the CUDA backend (with the emulator's headers). Builds nothing.
lint:
	@tools/install-packages $(TEST_PACKAGES) clang clang-tidy cppcheck libomp-dev python3
	$(call configure,$(BUILD)-lint,-DCMAKE_C_COMPILER=clang -DSNUG_FUZZ=ON -DSNUG_WERROR=ON -DSNUG_CUDA=EMULATE -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
	@tools/check-includes
	@tools/lint $(BUILD)-lint $(FILES)

fuzz:
	$(call configure,$(BUILD)-fuzz,-DCMAKE_C_COMPILER=clang -DSNUG_FUZZ=ON -DSNUG_TESTS=OFF -DSNUG_CUDA=OFF -DSNUG_ONEDNN=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo)
	$(call build,$(BUILD)-fuzz,fuzz_targets)
	@JOBS=$(JOBS) tests/fuzz/run $(BUILD)-fuzz $(if $(RUNS),runs $(RUNS),seconds $(FUZZ_SECONDS)) $(FUZZ)

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

format-check:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format --dry-run --Werror

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-lint $(BUILD)-fuzz $(BUILD)-arm64 $(BUILD)-portable $(BUILD)-portable-cuda
