/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of this machine, measured for `snug bench rates`. measure/rates.c measures them, because the search for a
 * memory budget needs them too. */
#include "measure/rates.h"

#include <stdlib.h>

#include "train/device.h"
#include "train/threads.h"

static snug_status create_rates(snug_args *args, snug_rates **out) {
    struct snug_device device;
    void *memory;
    char *path = NULL;
    const int threads = snug_args_threads(args);
    RETURN_IF_ERROR(snug_threads_check(args->ctx, threads));
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_rates *rates = memory;
    snug_status status = snug_device_choose(args, threads, &device);
    if (status == SNUG_OK)
        status = snug_rates_measure(args->ctx, device.backend, snug_device_gpu(&device), threads, rates);
    snug_device_close(&device);
    if (status != SNUG_OK) {
        snug_rates_destroy(rates);
        return status;
    }
    if (snug_rates_keep(rates, &path) != SNUG_OK) {
        snug_log(args->ctx, SNUG_LOG_WARNING, "the rates are not stored: %s", snug_context_message(args->ctx));
        snug_clear_error(args->ctx);
    }
    if (path) snug_log(args->ctx, SNUG_LOG_INFO, "stored in %s", path);
    free(path);
    *out = rates;
    return SNUG_OK;
}

snug_status snug_rates_create(snug_args *args, snug_rates **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, create_rates(args, out));
}

void snug_rates_destroy(snug_rates *rates) {
    if (!rates) return;
    snug_rates_free(rates);
    free(rates);
}
