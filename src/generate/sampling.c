/* SPDX-License-Identifier: Apache-2.0 */
#include "generate/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log_sum.h"
#include "core/philox.h"

snug_status snug_sampler_open(snug_context *ctx, const struct snug_token_choice *how, int64_t classes,
                              struct snug_sampler *out) {
    *out = (struct snug_sampler){.how = how, .classes = classes};
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)classes, sizeof *out->scores, (void **)&out->scores));
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)classes, sizeof *out->order, (void **)&out->order));
    return snug_alloc(ctx, (size_t)classes, sizeof *out->seen, (void **)&out->seen);
}

void snug_sampler_close(struct snug_sampler *sampler) {
    free(sampler->scores);
    free(sampler->order);
    free(sampler->seen);
    *sampler = (struct snug_sampler){0};
}

bool snug_sampling_ends(const struct snug_token_choice *how, int32_t id) {
    for (int64_t i = 0; i < how->end_count; i++)
        if (how->ends[i] == id) return true;
    return false;
}

double snug_sampling_uniform(uint64_t seed, int64_t row, int64_t token, int64_t number) {
    const struct snug_philox_block block =
        snug_philox((uint32_t)token, (uint32_t)number, (uint32_t)row, (uint32_t)SNUG_PHILOX_SAMPLE << 29,
                    (uint32_t)seed, (uint32_t)(seed >> 32));
    return (double)snug_philox_uniform(block.word[0]);
}

/* ---- processors that do not depend on drawing ------------------------------------------------------------------ */

/* Every token that occurs, once. */
static void penalise(struct snug_sampler *s, const struct snug_tokens_so_far *history) {
    const float penalty = (float)s->how->repetition_penalty;
    for (int64_t i = 0; i < history->count; i++) {
        const int32_t id = history->ids[i];
        if (s->seen[id]) continue;
        s->seen[id] = 1;
        s->scores[id] = s->scores[id] < 0 ? s->scores[id] * penalty : s->scores[id] / penalty;
    }
    for (int64_t i = 0; i < history->count; i++) s->seen[history->ids[i]] = 0;
}

/* Every token that followed an earlier copy of the last n - 1 ones. */
static void ban_ngrams(struct snug_sampler *s, const struct snug_tokens_so_far *history) {
    const int64_t n = s->how->no_repeat_ngram_size, begin = history->count - (n - 1);
    for (int64_t i = 0; i + n <= history->count; i++)
        if (memcmp(history->ids + i, history->ids + begin, (size_t)(n - 1) * sizeof *history->ids) == 0)
            s->scores[history->ids[i + n - 1]] = -INFINITY;
}

void snug_sampler_process(struct snug_sampler *s, const struct snug_tokens_so_far *history) {
    if (s->how->repetition_penalty != 1) penalise(s, history);
    if (s->how->no_repeat_ngram_size > 0) ban_ngrams(s, history);
    const bool ends = history->answer >= s->how->min_new_tokens && history->count >= s->how->min_length;
    for (int64_t i = 0; !ends && i < s->how->end_count; i++) s->scores[s->how->ends[i]] = -INFINITY;
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */

/* order[0 … count-1] is a heap whose first token has the lowest score, but for the token at `at`. */
static void sift(const struct snug_sampler *s, int64_t at, int64_t count) {
    int32_t *order = s->order;
    const int32_t id = order[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && s->scores[order[child + 1]] < s->scores[order[child]]) child++;
        if (s->scores[order[child]] >= s->scores[id]) break;
        order[at] = order[child];
    }
    order[at] = id;
}

static void make_heap(const struct snug_sampler *s, int64_t count) {
    for (int64_t i = count / 2; i-- > 0;) sift(s, i, count);
}

/* The highest score first. */
static void sort(const struct snug_sampler *s, int64_t count) {
    make_heap(s, count);
    for (int64_t end = count - 1; end > 0; end--) {
        const int32_t lowest = s->order[0];
        s->order[0] = s->order[end];
        s->order[end] = lowest;
        sift(s, 0, end);
    }
}

