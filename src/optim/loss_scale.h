/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loss scale of fp16 training, so that small gradients do not underflow. It changes as in torch.amp.GradScaler: a
 * step whose gradients are not finite is skipped and halves the scale; 2000 consecutive steps with finite gradients
 * double it. It is in the arena, so that a step need not wait for the host.
 */
#ifndef SNUG_OPTIM_LOSS_SCALE_H
#define SNUG_OPTIM_LOSS_SCALE_H

/* Values of the tensor. */
enum {
    SNUG_SCALE,         /* the factor of the loss */
    SNUG_SCALE_GOOD,    /* steps since the scale changed or a step was skipped */
    SNUG_SCALE_SKIPPED, /* steps that were skipped, up to 2^24 */
    SNUG_SCALE_SKIPS,   /* 1: this step is skipped; set by CLIP, reset after the update */
    SNUG_SCALE_VALUES
};

#define SNUG_SCALE_FIRST 65536.0f
#define SNUG_SCALE_INTERVAL 2000
/* Below this scale the model's own values overflow, and no scale helps. */
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
