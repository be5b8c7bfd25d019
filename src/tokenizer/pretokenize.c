/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each step calls the next one for each of its parts, so that only changed texts are stored. Parts are found as in the
 * library: a pattern splits a text into matches and the text between them, and a behavior defines how these become
 * parts.
 */
#include "tokenizer/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"

snug_status snug_pretokenizer_add(snug_context *ctx, struct snug_pretokenizer *pretokenizer,
                                  const struct snug_pretokenizer_step *step) {
    struct snug_pretokenizer_step added = *step;
    const snug_status status = snug_grow(ctx, (void **)&pretokenizer->steps, &pretokenizer->capacity,
                                         pretokenizer->count + 1, sizeof *pretokenizer->steps);
    if (status == SNUG_OK)
        pretokenizer->steps[pretokenizer->count++] = added;
    else
        snug_pretokenizer_step_free(&added);
    return status;
}

void snug_pretokenizer_step_free(struct snug_pretokenizer_step *step) {
    free(step->pattern);
    snug_regex_free(step->regex);
}

void snug_pretokenizer_free(struct snug_pretokenizer *pretokenizer) {
    for (size_t i = 0; i < pretokenizer->count; i++) snug_pretokenizer_step_free(&pretokenizer->steps[i]);
    free(pretokenizer->steps);
    *pretokenizer = (struct snug_pretokenizer){0};
}

void snug_words_free(struct snug_words *words) {
    for (size_t i = 0; words->buffers && i < words->pretokenizer->count; i++) free(words->buffers[i].text);
    free(words->buffers);
    words->buffers = NULL;
    snug_regex_scratch_free(&words->regex);
}

static snug_status run_step(struct snug_words *words, size_t step, const char *text, size_t length, bool first);

static inline snug_status emit(struct snug_words *words, size_t step, const char *text, size_t length) {
    if (!length) return SNUG_OK;
    if (step == words->pretokenizer->count) return words->sink(words->user, text, length);
    return run_step(words, step, text, length, false);
}

/* ---- BertPreTokenizer ---- */

static snug_status split_bert(struct snug_words *words, size_t step, const char *text, size_t length) {
    size_t word = 0;
    for (size_t at = 0; at < length;) {
        size_t next = at;
        const unsigned flags = snug_codepoint_flags(snug_utf8_next(text, &next));
        if (flags & (SNUG_CODEPOINT_SPACE | SNUG_CODEPOINT_PUNCTUATION)) {
            RETURN_IF_ERROR(emit(words, step + 1, text + word, at - word));
            if (flags & SNUG_CODEPOINT_PUNCTUATION) RETURN_IF_ERROR(emit(words, step + 1, text + at, next - at));
            word = next;
        }
        at = next;
    }
    return emit(words, step + 1, text + word, length - word);
}

/* ---- GPT-2's regular expression:
   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ ---- */

enum char_class { LETTER, NUMBER, SPACE, OTHER };

/* The class of the character at text[*at]; moves *at past it. */
static inline enum char_class class_of(const char *text, size_t *at) {
    const unsigned char byte = (unsigned char)text[*at];
    if (byte < 0x80) {
        *at += 1;
        if ((byte | 32u) - 97u < 26) return LETTER;
        if (byte - 48u < 10) return NUMBER;
        return byte == ' ' || byte - 9u < 5 ? SPACE : OTHER;
    }
    const unsigned flags = snug_codepoint_flags(snug_utf8_next(text, at));
    if (flags & SNUG_CODEPOINT_LETTER) return LETTER;
    if (flags & SNUG_CODEPOINT_NUMBER) return NUMBER;
    return flags & SNUG_CODEPOINT_SPACE ? SPACE : OTHER;
}

/* Bytes of the contraction at text, which begins with an apostrophe; 0 if there is none. */
static size_t contraction(const char *text, size_t length) {
    if (length < 2) return 0;
    if (strchr("stmd", text[1]) && text[1]) return 2;
    const bool two = length > 2 && ((text[1] == 'r' && text[2] == 'e') || (text[1] == 'v' && text[2] == 'e') ||
                                    (text[1] == 'l' && text[2] == 'l'));
    return two ? 3 : 0;
}

/* The end of the match that begins at text[at]. */
static size_t gpt2_match(const char *text, size_t length, size_t at) {
    if (text[at] == '\'') {
        const size_t size = contraction(text + at, length - at);
        if (size) return at + size;
    }
    size_t end = at, last = at;
    enum char_class class = class_of(text, &end);
    if (text[at] == ' ' && end < length) class = class_of(text, &end);
    if (class != SPACE) {
        for (size_t next = end; next < length; end = next)
            if (class_of(text, &next) != class) break;
        return end;
    }
    end = at;
    for (size_t next = at; next < length; last = end, end = next)
        if (class_of(text, &next) != SPACE) break;
    /* A space before a word belongs to the word. */
    return end < length && last > at ? last : end;
}

