/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The factor by which fp16 training multiplies its loss, so that small gradients are not lost, as torch.amp.GradScaler
 * moves it: halved after a step whose gradients were not finite, which is skipped; doubled after 2000 steps in a row
 * that were. It lies where operations work, so that a step need not wait for the host.
 */
#ifndef SNUG_OPTIM_LOSS_SCALE_H
#define SNUG_OPTIM_LOSS_SCALE_H

/* Values of the tensor. */
enum {
    SNUG_SCALE,         /* what the loss is multiplied by */
    SNUG_SCALE_GOOD,    /* steps since it changed or one was skipped */
    SNUG_SCALE_SKIPPED, /* steps that were skipped, up to 2^24 */
    SNUG_SCALE_SKIPS,   /* 1: this one is to be; known after CLIP, forgotten after the update */
    SNUG_SCALE_VALUES
};

#define SNUG_SCALE_FIRST 65536.0f
#define SNUG_SCALE_INTERVAL 2000
/* Below this the model's own values overflow, and no factor helps. */
#define SNUG_SCALE_LEAST 0x1p-13f

/* After a step. */
static inline void snug_loss_scale_next(float *values) {
    if (values[SNUG_SCALE_SKIPS] != 0) {
        values[SNUG_SCALE] *= 0.5f;
        values[SNUG_SCALE_GOOD] = 0;
        values[SNUG_SCALE_SKIPPED] += 1;
        values[SNUG_SCALE_SKIPS] = 0;
    } else if (values[SNUG_SCALE_GOOD] + 1 == SNUG_SCALE_INTERVAL) {
        const float grown = values[SNUG_SCALE] * 2;
        if (grown - grown == 0) values[SNUG_SCALE] = grown; /* finite */
        values[SNUG_SCALE_GOOD] = 0;
    } else {
        values[SNUG_SCALE_GOOD] += 1;
    }
}

#endif
