/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quantization maps of 8-bit optimizer states: bitsandbytes' dynamic maps (Dettmers, arXiv:1511.04561 and
 * arXiv:2110.02861). A map has seven decades up to 1. Decade i ends at 10^(i-6). The signed map divides it into 2^i
 * equal intervals on each side of 0, the unsigned map into 2^(i+1) intervals above 0. A code's value is the midpoint of
 * its interval; 0 and 1 have codes too. Codes increase with their values.
 */
#ifndef SNUG_OPTIM_QUANTIZATION_MAP_H
#define SNUG_OPTIM_QUANTIZATION_MAP_H

#include <stdbool.h>

enum { SNUG_CODES = 256, SNUG_SIGNED_ZERO = 127 /* the code of 0 in the signed map */ };

/* Bit for bit what bitsandbytes computes with PyTorch on processors with fused multiply-add. */
void snug_quantization_map(bool has_sign, float map[SNUG_CODES]);

/* The midpoint between a code and the next one. */
static inline float snug_code_middle(const float *map, int code) { return (map[code] + map[code + 1]) * 0.5f; }

/* The code whose value is nearest to x; at a midpoint, the even code. */
int snug_nearest_code(const float map[SNUG_CODES], double x);

#endif
