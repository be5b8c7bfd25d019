/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka, and tests that register themselves, in the order of the file: no list repeats their names. */
#ifndef SNUG_TESTS_TEST_H
#define SNUG_TESTS_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct CMUnitTest registered_tests[256];
static size_t registered_count;

#define REGISTER_TEST(name, set_up, tear_down)                                                                         \
    static void name(void **);                                                                                         \
    __attribute__((constructor)) static void register_##name(void) {                                                   \
        registered_tests[registered_count++] = (struct CMUnitTest){#name, name, set_up, tear_down, NULL};              \
    }

/* TEST(name) { … } */
#define TEST(name)                                                                                                     \
    REGISTER_TEST(name, NULL, NULL)                                                                                    \
    static void name(__attribute__((unused)) void **state)

/* TEST_IN(name, struct fixture *f, set_up, tear_down) { … }: f is what set_up made. FIXTURE_TEST(name) { … }: the last
   three are the file's FIXTURE. */
#define TEST_IN_FIXTURE(name, variable, set_up, tear_down)                                                             \
    __attribute__((noinline)) static void name##_in(variable);                                                         \
    REGISTER_TEST(name, set_up, tear_down)                                                                             \
    static void name(void **state) { name##_in(*state); }                                                              \
    static void name##_in(__attribute__((unused)) variable) /* NOLINT(bugprone-macro-parentheses): a parameter */
#define TEST_IN(...) TEST_IN_FIXTURE(__VA_ARGS__)
#define FIXTURE_TEST(name) TEST_IN(name, FIXTURE)

/* Runs those whose names match cmocka's filter, if one is set. */
static inline int run_registered(CMFixtureFunction set_up, CMFixtureFunction tear_down) {
    return _cmocka_run_group_tests(program_invocation_short_name, registered_tests, registered_count, set_up,
                                   tear_down);
}

/* A program that does nothing else: build/test_NAME [PATTERN] */
#define TEST_MAIN(set_up, tear_down)                                                                                   \
    int main(int argc, char **argv) {                                                                                  \
        if (argc > 1) cmocka_set_test_filter(argv[1]);                                                                 \
        return run_registered(set_up, tear_down);                                                                      \
    }

#endif
