/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/reference/reference.h"
#include "optim/quantization_map.h"

/* In fp32, as bitsandbytes. */
snug_status snug_reference_dequantize(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix p = snug_matrix_of(run, op->dequantize.p), q = snug_matrix_of(run, op->dequantize.q);
    const struct snug_quantized *form = &op->dequantize.form;
    const struct snug_quantized_layout l = snug_quantized_lay_out(form);
    const float *values = snug_code_values(form->type);
    float map[SNUG_CODES];
    snug_quantization_map(true, map);
    for (int64_t segment = 0; segment < p.rows; segment++) {
        const uint8_t *bytes = p.data + segment * p.cols;
        for (int64_t i = 0; i < l.count; i++) {
            const float absmax = snug_absmax_of(&l, bytes + l.group_absmax, map, i / SNUG_CODE_BLOCK);
            const float value = values[snug_code_at(bytes, i)] * absmax;
            store(q, segment * form->rows + i / q.cols, i % q.cols, snug_rounded_to(form->rounded, value));
        }
    }
    return SNUG_OK;
}
