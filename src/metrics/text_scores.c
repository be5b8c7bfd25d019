/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/text_scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/text_buffer.h"
#include "tokenizer/unicode.h"

enum { UNIT = 40 }; /* of sums: 2^-UNIT */

const char *snug_text_score_name(enum snug_text_score score) {
    static const char *const names[] = {"eval_exact_match", "eval_rouge1",    "eval_rouge2",
                                        "eval_rougeL",      "eval_rougeLsum", "eval_bleu"};
    return names[score];
}

/* ---- texts as words that white space separates ------------------------------------------------------------------ */

static snug_status append(snug_context *ctx, struct snug_text *to, const char *bytes, size_t count) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&to->text, &to->capacity, to->length + count + 1, 1));
    memcpy(to->text + to->length, bytes, count);
    to->length += count;
    to->text[to->length] = '\0';
    return SNUG_OK;
}

/* rouge_score: letters and digits of ASCII, in lower case; also of the two letters whose lower case has one of these,
   the sign for kelvin, and I with a dot, after whose i comes a combining dot. A line remains a line. */
static snug_status rouge_text(snug_context *ctx, const char *text, struct snug_text *out) {
    out->length = 0;
    RETURN_IF_ERROR(append(ctx, out, "", 0));
    for (const char *at = text; *at; at++) {
        const char c = *at, lower = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        const bool kept = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '\n';
        if (strncmp(at, "\u212a", 3) == 0)
            RETURN_IF_ERROR(append(ctx, out, "k", 1));
        else if (strncmp(at, "\u0130", 2) == 0)
            RETURN_IF_ERROR(append(ctx, out, "i ", 2));
        else
            RETURN_IF_ERROR(append(ctx, out, kept ? &lower : " ", 1));
        at += strncmp(at, "\u212a", 3) == 0 ? 2 : strncmp(at, "\u0130", 2) == 0 ? 1 : 0;
    }
    return SNUG_OK;
}

