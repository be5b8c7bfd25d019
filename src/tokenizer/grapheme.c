/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/grapheme.h"

#include <stdbool.h>

#include "tokenizer/grapheme_tables.h"
#include "tokenizer/unicode.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Grapheme_Cluster_Break, with Extended_Pictographic and Indic_Conjunct_Break where the rules need them. */
enum break_class {
    OTHER,
    CR,
    LF,
    CONTROL,
    L,
    V,
    T,
    LV,
    LVT,
    REGIONAL,
    PREPEND,
    SPACING,
    PICTOGRAPH,
    EXTEND,          /* InCB=None */
    CONJUNCT_EXTEND, /* InCB=Extend */
    LINKER,
    ZWJ,
    CONSONANT,
};

/* The state of a cluster so far that the rules depend on. */
struct state {
    enum break_class last;
    bool consonant;  /* it ends with a consonant, then InCB=Extend and linkers only … */
    bool linker;     /* … with at least one linker */
    bool pictograph; /* it ends with a pictograph, then Extend only, and perhaps one ZWJ */
    bool paired;     /* it ends with two regional indicators */
};

static enum break_class class_of(uint32_t code) {
    if (code >= 0xac00 && code < 0xd7a4) return (code - 0xac00) % 28 ? LVT : LV;
    const uint32_t key = code << 8 | 255u;
    size_t low = 0, high = COUNT(class_changes);
    while (high - low > 1) { /* finds the last change at or before code */
        const size_t middle = (low + high) / 2;
        *(class_changes[middle] <= key ? &low : &high) = middle;
    }
    return (enum break_class)(class_changes[low] & 255u);
}

/* Whether the next code point belongs to the same cluster: rules GB3 to GB999. */
static bool joins(const struct state *state, enum break_class next) {
    const enum break_class last = state->last;
    if (last == CR) return next == LF;
    if (last == LF || last == CONTROL || next == CR || next == LF || next == CONTROL) return false;
    if (last == PREPEND) return true;
    switch (next) {
    case EXTEND:
    case CONJUNCT_EXTEND:
    case LINKER:
    case ZWJ:
    case SPACING: return true;
    case L:
    case LV:
    case LVT: return last == L;
    case V: return last == L || last == LV || last == V;
    case T: return last == LV || last == V || last == LVT || last == T;
    case CONSONANT: return state->linker;
    case PICTOGRAPH: return state->pictograph && last == ZWJ;
    case REGIONAL: return last == REGIONAL && !state->paired;
    default: return false;
    }
}

static void append(struct state *state, enum break_class next) {
    const bool conjunct = next == CONJUNCT_EXTEND || next == LINKER || next == ZWJ;
    const bool extend = next == EXTEND || next == CONJUNCT_EXTEND || next == LINKER;
    state->consonant = next == CONSONANT || (state->consonant && conjunct);
    state->linker = state->consonant && next != CONSONANT && (state->linker || next == LINKER);
    state->pictograph = next == PICTOGRAPH || (state->pictograph && state->last != ZWJ && (extend || next == ZWJ));
    state->paired = next == REGIONAL && state->last == REGIONAL;
    state->last = next;
}

size_t snug_grapheme_end(const char *text, size_t length, size_t at) {
    struct state state = {.last = OTHER};
    append(&state, class_of(snug_utf8_next(text, &at)));
    while (at < length) {
        size_t after = at;
        const enum break_class next = class_of(snug_utf8_next(text, &after));
        if (!joins(&state, next)) break;
        append(&state, next);
        at = after;
    }
    return at;
}
