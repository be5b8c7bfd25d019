/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/optimizer.h"

enum snug_optimizer_kind snug_optimizer_states(const struct snug_optimizer *optimizer, const struct snug_weight *weight,
                                               struct snug_state states[SNUG_STATES_MAX], int *count) {
    enum snug_optimizer_kind kind = optimizer->kind;
    const int64_t elements = weight->rows * weight->cols / weight->segments;
    if (kind == SNUG_ADAM_8BIT && (elements < SNUG_QUANTISED_LEAST || (weight->table && !optimizer->tables_8bit)))
        kind = SNUG_ADAM;
    int n = 0;
    switch (kind) {
    case SNUG_ADAM:
        states[n++] = (struct snug_state){"exp_avg", SNUG_F32, SNUG_STATE_LIKE};
        states[n++] = (struct snug_state){"exp_avg_sq", SNUG_F32, SNUG_STATE_LIKE};
        break;
    case SNUG_ADAM_8BIT:
        states[n++] = (struct snug_state){"state1", SNUG_U8, SNUG_STATE_LIKE};
        states[n++] = (struct snug_state){"state2", SNUG_U8, SNUG_STATE_LIKE};
        states[n++] = (struct snug_state){"absmax1", SNUG_F32, SNUG_STATE_BLOCKS};
        states[n++] = (struct snug_state){"absmax2", SNUG_F32, SNUG_STATE_BLOCKS};
        break;
    case SNUG_SGD:
        if (optimizer->momentum != 0) states[n++] = (struct snug_state){"momentum_buffer", SNUG_F32, SNUG_STATE_LIKE};
        break;
    case SNUG_ADAFACTOR:
        if (weight->vector) {
            states[n++] = (struct snug_state){"exp_avg_sq", SNUG_F32, SNUG_STATE_LIKE};
        } else {
            states[n++] = (struct snug_state){"exp_avg_sq_row", SNUG_F32, SNUG_STATE_ROWS};
            states[n++] = (struct snug_state){"exp_avg_sq_col", SNUG_F32, SNUG_STATE_COLUMNS};
        }
        if (optimizer->factored_momentum) states[n++] = (struct snug_state){"exp_avg", SNUG_F32, SNUG_STATE_LIKE};
        break;
    case SNUG_ADAGRAD: states[n++] = (struct snug_state){"sum", SNUG_F32, SNUG_STATE_LIKE}; break;
    case SNUG_RMSPROP:
        states[n++] = (struct snug_state){"square_avg", SNUG_F32, SNUG_STATE_LIKE};
        if (optimizer->momentum != 0) states[n++] = (struct snug_state){"momentum_buffer", SNUG_F32, SNUG_STATE_LIKE};
        if (optimizer->centered) states[n++] = (struct snug_state){"grad_avg", SNUG_F32, SNUG_STATE_LIKE};
        break;
    case SNUG_LION: states[n++] = (struct snug_state){"exp_avg", SNUG_F32, SNUG_STATE_LIKE}; break;
    case SNUG_OPTIMIZER_COUNT: break;
    }
    *count = n;
    return kind;
}

void snug_state_size(const struct snug_state *state, const struct snug_weight *weight, int64_t *rows, int64_t *cols) {
    const int64_t elements = weight->rows * weight->cols / weight->segments;
    *rows = weight->segments;
    switch (state->shape) {
    case SNUG_STATE_LIKE: *rows = weight->rows, *cols = weight->cols; break;
    case SNUG_STATE_ROWS: *cols = weight->rows / weight->segments; break;
    case SNUG_STATE_COLUMNS: *cols = weight->cols; break;
    case SNUG_STATE_BLOCKS: *cols = (elements + SNUG_QUANTISED_BLOCK - 1) / SNUG_QUANTISED_BLOCK; break;
    }
}
