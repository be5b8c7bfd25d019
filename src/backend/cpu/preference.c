/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of pairs of sequences, from the cross entropies of their loss positions. */
#include "program/preference.h"
#include "backend/cpu/rows.h"

snug_status SNUG_KERNEL(preference)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_preference *p = &op->preference;
    const struct snug_batch *batch = run->batch;
    const float *rows = snug_run_data(run, p->rows);
    double *sums = snug_run_data(run, p->sums), loss = 0, result[SNUG_PREFERENCE_RESULTS] = {0};
    float *scales = snug_run_data(run, p->scales), *results = snug_run_data(run, p->results);
    if (run->chunk == 0)
        for (int64_t s = 0; s < batch->sequences; s++) sums[s] = 0;
    for (int64_t row = 0; row < run->rows; row++)
        sums[snug_batch_sequence(batch, batch->loss_positions[run->first_row + row])] += (double)rows[row];
    for (int64_t s = 0; s + 1 < batch->sequences; s += 2) {
        double by_sum[2];
        loss += snug_add_pair(&p->form, sums + s, batch->references + 2 * s, by_sum, result);
        for (int k = 0; k < 2; k++) scales[s + k] = (float)by_sum[k];
    }
    *(float *)snug_run_data(run, p->loss) = (float)loss;
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++) results[i] = (float)result[i];
    return SNUG_OK;
}