/* All of `from` become `to`. */
static snug_status replace(snug_context *ctx, struct snug_text *text, struct snug_text *scratch, const char *from,
                           const char *to) {
    const char *at = text->text, *next;
    const struct snug_text old = *text;
    scratch->length = 0;
    while ((next = strstr(at, from)) != NULL) {
        RETURN_IF_ERROR(append(ctx, scratch, at, (size_t)(next - at)));
        RETURN_IF_ERROR(append(ctx, scratch, to, strlen(to)));
        at = next + strlen(from);
    }
    RETURN_IF_ERROR(append(ctx, scratch, at, strlen(at)));
    *text = *scratch;
    *scratch = old;
    return SNUG_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_other(char c) { return !is_digit(c); }
static bool is_stop(char c) { return c == '.' || c == ','; }
static bool is_dash(char c) { return c == '-'; }
static bool is_symbol(char c) {
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
           (c >= ':' && c <= '@') || c == '/';
}

/* A regular expression of two characters, which a replacement parts; one character without a second. */
struct rule {
    bool (*first)(char c), (*second)(char c);
    bool before, after; /* a space before the first, after the last */
};

/* Bytes of a longer character are no digits, and none of those that are looked for. */
static snug_status apply(snug_context *ctx, struct snug_text *text, struct snug_text *scratch,
                         const struct rule *rule) {
    const struct snug_text old = *text;
    scratch->length = 0;
    for (size_t i = 0; i < old.length;) {
        const char *at = old.text + i;
        const bool matches = rule->first(at[0]) && (!rule->second || (at[1] && rule->second(at[1])));
        if (matches && rule->before) RETURN_IF_ERROR(append(ctx, scratch, " ", 1));
        RETURN_IF_ERROR(append(ctx, scratch, at, 1));
        if (matches && rule->second) RETURN_IF_ERROR(append(ctx, scratch, " ", 1));
        if (matches && rule->second) RETURN_IF_ERROR(append(ctx, scratch, at + 1, 1));
        if (matches && rule->after) RETURN_IF_ERROR(append(ctx, scratch, " ", 1));
        i += matches && rule->second ? 2 : 1;
    }
    *text = *scratch;
    *scratch = old;
    return SNUG_OK;
}

/* tokenizer_13a of evaluate and sacrebleu, which is mteval-v13a's. */
static snug_status bleu_text(snug_context *ctx, const char *text, struct snug_text *out, struct snug_text *scratch) {
    static const char *const replaced[][2] = {{"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
                                              {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
    static const struct rule rules[] = {{is_symbol, NULL, true, true},
                                        {is_other, is_stop, false, true},
                                        {is_stop, is_other, true, false},
                                        {is_digit, is_dash, false, true}};
    out->length = 0;
    RETURN_IF_ERROR(append(ctx, out, " ", 1));
    RETURN_IF_ERROR(append(ctx, out, text, strlen(text)));
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        RETURN_IF_ERROR(replace(ctx, out, scratch, replaced[i][0], replaced[i][1]));
    RETURN_IF_ERROR(append(ctx, out, " ", 1));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) RETURN_IF_ERROR(apply(ctx, out, scratch, &rules[i]));
    return SNUG_OK;
}

/* ---- words ----------------------------------------------------------------------------------------------------- */

struct word {
    const char *at;
    size_t length;
    int32_t *id;
};

/* Of two texts: equal words have the same id. */
struct words {
    struct word *all;         /* of both, the first text's first */
    int32_t *ids, *lines;     /* [texts][count]: the line of each word, too */
    int64_t counts[2], first; /* first: where the second text's begin */
};

static void free_words(struct words *w) {
    free(w->all);
    free(w->ids);
    free(w->lines);
}

static int compare_words(const void *a, const void *b) {
    const struct word *x = a, *y = b;
    const int order = memcmp(x->at, y->at, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* As Python's str.split(). */
static bool is_space(uint32_t code) {
    return snug_codepoint_flags(code) & SNUG_CODEPOINT_SPACE || (code >= 0x1c && code <= 0x1f);
}

/* The words of text number `text`, which have the next numbers. */
static void split(struct words *w, int text, const struct snug_text *from) {
    int32_t line = 0;
    bool within = false;
    for (size_t at = 0, begin = 0; at < from->length; begin = at) {
        const uint32_t code = snug_utf8_next(from->text, &at);
        const int64_t number = w->first + w->counts[text];
        line += code == '\n';
        if (is_space(code)) {
            within = false;
            continue;
        }
        if (!within) w->all[number] = (struct word){.at = from->text + begin, .id = &w->ids[number]};
        if (!within) w->lines[number] = line;
        if (!within) w->counts[text]++;
        within = true;
        w->all[w->first + w->counts[text] - 1].length += at - begin;
    }
}

static snug_status find_words(snug_context *ctx, const struct snug_text texts[2], struct words *w) {
    const size_t most = texts[0].length + texts[1].length + 1; /* words are fewer than bytes */
    *w = (struct words){.first = 0};
    RETURN_IF_ERROR(snug_alloc(ctx, most, sizeof *w->all, (void **)&w->all));
    RETURN_IF_ERROR(snug_alloc(ctx, most, sizeof *w->ids, (void **)&w->ids));
    RETURN_IF_ERROR(snug_alloc(ctx, most, sizeof *w->lines, (void **)&w->lines));
    split(w, 0, &texts[0]);
    w->first = w->counts[0];
    split(w, 1, &texts[1]);
    const int64_t count = w->counts[0] + w->counts[1];
    qsort(w->all, (size_t)count, sizeof *w->all, compare_words);
    for (int64_t i = 0, id = 0; i < count; i++) {
        id += i > 0 && compare_words(&w->all[i - 1], &w->all[i]) != 0;
        *w->all[i].id = (int32_t)id;
    }
    return SNUG_OK;
}

/* ---- n-grams --------------------------------------------------------------------------------------------------- */

/* Of SNUG_BLEU_ORDERS words at most. */
struct ngram {
    int32_t ids[SNUG_BLEU_ORDERS];
};

static int compare_ngrams(const void *a, const void *b) {
    const struct ngram *x = a, *y = b;
    for (int i = 0; i < SNUG_BLEU_ORDERS; i++)
        if (x->ids[i] != y->ids[i]) return x->ids[i] < y->ids[i] ? -1 : 1;
    return 0;
}

static int64_t ngrams_of(const int32_t *ids, int64_t count, int order, struct ngram *out) {
    const int64_t n = count - order + 1;
    for (int64_t i = 0; i < n; i++) {
        out[i] = (struct ngram){{0}};
        memcpy(out[i].ids, ids + i, (size_t)order * sizeof *ids);
    }
    if (n > 1) qsort(out, (size_t)n, sizeof *out, compare_ngrams);
    return n > 0 ? n : 0;
}

/* Of both texts; and how many of them they have in common, each as often as in the text that has fewer. */
static snug_status count_ngrams(snug_context *ctx, const struct words *w, int order, int64_t counts[2],
                                int64_t *common) {
    struct ngram *grams;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)(w->counts[0] + w->counts[1]), sizeof *grams, (void **)&grams));
    struct ngram *other = grams + w->counts[0];
    counts[0] = ngrams_of(w->ids, w->counts[0], order, grams);
    counts[1] = ngrams_of(w->ids + w->first, w->counts[1], order, other);
    *common = 0;
    for (int64_t i = 0, k = 0; i < counts[0] && k < counts[1];) {
        const int order_of = compare_ngrams(&grams[i], &other[k]);
        *common += order_of == 0;
        i += order_of <= 0;
        k += order_of >= 0;
    }
    free(grams);
    return SNUG_OK;
}

/* ---- rouge ----------------------------------------------------------------------------------------------------- */

/* Of a number of matches among those of the text and of the reference. */
static double f_measure(int64_t matches, int64_t text, int64_t reference) {
    if (!matches) return 0;
    const double precision = (double)matches / (double)text, recall = (double)matches / (double)reference;
    return 2 * precision * recall / (precision + recall);
}

/* Marks the words of a line of the reference that are in its longest common subsequence with a line of the text, as
   rouge_score finds it; returns its length. table: [(rows + 1) * (cols + 1)]. */
static int64_t mark_common(const int32_t *reference, int64_t rows, const int32_t *text, int64_t cols, int32_t *table,
                           bool *marks) {
    const int64_t row = cols + 1;
    memset(table, 0, (size_t)row * sizeof *table);
    for (int64_t i = 1; i <= rows; i++) {
        table[i * row] = 0;
        for (int64_t k = 1; k <= cols; k++) {
            const int32_t left = table[i * row + k - 1], above = table[(i - 1) * row + k];
            table[i * row + k] = reference[i - 1] == text[k - 1] ? table[(i - 1) * row + k - 1] + 1
                                 : above > left                  ? above
                                                                 : left;
        }
    }
    for (int64_t i = rows, k = cols; i > 0 && k > 0;) {
        const bool same = reference[i - 1] == text[k - 1];
        if (same) marks[i - 1] = true;
        const bool back = !same && table[i * row + k - 1] > table[(i - 1) * row + k];
        i -= !back;
        k -= same || back;
    }
    return table[rows * row + cols];
}

/* The end of the line that begins at word i. */
static int64_t line_end(const int32_t *lines, int64_t i, int64_t count) {
    int64_t end = i;
    while (end < count && lines[end] == lines[i]) end++;
    return end;
}

/* rougeLsum: words of the reference that are common with any line of the text, each as often as the text has it. */
static int64_t sum_lines(const struct words *w, int32_t *table, bool *marks, int32_t *left) {
    const int32_t *ids = w->ids + w->first, *lines = w->lines + w->first;
    int64_t hits = 0;
    for (int64_t i = 0; i < w->counts[0]; i++) left[w->ids[i]]++;
    for (int64_t i = 0, end; i < w->counts[1]; i = end) {
        end = line_end(lines, i, w->counts[1]);
        memset(marks, 0, (size_t)(end - i) * sizeof *marks);
        for (int64_t k = 0, text_end; k < w->counts[0]; k = text_end) {
            text_end = line_end(w->lines, k, w->counts[0]);
            mark_common(ids + i, end - i, w->ids + k, text_end - k, table, marks);
        }
        for (int64_t k = i; k < end; k++) hits += marks[k - i] && left[ids[k]]-- > 0;
    }
    return hits;
}

static void add_score(struct snug_text_scores *scores, enum snug_text_score score, double value) {
    scores->sums[score] += llround(ldexp(value, UNIT));
}

static snug_status add_subsequences(snug_context *ctx, const struct words *w, struct snug_text_scores *scores) {
    const int64_t text = w->counts[0], reference = w->counts[1];
    int32_t *memory;
    bool *marks;
    const size_t table = (size_t)(text + 1) * (size_t)(reference + 1);
    RETURN_IF_ERROR(snug_alloc(ctx, table + (size_t)(text + reference + 1), sizeof *memory, (void **)&memory));
    const snug_status status = snug_alloc(ctx, (size_t)reference + 1, sizeof *marks, (void **)&marks);
    if (status == SNUG_OK) {
        const int64_t common = mark_common(w->ids + w->first, reference, w->ids, text, memory, marks);
        add_score(scores, SNUG_ROUGE_L, f_measure(common, text, reference));
        add_score(scores, SNUG_ROUGE_L_SUM, f_measure(sum_lines(w, memory, marks, memory + table), text, reference));
        free(marks);
    }
    free(memory);
    return status;
}

static snug_status add_rouge(snug_context *ctx, const struct words *w, struct snug_text_scores *scores) {
    for (int order = 1; order <= 2; order++) {
        int64_t counts[2], common;
        RETURN_IF_ERROR(count_ngrams(ctx, w, order, counts, &common));
        add_score(scores, order == 1 ? SNUG_ROUGE1 : SNUG_ROUGE2, f_measure(common, counts[0], counts[1]));
    }
    return add_subsequences(ctx, w, scores);
}

/* ---- scores ---------------------------------------------------------------------------------------------------- */

static snug_status add_bleu(snug_context *ctx, const struct words *w, struct snug_text_scores *scores) {
    for (int order = 1; order <= SNUG_BLEU_ORDERS; order++) {
        int64_t counts[2], common;
        RETURN_IF_ERROR(count_ngrams(ctx, w, order, counts, &common));
        scores->matches[order - 1] += common;
        scores->possible[order - 1] += counts[0];
    }
    scores->length += w->counts[0];
    scores->reference_length += w->counts[1];
    return SNUG_OK;
}

typedef snug_status add_fn(snug_context *ctx, const struct words *w, struct snug_text_scores *scores);

static snug_status add_words(snug_context *ctx, const struct snug_text texts[2], add_fn *add,
                             struct snug_text_scores *scores) {
    struct words words;
    snug_status status = find_words(ctx, texts, &words);
    if (status == SNUG_OK) status = add(ctx, &words, scores);
    free_words(&words);
    return status;
}

snug_status snug_text_scores_add(snug_context *ctx, const char *text, const char *reference,
                                 struct snug_text_scores *scores) {
    const char *const given[] = {text, reference};
    struct snug_text texts[2] = {{0}}, scratch = {0};
    snug_status status = SNUG_OK;
    for (int i = 0; i < 2 && status == SNUG_OK; i++) status = rouge_text(ctx, given[i], &texts[i]);
    if (status == SNUG_OK) status = add_words(ctx, texts, add_rouge, scores);
    for (int i = 0; i < 2 && status == SNUG_OK; i++) status = bleu_text(ctx, given[i], &texts[i], &scratch);
    if (status == SNUG_OK) status = add_words(ctx, texts, add_bleu, scores);
    for (int i = 0; i < 2; i++) free(texts[i].text);
    free(scratch.text);
    scores->texts++;
    add_score(scores, SNUG_EXACT_MATCH, strcmp(text, reference) == 0);
    return status;
}

static double bleu(const struct snug_text_scores *s) {
    double sum = 0;
    for (int i = 0; i < SNUG_BLEU_ORDERS; i++) {
        if (!s->matches[i]) return 0;
        sum += log((double)s->matches[i] / (double)s->possible[i]) / SNUG_BLEU_ORDERS;
    }
    const double ratio = (double)s->length / (double)s->reference_length;
    return exp(sum + (ratio > 1 ? 0 : 1 - 1 / ratio));
}

double snug_text_score(const struct snug_text_scores *s, enum snug_text_score score) {
    if (!s->texts) return NAN;
    return score == SNUG_BLEU ? bleu(s) : ldexp((double)s->sums[score], -UNIT) / (double)s->texts;
}

snug_status snug_text_scores_merge(snug_context *ctx, const struct snug_process_group *group,
                                   struct snug_text_scores *scores) {
    if (!group) return SNUG_OK;
    return snug_group_sum(ctx, group, (int64_t *)scores, (int64_t)(sizeof *scores / sizeof(int64_t)));
}
