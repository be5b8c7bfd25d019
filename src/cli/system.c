/* SPDX-License-Identifier: Apache-2.0 */
#include "system.h"

#include <stdlib.h>
#include <time.h>

double cli_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

bool cli_is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}
