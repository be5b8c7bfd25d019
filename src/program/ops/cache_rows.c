/* SPDX-License-Identifier: Apache-2.0 */
#include "program/op.h"

const struct snug_op_info snug_op_cache_rows_info = {
    .name = "cache_rows",
    .group = SNUG_GROUP_ELEMENTWISE,
    .operands = {{"q", SNUG_MODIFY, SNUG_OPTIONAL},
                 {"k", SNUG_MODIFY, 0},
                 {"v", SNUG_READ, 0},
                 {"keys", SNUG_MODIFY, 0},
                 {"values", SNUG_MODIFY, 0}},
};
