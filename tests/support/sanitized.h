/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SNUG_TESTS_SANITIZED_H
#define SNUG_TESTS_SANITIZED_H

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

#endif
