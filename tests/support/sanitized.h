/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SNUG_TESTS_SANITIZED_H
#define SNUG_TESTS_SANITIZED_H

#include <stdbool.h>
#include <stdlib.h>

/* Whether AddressSanitizer is active: memory figures then mean nothing, and everything takes several times as long. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Where a test has many similar cases, it runs a part of them; `make check-long` sets SNUG_LONG, and runs all. */
static inline bool is_long(void) { return getenv("SNUG_LONG"); }

/* Whether case number i is among every nth, others in the sanitized build. The first one always is. */
static inline bool is_chosen(long i, long nth) { return is_long() || i == 0 || i % nth == !SANITIZED; }

#endif