/* Keeps in order the k highest scores, and those equal to the last of them. */
static int64_t keep_top(struct snug_sampler *s, int64_t count, int64_t least_count) {
    const int64_t k = s->how->top_k > least_count ? s->how->top_k : least_count;
    int64_t kept = 0;
    if (s->how->top_k <= 0 || k >= count) return count;
    make_heap(s, k);
    for (int64_t i = k; i < count; i++)
        if (s->scores[i] > s->scores[s->order[0]]) {
            s->order[0] = (int32_t)i;
            sift(s, 0, k);
        }
    const float least = s->scores[s->order[0]];
    for (int64_t i = 0; i < count; i++)
        if (s->scores[i] >= least) s->order[kept++] = (int32_t)i;
    return kept;
}

/* From the least probable on, tokens are left out while their sum is at most 1 - p; the `least` most probable stay. */
static int64_t keep_nucleus(struct snug_sampler *s, int64_t count, int64_t least) {
    const double p = s->how->top_p;
    double total = 0, sum = 0;
    if (p >= 1) return count;
    sort(s, count);
    const float most = s->scores[s->order[0]];
    for (int64_t i = 0; i < count; i++) total += exp((double)s->scores[s->order[i]] - (double)most);
    while (count > least) {
        sum += exp((double)s->scores[s->order[count - 1]] - (double)most);
        if (sum / total > 1 - p) break;
        count--;
    }
    return count;
}

static float highest(const struct snug_sampler *s, int64_t count) {
    float most = s->scores[s->order[0]];
    for (int64_t i = 1; i < count; i++)
        if (s->scores[s->order[i]] > most) most = s->scores[s->order[i]];
    return most;
}

/* Without tokens less probable than p times the most probable one; the `least` most probable stay. */
static int64_t keep_probable(struct snug_sampler *s, int64_t count, int64_t least) {
    const double p = s->how->min_p;
    int64_t kept = 0;
    if (p <= 0) return count;
    sort(s, count);
    const double most = (double)s->scores[s->order[0]];
    while (kept < count && (kept < least || exp((double)s->scores[s->order[kept]] - most) >= p)) kept++;
    return kept;
}

int64_t snug_sampler_filter(struct snug_sampler *s, int64_t count, int64_t least) {
    const float temperature = (float)s->how->temperature;
    for (int64_t i = 0; i < count; i++) {
        s->scores[i] /= temperature;
        s->order[i] = (int32_t)i;
    }
    count = keep_top(s, count, least);
    count = keep_nucleus(s, count, least);
    return keep_probable(s, count, least);
}

/* The first of `classes` tokens at which the sum of probabilities exceeds u. */
static int32_t draw(struct snug_sampler *s, int64_t classes, double u) {
    const int64_t count = snug_sampler_filter(s, classes, 1);
    double total = 0, sum = 0;
    int32_t chosen = -1;
    const double most = (double)highest(s, count);
    for (int64_t i = 0; i < count; i++) s->seen[s->order[i]] = 1;
    for (int64_t id = 0; id < classes; id++)
        if (s->seen[id]) total += exp((double)s->scores[id] - most);
    for (int32_t id = 0; id < classes; id++) {
        if (!s->seen[id]) continue;
        s->seen[id] = 0;
        sum += exp((double)s->scores[id] - most);
        if (chosen < 0 && sum > u * total) chosen = id;
    }
    return chosen;
}

int32_t snug_sampler_choose(struct snug_sampler *s, const struct snug_next_tokens *next,
                            const struct snug_tokens_so_far *history, int64_t row, double *log_probability) {
    const float *from = next->logits ? next->logits : next->log_probabilities;
    const int64_t count = next->logits ? s->classes : next->count;
    int32_t place = 0;
    memcpy(s->scores, from, (size_t)count * sizeof *from);
    if (next->logits) snug_sampler_process(s, history);
    if (s->how->draws) {
        place = draw(s, count, snug_sampling_uniform(s->how->seed, row, history->answer, 0));
    } else {
        for (int64_t i = 1; i < count; i++)
            if (s->scores[i] > s->scores[place]) place = (int32_t)i;
    }
    *log_probability = (double)from[place] - (next->logits ? snug_log_sum(from, count) : 0);
    return next->logits ? place : next->ids[place];
}
