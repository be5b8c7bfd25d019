/* SPDX-License-Identifier: Apache-2.0 */
/* The losses: their operands and attributes, and what each computes, in the notation of program/op.h. */
#ifndef SNUG_PROGRAM_LOSSES_H
#define SNUG_PROGRAM_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

#include "data/tasks.h"

/*
 * loss = sum over the items (+= in later chunks);  d = d loss_sum / d logits * run->loss_scale
 *
 * cross entropy: of batch->labels, SNUG_IGNORE_LABEL rows contribute nothing; label smoothing e as PyTorch's
 * CrossEntropyLoss; binary cross entropy with logits: of batch->targets [R,C]; mean squared error: of batch->targets
 * [R] (C = 1). weighted: with batch->class_weights [C], which are CrossEntropyLoss's weight and BCEWithLogitsLoss's
 * pos_weight.
 *
 * Segment cross entropy: rows from one with SNUG_SEGMENT_BEGINS in batch->labels [R] up to the next one are a segment,
 * and its loss is the mean over columns c of cross entropy over its rows, of which that with bit c is the target; a
 * column without target has none. All rows of a segment are in one chunk. Segment distribution, margin: of one column,
 * by batch->targets [R]: -sum t log softmax(x), and the sum of (x_0 - x_i - t_i)^2 over the rows but the first, whose
 * target is 1, or 0 if the segment has no loss.
 *
 * Preference cross entropy: rows[i] = the cross entropy of row i; the row's d is also multiplied by the scale of its
 * token's sequence, and is not written in the pass SNUG_PASS_SCORES: PREFERENCE
 */
struct snug_loss_op {
    int32_t logits, scales; /* [R,C] F32 or the compute type, see low_logits; [1,B] F32 or none */
    int32_t loss, rows, d;  /* [1] F32, of preferences none; [R,1] F32 of preferences, else none; [R,C] (= logits if of
                               its type) or none */
    enum snug_loss_kind function;
    float label_smoothing;
    bool weighted;
};
/*
 * Preference tuning (Rafailov et al., arXiv:2305.18290), as TRL's DPOTrainer. Sequences 2 i and 2 i + 1 of the batch
 * are a pair, the chosen and the rejected one. sums[s] = the sum of rows over the loss positions of sequence s in this
 * chunk (+= in later chunks), in their order: minus the log-probability of its completion.
 *
 * The reference's log-probability is r_s = batch->references[2 s], the number of the completion's tokens n_s =
 * batch->references[2 s + 1] (at least 1). The score of a sequence is x_s = -sums[s] - r_s. With
 * x = x_chosen - x_rejected, l(x) = -log sigmoid(x) and label smoothing e the losses are:
 *   sigmoid       (1 - e) l(beta x) + e l(-beta x)
 *   robust        ((1 - e) l(beta x) - e l(-beta x)) / (1 - 2 e)
 *   hinge         max(0, 1 - beta x)
 *   ipo           (x_chosen / n_chosen - x_rejected / n_rejected - 1 / (2 beta))^2
 *   sigmoid_norm  l(beta (x_chosen / n_chosen - x_rejected / n_rejected))
 *
 * loss = the sum over the pairs; scales[s] = d loss / d sums[s]; results: sums over the pairs (enum
 * snug_preference_result). After the last chunk all are those of the batch. In a training HEAD runs twice over its
 * chunks (enum snug_head_pass): up to this operation, then without it.
 */
