/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of updates, a file each: what every element of a weight computes, on all backends but the reference,
 * which computes in double. A step of a weight has the same bits wherever it is computed, because the formulas consist
 * of additions, subtractions, multiplications, divisions and square roots, each rounded to the nearest fp32 as IEEE 754
 * prescribes, in the order that C prescribes. So
 * - a file that includes a formula is compiled without contraction of a * b + c (-ffp-contract=off, --fmad=false) and
 *   without flushing subnormal numbers: processors without fused multiply-add have the same bits, too;
 * - a product of three factors has the order that is written here.
 * Only the payload of a NaN may differ.
 *
 * SNUG_REAL is the type of values: float, or a vector of them; SNUG_REAL_ROOT its square root.
 */
#ifndef SNUG_OPTIM_FORMULAS_FORMULA_H
#define SNUG_OPTIM_FORMULAS_FORMULA_H

#include <math.h>

#include "optim/update_numbers.h"

#ifndef SNUG_REAL
#define SNUG_REAL float
#define SNUG_REAL_ROOT sqrtf
#endif

#endif