static snug_status split_gpt2(struct snug_words *words, size_t step, const char *text, size_t length) {
    for (size_t at = 0; at < length;) {
        const size_t end = gpt2_match(text, length, at);
        RETURN_IF_ERROR(emit(words, step + 1, text + at, end - at));
        at = end;
    }
    return SNUG_OK;
}

/* ---- patterns and behaviors ---- */

static bool in_class(const struct snug_pretokenizer_step *step, uint32_t code) {
    const unsigned flags = snug_codepoint_flags(code);
    return flags & (step->kind == SNUG_SPLITTING_SPACE         ? SNUG_CODEPOINT_SPACE
                    : step->kind == SNUG_SPLITTING_PUNCTUATION ? SNUG_CODEPOINT_PUNCTUATION
                                                               : SNUG_CODEPOINT_NUMERIC);
}

/* Whether the first character at text[*at] is \w, \s or neither; moves *at past it. */
static enum char_class word_class(const char *text, size_t *at) {
    const unsigned flags = snug_codepoint_flags(snug_utf8_next(text, at));
    return flags & SNUG_CODEPOINT_WORD ? LETTER : flags & SNUG_CODEPOINT_SPACE ? SPACE : OTHER;
}

/* The next match of a step that is not before text[at]: text[*start … *end); both are length if there is none. */
static snug_status find_match(struct snug_words *words, const struct snug_pretokenizer_step *step, const char *text,
                              size_t length, size_t at, size_t *start, size_t *end) {
    snug_status status;
    *start = *end = length;
    switch (step->kind) {
    case SNUG_SPLITTING_GPT2:
        *start = at;
        *end = gpt2_match(text, length, at);
        return SNUG_OK;
    case SNUG_SPLITTING_REGEX:
        status = snug_regex_find(words->ctx, step->regex, text, length, at, &words->regex, start, end);
        if (status == SNUG_END) *start = *end = length;
        return status == SNUG_END ? SNUG_OK : status;
    case SNUG_SPLITTING_LITERAL: {
        const char *found = memmem(text + at, length - at, step->pattern, step->length);
        if (found) *start = (size_t)(found - text);
        if (found) *end = *start + step->length;
        return SNUG_OK;
    }
    case SNUG_SPLITTING_WORDS:
        for (size_t next = at; at < length && word_class(text, &next) == SPACE;) at = next;
        *start = *end = at;
        if (at == length) return SNUG_OK;
        const enum char_class class = word_class(text, end);
        for (size_t next = *end; next < length; *end = next)
            if (word_class(text, &next) != class) break;
        return SNUG_OK;
    default:
        for (size_t next = at; next < length; at = next) {
            if (!in_class(step, snug_utf8_next(text, &next))) continue;
            *start = at;
            *end = next;
            return SNUG_OK;
        }
        return SNUG_OK;
    }
}

static snug_status split_by_pattern(struct snug_words *words, size_t step_number, const char *text, size_t length) {
    const struct snug_pretokenizer_step *step = &words->pretokenizer->steps[step_number];
    const enum snug_behavior behavior = step->behavior;
    const size_t next = step_number + 1;
    size_t pending = 0; /* text[pending … at) is not passed on yet */
    bool before = false, match, any = false;
    size_t start = 0, stop = 0; /* the match at or after at */
    for (size_t at = 0, end; at < length; at = end, before = match, any = true) {
        if (stop <= at) RETURN_IF_ERROR(find_match(words, step, text, length, at, &start, &stop));
        match = (start == at) != step->invert;
        end = start == at ? stop : start;
        bool joined; /* appended to the pending text */
        switch (behavior) {
        case SNUG_BEHAVIOR_REMOVED:
        case SNUG_BEHAVIOR_ISOLATED: joined = false; break;
        case SNUG_BEHAVIOR_MERGED_WITH_PREVIOUS: joined = match && !before; break;
        case SNUG_BEHAVIOR_MERGED_WITH_NEXT: joined = !match && before; break;
        default: joined = match == before; break;
        }
        if (joined && any) continue;
        const bool removed = behavior == SNUG_BEHAVIOR_REMOVED && before;
        if (!removed) RETURN_IF_ERROR(emit(words, next, text + pending, at - pending));
        pending = at;
    }
    const bool removed = behavior == SNUG_BEHAVIOR_REMOVED && before;
    return removed ? SNUG_OK : emit(words, next, text + pending, length - pending);
}

