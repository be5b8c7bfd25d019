/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backtracking over a list of steps: where a step can go on in several ways, the later ones are kept as a choice. A
 * repeated character keeps one choice for all the shorter repetitions, so most patterns need a few choices for a text
 * of any length.
 */
#include "tokenizer/regex.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tokenizer/regex_impl.h"
#include "tokenizer/unicode.h"

/* A way to go on: at step `step` and text[at]; if least < at, then also at each earlier character down to least. */
struct snug_regex_choice {
    size_t step, at, least;
};

struct search {
    snug_context *ctx;
    const struct snug_regex *regex;
    struct snug_regex_scratch *scratch;
    const char *text;
    size_t length;
    uint64_t steps_most; /* in a text, beyond which the search is given up */
};

#define NONE SIZE_MAX

bool snug_regex_look_up(const struct snug_regex *regex, const struct snug_regex_set *set, uint32_t code) {
    const unsigned class = snug_codepoint_class(code);
    bool found = false;
    for (int32_t i = set->first; i < set->first + set->count && !found; i++) {
        const struct snug_regex_item *item = &regex->items[i];
        switch (item->kind) {
        case SNUG_ITEM_RANGE: found = code >= item->low && code <= item->high; break;
        case SNUG_ITEM_CATEGORIES: found = item->low >> (class & SNUG_CLASS_CATEGORY) & 1; break;
        case SNUG_ITEM_SCRIPT: found = class >> SNUG_CLASS_SCRIPT_SHIFT == item->low; break;
        case SNUG_ITEM_SPACE: found = snug_codepoint_flags(code) & SNUG_CODEPOINT_SPACE; break;
        case SNUG_ITEM_WORD: found = class & SNUG_CLASS_WORD; break;
        case SNUG_ITEM_SET: found = snug_regex_holds(regex, (int32_t)item->low, code); break;
        }
        found ^= item->negated;
    }
    if (set->also >= 0) found = found && snug_regex_holds(regex, set->also, code);
    return found ^ set->negated;
}

void snug_regex_scratch_free(struct snug_regex_scratch *scratch) {
    free(scratch->choices);
    *scratch = (struct snug_regex_scratch){0};
}

static snug_status keep(struct search *s, size_t step, size_t at, size_t least) {
    struct snug_regex_scratch *scratch = s->scratch;
    RETURN_IF_ERROR(snug_grow(s->ctx, (void **)&scratch->choices, &scratch->capacity, scratch->count + 1,
                              sizeof *scratch->choices));
    scratch->choices[scratch->count++] = (struct snug_regex_choice){step, at, least};
    return SNUG_OK;
}

/* Takes the last choice, if there is one after the first `base`. */
static bool go_back(struct search *s, size_t base, size_t *step, size_t *at) {
    struct snug_regex_scratch *scratch = s->scratch;
    if (scratch->count == base) return false;
    struct snug_regex_choice *choice = &scratch->choices[scratch->count - 1];
    if (choice->at > choice->least) choice->at = snug_utf8_previous(s->text, choice->at);
    *step = choice->step;
    *at = choice->at;
    if (choice->at == choice->least) scratch->count--;
    return true;
}

static bool holds_at(const struct search *s, int32_t set, size_t *at) {
    return *at < s->length && snug_regex_holds(s->regex, set, snug_utf8_next(s->text, at));
}

static bool holds_before(const struct search *s, int32_t set, size_t at) {
    if (!at) return false;
    at = snug_utf8_previous(s->text, at);
    return holds_at(s, set, &at);
}

static bool is_word(const struct search *s, size_t at) {
    return at < s->length && snug_codepoint_class(snug_utf8_next(s->text, &at)) & SNUG_CLASS_WORD;
}

/* Whether a condition on the place holds. */
static bool stands(const struct search *s, const struct snug_regex_step *step, size_t at) {
    switch (step->op) {
    case SNUG_REGEX_BEGIN: return at == 0;
    case SNUG_REGEX_END: return at == s->length;
    case SNUG_REGEX_LINE: return at == 0 || (at < s->length && s->text[at - 1] == '\n');
    case SNUG_REGEX_NEWLINE: return at == s->length || s->text[at] == '\n';
    case SNUG_REGEX_BEHIND: return holds_before(s, step->x, at) != step->negated;
    default: break;
    }
    const bool before = at && is_word(s, snug_utf8_previous(s->text, at));
    return (before != is_word(s, at)) != step->negated;
}

/* As many characters as the step takes at *at, which moves after them; false if they are too few. */
static snug_status repeat(struct search *s, size_t number, size_t *at, bool *enough) {
    const struct snug_regex_step *step = &s->regex->steps[number];
    size_t least = *at, count = 0;
    for (size_t next = *at; count < (size_t)step->most && holds_at(s, step->x, &next); *at = next)
        if (++count == (size_t)step->least) least = next;
    s->scratch->steps += count;
    *enough = count >= (size_t)step->least;
    return *enough && !step->possessive && *at > least ? keep(s, number + 1, *at, least) : SNUG_OK;
}

/* The end of the first match from step `step` on that begins at text[at]; NONE if there is none. */
static snug_status match(struct search *s, size_t step, size_t at, size_t *end) {
    const size_t base = s->scratch->count;
    for (;;) {
        const struct snug_regex_step *now = &s->regex->steps[step];
        size_t inner;
        bool going = true;
        if (++s->scratch->steps > s->steps_most)
            return snug_fail(s->ctx, SNUG_E_INPUT,
                             "the regular expression \"%s\" takes more than %" PRIu64
                             " steps in a text of %zu bytes: it can match the same characters in too many ways",
                             s->regex->pattern, s->steps_most, s->length);
        switch (now->op) {
        case SNUG_REGEX_SET:
            going = holds_at(s, now->x, &at);
            step++;
            break;
        case SNUG_REGEX_REPEAT:
            RETURN_IF_ERROR(repeat(s, step, &at, &going));
            step++;
            break;
        case SNUG_REGEX_SPLIT:
            RETURN_IF_ERROR(keep(s, (size_t)now->y, at, at));
            step = (size_t)now->x;
            break;
        case SNUG_REGEX_JUMP: step = (size_t)now->x; break;
        case SNUG_REGEX_AHEAD:
            RETURN_IF_ERROR(match(s, step + 1, at, &inner));
            going = (inner != NONE) != now->negated;
            step = (size_t)now->x;
            break;
        case SNUG_REGEX_ATOMIC:
            RETURN_IF_ERROR(match(s, step + 1, at, &inner));
            going = inner != NONE;
            at = inner;
            step = (size_t)now->x;
            break;
        case SNUG_REGEX_MATCH:
            s->scratch->count = base;
            *end = at;
            return SNUG_OK;
        default:
            going = stands(s, now, at);
            step++;
            break;
        }
        if (going || go_back(s, base, &step, &at)) continue;
        *end = NONE;
        return SNUG_OK;
    }
}

snug_status snug_regex_find(snug_context *ctx, const struct snug_regex *regex, const char *text, size_t length,
                            size_t at, struct snug_regex_scratch *scratch, size_t *start, size_t *end) {
    struct search s = {.ctx = ctx, .regex = regex, .scratch = scratch, .text = text, .length = length};
    s.steps_most = (UINT64_C(1) << 18) + ((uint64_t)length << 10);
    scratch->count = 0;
    if (!at) scratch->steps = 0;
    while (at < length) {
        RETURN_IF_ERROR(match(&s, 0, at, end));
        *start = at;
        if (*end != NONE) return SNUG_OK;
        snug_utf8_next(text, &at);
    }
    return SNUG_END;
}
