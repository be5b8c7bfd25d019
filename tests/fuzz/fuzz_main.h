/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzz.c has for those that call it: libFuzzer, or seeds.c. */
#ifndef SNUG_TESTS_FUZZ_MAIN_H
#define SNUG_TESTS_FUZZ_MAIN_H

#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A function in place of another: __real_x is x itself, and every x is __wrap_x (see CMakeLists.txt). */
#define WRAP(type, name, parameters)                                                                                   \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters

#endif