/* ---- Metaspace and ByteLevel ---- */

static snug_status put(struct snug_words *words, struct snug_text *out, const char *text, size_t length) {
    RETURN_IF_ERROR(snug_grow(words->ctx, (void **)&out->text, &out->capacity, out->length + length + 1, 1));
    memcpy(out->text + out->length, text, length);
    out->length += length;
    return SNUG_OK;
}

static snug_status buffer_of(struct snug_words *words, size_t step, struct snug_text **out) {
    if (!words->buffers)
        RETURN_IF_ERROR(
            snug_alloc(words->ctx, words->pretokenizer->count, sizeof *words->buffers, (void **)&words->buffers));
    *out = &words->buffers[step];
    (*out)->length = 0;
    return SNUG_OK;
}

static bool begins_with(const char *text, size_t length, const char *prefix, size_t prefix_length) {
    return length >= prefix_length && !memcmp(text, prefix, prefix_length);
}

static snug_status split_metaspace(struct snug_words *words, size_t number, const char *text, size_t length,
                                   bool first) {
    const struct snug_pretokenizer_step *step = &words->pretokenizer->steps[number];
    struct snug_text *out;
    RETURN_IF_ERROR(buffer_of(words, number, &out));
    const bool begun = text[0] == ' ' || begins_with(text, length, step->pattern, step->length);
    if (!begun && (step->prefix == SNUG_PREFIX_ALWAYS || (step->prefix == SNUG_PREFIX_FIRST && first)))
        RETURN_IF_ERROR(put(words, out, step->pattern, step->length));
    for (size_t at = 0; at < length;) {
        const char *space = memchr(text + at, ' ', length - at);
        const size_t stop = space ? (size_t)(space - text) : length;
        RETURN_IF_ERROR(put(words, out, text + at, stop - at));
        if (space) RETURN_IF_ERROR(put(words, out, step->pattern, step->length));
        at = stop + (space != NULL);
    }
    if (!step->split) return emit(words, number + 1, out->text, out->length);
    /* Each replacement is merged with the following text, up to the next replacement. */
    size_t pending = 0;
    for (size_t at = 0; at < out->length;) {
        const char *found = memmem(out->text + at, out->length - at, step->pattern, step->length);
        const size_t stop = found ? (size_t)(found - out->text) : out->length;
        if (stop > pending) RETURN_IF_ERROR(emit(words, number + 1, out->text + pending, stop - pending));
        pending = stop;
        at = found ? stop + step->length : stop;
    }
    return emit(words, number + 1, out->text + pending, out->length - pending);
}

static snug_status split_byte_level(struct snug_words *words, size_t number, const char *text, size_t length) {
    const struct snug_pretokenizer_step *step = &words->pretokenizer->steps[number];
    if (text[0] != ' ' && (words->add_prefix || step->prefix == SNUG_PREFIX_ALWAYS)) {
        struct snug_text *out;
        RETURN_IF_ERROR(buffer_of(words, number, &out));
        RETURN_IF_ERROR(put(words, out, " ", 1));
        RETURN_IF_ERROR(put(words, out, text, length));
        text = out->text;
        length = out->length;
    }
    return step->split ? split_gpt2(words, number, text, length) : emit(words, number + 1, text, length);
}

static snug_status run_step(struct snug_words *words, size_t step, const char *text, size_t length, bool first) {
    switch (words->pretokenizer->steps[step].kind) {
    case SNUG_SPLITTING_BERT: return split_bert(words, step, text, length);
    case SNUG_SPLITTING_METASPACE: return split_metaspace(words, step, text, length, first);
    case SNUG_SPLITTING_BYTE_LEVEL: return split_byte_level(words, step, text, length);
    case SNUG_SPLITTING_SPACE:
    case SNUG_SPLITTING_PUNCTUATION:
    case SNUG_SPLITTING_DIGITS:
    case SNUG_SPLITTING_LITERAL:
    case SNUG_SPLITTING_WORDS:
    case SNUG_SPLITTING_REGEX:
    case SNUG_SPLITTING_GPT2: break;
    }
    return split_by_pattern(words, step, text, length);
}

snug_status snug_words_split(struct snug_words *words, const char *text, size_t length, bool first) {
    if (!length) return SNUG_OK;
    if (!words->pretokenizer->count) return words->sink(words->user, text, length);
    return run_step(words, 0, text, length, first);
}
