# SPDX-License-Identifier: Apache-2.0
# The two commands that do all the set-up on Debian or Ubuntu: `make demo` and `make test`.

BUILD ?= build
JOBS ?= $(shell nproc)
BUILD_PACKAGES := gcc g++ cmake make pkg-config libdnnl-dev libjansson-dev libutf8proc-dev libxxhash-dev
TEST_PACKAGES := libcmocka-dev python3

.PHONY: all demo test check sanitize clang format lint clean packages test-packages bench

all: packages
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@cmake --build $(BUILD) --parallel $(JOBS) -- --no-print-directory

demo: all
	@examples/demo.sh $(BUILD)/snug

test: test-packages all
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error

# Everything that CI holds beside `make test`: the other compiler, the sanitizers, the format.
check: format-check clang sanitize

clang:
	@CC=clang cmake -S . -B $(BUILD)-clang -DSNUG_TESTS=ON > $(BUILD)-clang.log 2>&1 || { cat $(BUILD)-clang.log; exit 1; }
	@cmake --build $(BUILD)-clang --parallel $(JOBS)

sanitize:
	@cmake -S . -B $(BUILD)-asan -DSNUG_SANITIZE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo > $(BUILD)-asan.log 2>&1 || { cat $(BUILD)-asan.log; exit 1; }
	@cmake --build $(BUILD)-asan --parallel $(JOBS)
	@ctest --test-dir $(BUILD)-asan --output-on-failure --no-tests=error

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

.PHONY: format-check
format-check:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format --dry-run --Werror

clean:
	@rm -rf $(BUILD) $(BUILD)-clang $(BUILD)-asan $(BUILD)*.log

packages:
	@tools/install-packages $(BUILD_PACKAGES)

test-packages:
	@tools/install-packages $(TEST_PACKAGES)
