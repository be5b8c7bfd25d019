/* SPDX-License-Identifier: Apache-2.0 */
#include "data/answers.h"

#include <string.h>

void snug_answers_put(uint32_t *numbers, const struct snug_answers *answers, const char *texts, size_t text_size) {
    const uint32_t head[SNUG_ANSWERS_HEAD] = {answers->example, answers->first, answers->count,
                                              answers->start,   answers->end,   answers->answers};
    uint32_t *to = numbers + SNUG_ANSWERS_HEAD + 2 * answers->count;
    memcpy(numbers, head, sizeof head);
    if (answers->count) memcpy(numbers + SNUG_ANSWERS_HEAD, answers->offsets, 2 * answers->count * sizeof *numbers);
    numbers[snug_answers_numbers(answers->count, text_size) - 1] = 0; /* what follows the texts */
    memcpy(to, texts, text_size);
}

/* Whether each offset is in the context, of length bytes, and before the next one. */
static bool check_offsets(const struct snug_answers *a, size_t length) {
    uint32_t least = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const uint32_t begin = a->offsets[2 * i], end = a->offsets[2 * i + 1];
        if (begin < least || end < begin || end > length) return false;
        least = begin;
    }
    return true;
}

bool snug_answers_of(const uint32_t *numbers, int64_t number_count, int64_t tokens, struct snug_answers *out) {
    if (number_count <= SNUG_ANSWERS_HEAD) return false;
    *out = (struct snug_answers){.example = numbers[0],
                                 .first = numbers[1],
                                 .count = numbers[2],
                                 .start = numbers[3],
                                 .end = numbers[4],
                                 .answers = numbers[5]};
    const int64_t rest = number_count - SNUG_ANSWERS_HEAD - 2 * (int64_t)out->count;
    const bool known = out->start != SNUG_NO_ANSWER;
    if (rest < 1 || out->first + (int64_t)out->count > tokens) return false;
    if (known && (out->start >= tokens || out->end >= tokens || out->end < out->start)) return false;
    out->offsets = numbers + SNUG_ANSWERS_HEAD;
    const char *at = (const char *)(out->offsets + 2 * out->count), *end = at + 4 * rest;
    for (int64_t i = 0; i < 2 + (int64_t)out->answers; i++) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        if (!nul) return false;
        if (i == 0) out->id = at;
        if (i == 1) out->context = at;
        at = nul + 1;
        if (i == 1) out->texts = at;
    }
    return check_offsets(out, strlen(out->context));
}
