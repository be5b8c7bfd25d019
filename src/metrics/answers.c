/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/answers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/text_buffer.h"
#include "tokenizer/unicode.h"

/* ---- answers of a window ---- */

/* The tokens with the largest logits, the largest first, of equal ones the first; returns how many. */
static int64_t find_top(const float *logits, int64_t tokens, int64_t most, int64_t top[static SNUG_N_BEST_MOST]) {
    int64_t found = 0;
    for (int64_t i = 0; i < tokens; i++) {
        if (found == most && !(logits[2 * i] > logits[2 * top[found - 1]])) continue;
        if (found < most) found++;
        int64_t at = found - 1;
        for (; at > 0 && logits[2 * i] > logits[2 * top[at - 1]]; at--) top[at] = top[at - 1];
        top[at] = i;
    }
    return found;
}

void snug_answer_spans(const struct snug_answer_rules *rules, const struct snug_answers *window, const float *logits,
                       int64_t tokens, void (*take)(void *user, const struct snug_answer_span *span), void *user) {
    int64_t starts[SNUG_N_BEST_MOST] = {0}, stops[SNUG_N_BEST_MOST] = {0};
    const int64_t first = window->first, last = first + window->count - 1;
    const int64_t count = find_top(logits, tokens, rules->n_best, starts);
    find_top(logits + 1, tokens, rules->n_best, stops);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < count; k++) {
            const int64_t start = starts[i], stop = stops[k];
            if (start < first || stop > last || stop < start || stop - start >= rules->longest) continue;
            const struct snug_answer_span span = {.score = logits[2 * start] + logits[2 * stop + 1],
                                                  .start = logits[2 * start],
                                                  .stop = logits[2 * stop + 1],
                                                  .begin = window->offsets[2 * (start - first)],
                                                  .end = window->offsets[2 * (stop - first) + 1]};
            if (span.begin < span.end) take(user, &span);
        }
}

/* ---- comparing ---- */

/* The words of an answer that count: lower case, without ASCII punctuation and articles, each ending with a NUL. */
struct words {
    struct snug_text lower, text;
    size_t count;
};

static snug_status put_code(snug_context *ctx, struct snug_text *to, uint32_t code) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&to->text, &to->capacity, to->length + 5, 1));
    to->length += snug_utf8_put(to->text + to->length, code);
    return SNUG_OK;
}

static snug_status put_lower(snug_context *ctx, const char *text, size_t length, struct snug_text *to) {
    to->length = 0;
    for (size_t at = 0; at < length;) {
        const uint32_t code = snug_utf8_next(text, &at);
        uint32_t lower[2] = {code};
        if (code < 128 && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)code)) continue;
        const bool may = snug_codepoint_flags(code) & SNUG_CODEPOINT_LOWER;
        const int count = may ? snug_codepoint_lower(code, lower) : 1;
        for (int i = 0; i < count; i++) RETURN_IF_ERROR(put_code(ctx, to, lower[i]));
    }
    return SNUG_OK;
}

static bool is_article(const char *word, size_t length) {
    return (length == 1 && *word == 'a') || (length == 2 && !memcmp(word, "an", 2)) ||
           (length == 3 && !memcmp(word, "the", 3));
}

/* The end of the characters from `at` on that are \\w, or that are not. */
static size_t run_end(const struct snug_text *text, size_t at, unsigned flag) {
    for (size_t next = at; next < text->length; at = next)
        if ((snug_codepoint_flags(snug_utf8_next(text->text, &next)) & SNUG_CODEPOINT_WORD) != flag) return at;
    return text->length;
}

/* Articles are what is between two limits of \\w, and become white space. */
static snug_status find_words(snug_context *ctx, const char *text, size_t length, struct words *w) {
    bool apart = true;
    w->text.length = w->count = 0;
    RETURN_IF_ERROR(put_lower(ctx, text, length, &w->lower));
    for (size_t at = 0, end; at < w->lower.length; at = end) {
        const char *run = w->lower.text;
        size_t next = at;
        const unsigned flag = snug_codepoint_flags(snug_utf8_next(run, &next)) & SNUG_CODEPOINT_WORD;
        end = run_end(&w->lower, at, flag);
        const bool article = flag && is_article(run + at, end - at);
        for (size_t i = at; i < end; i = next) {
            next = i;
            const uint32_t code = snug_utf8_next(run, &next);
            const bool solid = !article && !(snug_codepoint_flags(code) & SNUG_CODEPOINT_SPACE);
            if (solid && apart && w->count++) RETURN_IF_ERROR(put_code(ctx, &w->text, 0));
            if (solid) RETURN_IF_ERROR(put_code(ctx, &w->text, code));
            apart = !solid;
        }
    }
    return put_code(ctx, &w->text, 0);
}

static void free_words(struct words *w) {
    free(w->lower.text);
    free(w->text.text);
}

/* Words that both have, each as often as in the one that has it less often. */
static snug_status count_common(snug_context *ctx, const struct words *a, const struct words *b, size_t *out) {
    bool *used;
    *out = 0;
    RETURN_IF_ERROR(snug_alloc(ctx, b->count + 1, sizeof *used, (void **)&used));
    const char *x = a->text.text;
    for (size_t i = 0; i < a->count; i++, x += strlen(x) + 1) {
        const char *y = b->text.text;
        size_t k = 0;
        for (; k < b->count && (used[k] || strcmp(x, y) != 0); k++) y += strlen(y) + 1;
        if (k == b->count) continue;
        used[k] = true;
        ++*out;
    }
    free(used);
    return SNUG_OK;
}

/* F1 of the words; squad_v2 has 1 where neither text has any. */
static snug_status compare(snug_context *ctx, const struct words *a, const struct words *b, double *exact, double *f1) {
    size_t common;
    const bool same = a->text.length == b->text.length && !memcmp(a->text.text, b->text.text, a->text.length);
    RETURN_IF_ERROR(count_common(ctx, a, b, &common));
    *exact = fmax(*exact, same);
    if (common) *f1 = fmax(*f1, 2 * (double)common / (double)(a->count + b->count));
    return SNUG_OK;
}

snug_status snug_answer_compare(snug_context *ctx, const struct snug_answers *window, const char *text, size_t length,
                                bool negative, double *exact, double *f1) {
    struct words own = {0}, right = {0};
    bool any = false;
    const char *answer = window->texts;
    *exact = *f1 = 0;
    snug_status status = find_words(ctx, text, length, &own);
    for (uint32_t i = 0; i < window->answers && status == SNUG_OK; i++, answer += strlen(answer) + 1) {
        status = find_words(ctx, answer, strlen(answer), &right);
        any |= right.count;
        if (status == SNUG_OK && (right.count || !negative)) status = compare(ctx, &own, &right, exact, f1);
    }
    if (status == SNUG_OK && !any && negative) *exact = *f1 = !own.count;
    free_words(&own);
    free_words(&right);
    return status;
}
