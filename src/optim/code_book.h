/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that the codes of 8-bit optimizer states stand for: bitsandbytes' dynamic maps (Dettmers, arXiv:1511.04561
 * and arXiv:2110.02861). Seven decades up to 1; decade i, ending at 10^(i-6), is cut into 2^i equal intervals on either
 * side of 0 in the signed map, into 2^(i+1) above 0 in the unsigned one. A code is the middle of its interval; 0 and 1
 * are codes too. Codes grow with their values.
 */
#ifndef SNUG_OPTIM_CODE_BOOK_H
#define SNUG_OPTIM_CODE_BOOK_H

#include <stdbool.h>

enum { SNUG_CODES = 256, SNUG_SIGNED_ZERO = 127 /* the code of 0 in the signed book */ };

/* Bit for bit what bitsandbytes computes with PyTorch on processors with fused multiply-add. */
void snug_code_book(bool has_sign, float book[SNUG_CODES]);

/* What separates a code from the next. */
static inline float snug_code_middle(const float *book, int code) { return (book[code] + book[code + 1]) * 0.5f; }

/* The code whose value is nearest to x; in the middle of two, the even one. */
int snug_nearest_code(const float book[SNUG_CODES], double x);

#endif