enum snug_preference_loss {
    SNUG_PREFERENCE_SIGMOID,
    SNUG_PREFERENCE_HINGE,
    SNUG_PREFERENCE_IPO,
    SNUG_PREFERENCE_ROBUST,
    SNUG_PREFERENCE_SIGMOID_NORM,
    SNUG_PREFERENCE_LOSSES
};
struct snug_preference_form {
    enum snug_preference_loss loss;
    float beta, label_smoothing;
};
/* beta times the scores; 1 where the chosen one is larger; their difference; the log-probabilities. */
enum snug_preference_result {
    SNUG_REWARDS_CHOSEN,
    SNUG_REWARDS_REJECTED,
    SNUG_REWARDS_ACCURACIES,
    SNUG_REWARDS_MARGINS,
    SNUG_LOGPS_CHOSEN,
    SNUG_LOGPS_REJECTED,
    SNUG_PREFERENCE_RESULTS
};
struct snug_preference {
    int32_t rows;          /* [R,1] F32 */
    int32_t sums, scales;  /* [1,B] F64, [1,B] F32 */
    int32_t loss, results; /* [1] F32, [1,SNUG_PREFERENCE_RESULTS] F32 */
    struct snug_preference_form form;
};
/* A loss over all vectors of a step, which sees them in an order that does not depend on its micro-batches: the vector
   of loss position i is row batch->sample[its token]. COLLECT runs in HEAD of each micro-batch: vectors[that row] =
   x[i]; with scores, scores[that row] = batch->targets[i / texts], the score of the row of data to which the text
   belongs. COLLECT_BACKWARD: dx[i] = d[that row] */
struct snug_collect {
    int32_t x;               /* [R,m] F32 */
    int32_t vectors, scores; /* [S,m] F32, [S,1] F32 or none */
    int32_t texts;           /* of a row of data */
};
struct snug_collect_backward {
    int32_t d;  /* [S,m] F32 */
    int32_t dx; /* [R,m] F32 */
};
/*
 * loss = the loss of the step's n rows of data times n;  d = d loss / d vectors * run->loss_scale, which is 1 / n
 *
 * Row i of data has the vectors a_i, b_i1, … b_ik, k = texts - 1, rows i * texts and following; y_i is its score. Each
 * loss is summed over dims: with the first dims[j] components of each vector, normalized to length 1, and times
 * weights[j]; dim_count 0: once, with the vectors as they are. s(a, b) is the cosine. The losses are
 * sentence-transformers':
 *   RANKING      mean over i of -log softmax over all b of all rows of scale s(a_i, b), at b_i1 (multiple negatives
 *                ranking); symmetric: of that and of -log softmax over all a of scale s(a, b_i1), at a_i, the mean
 *   COSENT       log(1 + sum of exp(scale (s(a_i, b_i) - s(a_j, b_j))) over i, j with y_i < y_j)
 *   ANGLE        COSENT with |s(a, b) + s(a, Jb)|, where J turns b's halves (p, q) to (-q, p); of an odd number of
 *                components p has one more than q, which then ends with a 0
 *   COSINE       mean of (s(a_i, b_i) - y_i)^2
 *   CONTRASTIVE  mean of (y_i D^2 + (1 - y_i) max(0, margin - D)^2) / 2, D = 1 - s(a_i, b_i)
 *   TRIPLET      mean of max(0, |a_i - b_i1| - |a_i - b_i2| + margin)
 */
enum snug_vector_loss {
    SNUG_LOSS_RANKING,
    SNUG_LOSS_COSENT,
    SNUG_LOSS_ANGLE,
    SNUG_LOSS_COSINE,
    SNUG_LOSS_CONTRASTIVE,
    SNUG_LOSS_TRIPLET,
    SNUG_VECTOR_LOSSES
};
enum { SNUG_LOSS_DIMS_MOST = 16 };
struct snug_vector_loss_form {
    enum snug_vector_loss function;
    bool symmetric;
    float scale, margin;
    int32_t texts, dim_count;
    int32_t dims[SNUG_LOSS_DIMS_MOST];
    float weights[SNUG_LOSS_DIMS_MOST];
};
struct snug_vector_loss_op {
    int32_t vectors, scores; /* [S,m] F32, [S,1] F32 or none */
    int32_t loss, d;         /* [1] F32; [S,m] F32 */
    struct snug_vector_loss_form form;
};

#endif
