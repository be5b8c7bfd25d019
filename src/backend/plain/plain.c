/* SPDX-License-Identifier: Apache-2.0 */
/* Builds without oneDNN use the reference backend instead of the fast CPU backend. */
#include <stdio.h>

#include "backend/backend.h"

const struct snug_backend *snug_backend_cpu(void) { return snug_backend_reference(); }

const struct snug_backend *snug_backend_cpu_isa(const char *isa) {
    (void)isa;
    return NULL;
}

void snug_backend_cpu_describe(char *text, size_t size) {
    snprintf(text, size, "plain C, slow: this build has no oneDNN");
}

bool snug_backend_cpu_fast_bf16(void) { return false; }
