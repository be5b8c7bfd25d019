/* SPDX-License-Identifier: Apache-2.0 */
/* The file of measured rates. */
#include "fuzz.h"
#include "plan/rates.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    snug_context *ctx = fuzz_context();
    struct snug_rates rates;
    char *text;
    const snug_status status = snug_rates_read(ctx, fuzz_write("rates.json", data, size), &rates);
    FUZZ_CHECK_STATUS(ctx, status);
    if (status != SNUG_OK) return 0;
    FUZZ_CHECK(rates.count > 0);
    if (snug_rates_json(&rates, &text) == SNUG_OK) free(text);
    snug_rates_free(&rates);
    return 0;
}
