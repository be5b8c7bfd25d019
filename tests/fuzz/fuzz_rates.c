/* SPDX-License-Identifier: Apache-2.0 */
/* The file of measured rates. */
#include "fuzz.h"
#include "measure/rates.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    struct snug_rates rates;
    char *text;
    const char *path = fuzz_file(FUZZ_FOLDER "/rates.json", data, size);
    if (!fuzz_accepts(ctx, snug_rates_read(ctx, path, &rates))) return;
    FUZZ_CHECK(rates.count > 0);
    if (snug_rates_json(&rates, &text) == SNUG_OK) free(text);
    snug_rates_free(&rates);
}
