/* SPDX-License-Identifier: Apache-2.0 */
/* From a pattern to a tree, and from the tree to steps. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/utf8.h"
#include "tokenizer/regex_impl.h"
#include "tokenizer/unicode.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    DEPTH_MOST = 50, /* of groups and classes */
    STEPS_MOST = 1 << 14,
    TIMES_MOST = 1000,   /* of {m,n} */
    QUANTIFIERS_MOST = 8 /* of an atom */
};

struct node {
    enum { EMPTY, SET, SEQUENCE, CHOICE, REPEAT, ATOMIC, AHEAD, PLACE } kind;
    int32_t a, b;                             /* SEQUENCE and CHOICE: both; REPEAT, ATOMIC, AHEAD: a; SET: a set */
    int32_t least, most;                      /* REPEAT */
    enum { GREEDY, LAZY, POSSESSIVE } repeat; /* REPEAT */
    struct snug_regex_step place;             /* PLACE; AHEAD: negated */
};

struct parser {
    snug_context *ctx;
    const char *path, *pattern;
    size_t length, at;
    bool fold;       /* within (?i) */
    uint32_t before; /* the letter before this one, within (?i); 0: none */
    int depth;
    struct snug_regex *regex;
    struct node *nodes;
    size_t count, capacity;
};

static snug_status refuse(const struct parser *p, size_t at, const char *what) {
    return snug_fail(p->ctx, SNUG_E_UNSUPPORTED, "%s: the regular expression \"%s\" is not supported: byte %zu: %s",
                     p->path, p->pattern, at + 1, what);
}

static bool is_next(const struct parser *p, const char *text) {
    const size_t length = strlen(text);
    return p->length - p->at >= length && !memcmp(p->pattern + p->at, text, length);
}

/* Moves over the text, if it is next. */
static bool take(struct parser *p, const char *text) {
    const bool found = is_next(p, text);
    if (found) p->at += strlen(text);
    return found;
}

static snug_status add_node(struct parser *p, struct node node, int32_t *out) {
    RETURN_IF_ERROR(snug_grow(p->ctx, (void **)&p->nodes, &p->capacity, p->count + 1, sizeof *p->nodes));
    *out = (int32_t)p->count;
    p->nodes[p->count++] = node;
    return SNUG_OK;
}

/* ---- sets ------------------------------------------------------------------------------------------------------ */

/* A set being parsed: its items are together once it is complete. */
struct items {
    struct snug_regex_item *list;
    size_t count, capacity;
};

static snug_status add_item(struct parser *p, struct items *items, struct snug_regex_item item) {
    RETURN_IF_ERROR(snug_grow(p->ctx, (void **)&items->list, &items->capacity, items->count + 1, sizeof *items->list));
    items->list[items->count++] = item;
    return SNUG_OK;
}

static snug_status finish_set(struct parser *p, const struct items *items, bool negated, int32_t also, int32_t *out) {
    struct snug_regex *regex = p->regex;
    RETURN_IF_ERROR(snug_grow(p->ctx, (void **)&regex->items, &regex->item_capacity, regex->item_count + items->count,
                              sizeof *regex->items));
    RETURN_IF_ERROR(
        snug_grow(p->ctx, (void **)&regex->sets, &regex->set_capacity, regex->set_count + 1, sizeof *regex->sets));
    struct snug_regex_set set = {
        .first = (int32_t)regex->item_count, .count = (int32_t)items->count, .also = also, .negated = negated};
    if (items->count) memcpy(regex->items + regex->item_count, items->list, items->count * sizeof *items->list);
    regex->item_count += items->count;
    for (uint32_t code = 0; code < 128; code++)
        if (snug_regex_look_up(regex, &set, code)) set.ascii[code >> 5] |= UINT32_C(1) << (code & 31);
    *out = (int32_t)regex->set_count;
    regex->sets[regex->set_count++] = set;
    return SNUG_OK;
}

static bool is_letter(uint32_t code) { return (code | 32) - 'a' < 26; }

/* A range of characters, with the other cases of its letters within (?i): of s and k also one beyond ASCII. */
static snug_status add_range(struct parser *p, struct items *items, size_t from, uint32_t low, uint32_t high) {
    RETURN_IF_ERROR(add_item(p, items, (struct snug_regex_item){SNUG_ITEM_RANGE, false, low, high}));
    if (p->fold && high >= 128) return refuse(p, from, "characters beyond ASCII after (?i)");
    for (uint32_t code = low; p->fold && code <= high; code++) {
        const uint32_t other = code ^ 32, beyond = (code | 32) == 's' ? 0x17f : (code | 32) == 'k' ? 0x212a : other;
        if (!is_letter(code)) continue;
        RETURN_IF_ERROR(add_item(p, items, (struct snug_regex_item){SNUG_ITEM_RANGE, false, other, other}));
        RETURN_IF_ERROR(add_item(p, items, (struct snug_regex_item){SNUG_ITEM_RANGE, false, beyond, beyond}));
    }
    return SNUG_OK;
}

/* \p{NAME}, after the p: a category, all categories that begin with a letter, or a script. */
static snug_status parse_property(struct parser *p, bool negated, struct snug_regex_item *out) {
    static const char *const categories[] = {SNUG_CATEGORIES}, *const scripts[] = {SNUG_SCRIPTS};
    const size_t from = p->at;
    if (!take(p, "{")) return refuse(p, from, "\\p without {");
    negated ^= take(p, "^");
    const char *name = p->pattern + p->at, *close = memchr(name, '}', p->length - p->at);
    const size_t length = close ? (size_t)(close - name) : 0;
    *out = (struct snug_regex_item){.kind = SNUG_ITEM_CATEGORIES, .negated = negated};
    for (uint32_t i = 0; i < COUNT(categories); i++)
        if ((length == 1 || length == 2) && !strncasecmp(name, categories[i], length)) out->low |= UINT32_C(1) << i;
    for (uint32_t i = 0; i < COUNT(scripts); i++)
        if (length == strlen(scripts[i]) && !strncasecmp(name, scripts[i], length))
            *out = (struct snug_regex_item){SNUG_ITEM_SCRIPT, negated, i + 1, 0};
    if (!out->low) return refuse(p, from, "this property: only general categories, Han, Hiragana, Katakana, Hangul");
    p->at += length + 1;
    return SNUG_OK;
}

/* Up to `most` hexadecimal digits. */
static snug_status parse_hex(struct parser *p, size_t most, bool braced, uint32_t *code) {
    const size_t from = p->at;
    *code = 0;
    for (size_t i = 0; i < most && p->at < p->length; i++, p->at++) {
        const char digit = p->pattern[p->at];
        const bool number = digit >= '0' && digit <= '9';
        if (!number && ((digit | 32) < 'a' || (digit | 32) > 'f')) break;
        *code = *code << 4 | (uint32_t)(number ? digit - '0' : (digit | 32) - 'a' + 10);
    }
    const bool valid = p->at > from && *code < 0x110000 && (*code < 0xd800 || *code >= 0xe000);
    return valid && (!braced || take(p, "}")) ? SNUG_OK : refuse(p, from, "not the number of a character");
}

/* An escape, after the backslash: a class of characters (*class), or one character. */
static snug_status parse_escape(struct parser *p, bool *class, struct snug_regex_item *item, uint32_t *code) {
    static const char letters[] = "tnvfrae", values[] = "\t\n\v\f\r\a\x1b";
    static const struct {
        char letter;
        struct snug_regex_item item;
    } kinds[] = {{'s', {SNUG_ITEM_SPACE, false, 0, 0}},
                 {'d', {SNUG_ITEM_CATEGORIES, false, 1 << 8, 0}}, /* Nd */
                 {'w', {SNUG_ITEM_WORD, false, 0, 0}}};
    const size_t from = p->at - 1;
    if (p->at == p->length) return refuse(p, from, "a backslash at the end");
    *class = true;
    if (take(p, "p")) return parse_property(p, false, item);
    if (take(p, "P")) return parse_property(p, true, item);
    const char letter = p->pattern[p->at];
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if ((letter | 32) != kinds[i].letter) continue;
        *item = kinds[i].item;
        item->negated = letter < 'a';
        p->at++;
        return SNUG_OK;
    }
    *class = false;
    if (take(p, "x{")) return parse_hex(p, 8, true, code);
    if (take(p, "x")) return parse_hex(p, 2, false, code);
    if (take(p, "u")) return parse_hex(p, 4, false, code);
    const char *known = memchr(letters, letter, sizeof letters - 1);
    if (!known && (is_letter((unsigned char)letter) || (letter >= '0' && letter <= '9')))
        return refuse(p, from, "this escape");
    *code = snug_utf8_next(p->pattern, &p->at);
    if (known) *code = (unsigned char)values[known - letters];
    return SNUG_OK;
}

static snug_status parse_class(struct parser *p, int32_t *out);

/* An item of a class, or one character of it. */
static snug_status parse_member(struct parser *p, bool *class, struct snug_regex_item *item, uint32_t *code) {
    *class = false;
    if (is_next(p, "[:")) return refuse(p, p->at, "this class in brackets");
    if (take(p, "[")) {
        int32_t set;
        RETURN_IF_ERROR(parse_class(p, &set));
        *class = true;
        *item = (struct snug_regex_item){SNUG_ITEM_SET, false, (uint32_t)set, 0};
        return SNUG_OK;
    }
    if (is_next(p, "\\h") || is_next(p, "\\H") || is_next(p, "\\b")) return refuse(p, p->at, "this escape in a class");
    if (take(p, "\\")) return parse_escape(p, class, item, code);
    *code = snug_utf8_next(p->pattern, &p->at);
    return SNUG_OK;
}

/* The items of a class up to its ] or &&. */
static snug_status parse_members(struct parser *p, size_t from, struct items *items) {
    while (!is_next(p, "]") && !is_next(p, "&&")) {
        const size_t begin = p->at;
        struct snug_regex_item item;
        bool class;
        uint32_t low, high;
        if (p->at == p->length) return refuse(p, from, "a class without ]");
        RETURN_IF_ERROR(parse_member(p, &class, &item, &low));
        if (class) {
            RETURN_IF_ERROR(add_item(p, items, item));
            continue;
        }
        high = low;
        const size_t dash = p->at;
        if (take(p, "-") && !is_next(p, "]")) {
            RETURN_IF_ERROR(p->at < p->length ? parse_member(p, &class, &item, &high) : SNUG_OK);
            if (class || high < low) return refuse(p, dash, "a range that does not end with a later character");
        } else {
            p->at = dash;
        }
        RETURN_IF_ERROR(add_range(p, items, begin, low, high));
    }
    return SNUG_OK;
}

/* A class, after its [. */
static snug_status parse_class(struct parser *p, int32_t *out) {
    const size_t from = p->at - 1;
    const bool negated = take(p, "^");
    struct items items = {0};
    snug_status status = SNUG_OK;
    int32_t also = -1;
    if (is_next(p, "]")) return refuse(p, p->at, "] as the first character of a class: write \\]");
    if (p->depth == DEPTH_MOST) return refuse(p, from, "so many classes within each other");
    p->depth++;
    bool more = true;
    while (status == SNUG_OK && more) {
        items.count = 0;
        status = parse_members(p, from, &items);
        more = take(p, "&&");
        if (status == SNUG_OK) status = finish_set(p, &items, false, also, &also);
    }
    struct snug_regex_set *last = status == SNUG_OK && negated ? &p->regex->sets[also] : NULL;
    if (last) last->negated = true; /* of the whole intersection */
    for (int i = 0; last && i < 4; i++) last->ascii[i] ^= UINT32_MAX;
    free(items.list);
    p->depth--;
    *out = also;
    if (status == SNUG_OK) take(p, "]");
    return status;
}

static snug_status add_set(struct parser *p, struct snug_regex_item item, bool negated, int32_t *out) {
    const struct items items = {&item, 1, 1};
    int32_t set;
    RETURN_IF_ERROR(finish_set(p, &items, negated, -1, &set));
    return add_node(p, (struct node){.kind = SET, .a = set}, out);
}

/* ---- the tree -------------------------------------------------------------------------------------------------- */

static snug_status parse_choice(struct parser *p, int32_t *out);

/* A character of the pattern by itself. */
static snug_status parse_character(struct parser *p, size_t from, uint32_t code, int32_t *out) {
    static const char *const joined[] = {"ff", "fi", "fl", "ss",
                                         "st"}; /* characters beyond ASCII have both as a case */
    struct items items = {0};
    int32_t set;
    for (size_t i = 0; p->fold && i < COUNT(joined); i++)
        if (p->before == (uint32_t)joined[i][0] && (code | 32) == (uint32_t)joined[i][1])
            return refuse(p, from, "these two letters after (?i)");
    p->before = p->fold ? code | 32 : 0;
    snug_status status = add_range(p, &items, from, code, code);
    if (status == SNUG_OK) status = finish_set(p, &items, false, -1, &set);
    free(items.list);
    RETURN_IF_ERROR(status);
    return add_node(p, (struct node){.kind = SET, .a = set}, out);
}

static snug_status add_place(struct parser *p, enum snug_regex_op op, bool negated, int32_t *out) {
    return add_node(p, (struct node){.kind = PLACE, .place = {.op = op, .negated = negated}}, out);
}

static snug_status parse_look(struct parser *p, size_t from, bool behind, bool negated, int32_t *out) {
    int32_t body;
    RETURN_IF_ERROR(parse_choice(p, &body));
    if (!behind) return add_node(p, (struct node){.kind = AHEAD, .a = body, .place = {.negated = negated}}, out);
    if (p->nodes[body].kind != SET) return refuse(p, from, "a look behind of anything but one character");
    const struct snug_regex_step place = {.op = SNUG_REGEX_BEHIND, .negated = negated, .x = p->nodes[body].a};
    return add_node(p, (struct node){.kind = PLACE, .place = place}, out);
}

/* A group, after its (. */
static snug_status parse_group(struct parser *p, int32_t *out) {
    const size_t from = p->at - 1;
    const bool fold = p->fold;
    if (p->depth == DEPTH_MOST) return refuse(p, from, "so many groups within each other");
    p->depth++;
    if (take(p, "?=") || is_next(p, "?!")) {
        RETURN_IF_ERROR(parse_look(p, from, false, take(p, "?!"), out));
    } else if (take(p, "?<=") || is_next(p, "?<!")) {
        RETURN_IF_ERROR(parse_look(p, from, true, take(p, "?<!"), out));
    } else if (take(p, "?>")) {
        int32_t body;
        RETURN_IF_ERROR(parse_choice(p, &body));
        RETURN_IF_ERROR(add_node(p, (struct node){.kind = ATOMIC, .a = body}, out));
    } else if (take(p, "?i)")) { /* up to the end of the group around it, choices included */
        p->fold = true;
        RETURN_IF_ERROR(parse_choice(p, out));
        p->fold = fold;
        p->depth--;
        return SNUG_OK;
    } else {
        if (take(p, "?i:"))
            p->fold = true;
        else if (!take(p, "?:") && is_next(p, "?"))
            return refuse(p, from, "this kind of group");
        RETURN_IF_ERROR(parse_choice(p, out));
    }
    p->fold = fold;
    p->depth--;
    return take(p, ")") ? SNUG_OK : refuse(p, from, "a group without )");
}

static snug_status parse_atom(struct parser *p, int32_t *out) {
    static const struct {
        const char *text;
        enum snug_regex_op op;
        bool negated;
    } places[] = {{"^", SNUG_REGEX_LINE, false},  {"$", SNUG_REGEX_NEWLINE, false},  {"\\A", SNUG_REGEX_BEGIN, false},
                  {"\\z", SNUG_REGEX_END, false}, {"\\b", SNUG_REGEX_BORDER, false}, {"\\B", SNUG_REGEX_BORDER, true}};
    const size_t from = p->at;
    struct snug_regex_item item;
    bool class;
    uint32_t code;
    const uint32_t before = p->before;
    p->before = 0;
    for (size_t i = 0; i < COUNT(places); i++)
        if (take(p, places[i].text)) return add_place(p, places[i].op, places[i].negated, out);
    if (take(p, ".")) return add_set(p, (struct snug_regex_item){SNUG_ITEM_RANGE, false, '\n', '\n'}, true, out);
    if (take(p, "(")) return parse_group(p, out);
    if (take(p, "[")) {
        int32_t set;
        RETURN_IF_ERROR(parse_class(p, &set));
        return add_node(p, (struct node){.kind = SET, .a = set}, out);
    }
    if (is_next(p, "\\h") || is_next(p, "\\H")) {
        struct snug_regex_item digits[] = {
            {SNUG_ITEM_RANGE, false, '0', '9'}, {SNUG_ITEM_RANGE, false, 'A', 'F'}, {SNUG_ITEM_RANGE, false, 'a', 'f'}};
        const struct items items = {digits, 3, 3};
        int32_t set;
        RETURN_IF_ERROR(finish_set(p, &items, p->pattern[from + 1] == 'H', -1, &set));
        p->at += 2;
        return add_node(p, (struct node){.kind = SET, .a = set}, out);
    }
    if (is_next(p, "*") || is_next(p, "+") || is_next(p, "?")) return refuse(p, from, "a quantifier of nothing");
    if (take(p, "\\")) {
        RETURN_IF_ERROR(parse_escape(p, &class, &item, &code));
        if (class) return add_set(p, item, false, out);
    } else {
        code = snug_utf8_next(p->pattern, &p->at);
    }
    p->before = before;
    return parse_character(p, from, code, out);
}

/* {m}, {m,}, {,n} or {m,n}; any other { is a character. */
static bool take_interval(struct parser *p, int64_t *least, int64_t *most) {
    size_t at = p->at + 1;
    int64_t numbers[2] = {-1, -1};
    int which = 0;
    if (!is_next(p, "{")) return false;
    for (; at < p->length && p->pattern[at] != '}'; at++) {
        const char c = p->pattern[at];
        if (c == ',' && which == 0) {
            which = 1;
            continue;
        }
        if (c < '0' || c > '9') return false;
        int64_t *number = &numbers[which];
        *number = (*number < 0 ? 0 : *number) * 10 + (c - '0');
        if (*number > TIMES_MOST) *number = TIMES_MOST + 1;
    }
    if (at == p->length || (numbers[0] < 0 && numbers[1] < 0)) return false;
    p->at = at + 1;
    *least = numbers[0] < 0 ? 0 : numbers[0];
    *most = !which ? *least : numbers[1] < 0 ? SNUG_REGEX_INFINITE : numbers[1];
    return true;
}

static bool can_be_empty(const struct parser *p, int32_t node) {
    for (;;) { /* long sequences and choices need no recursion */
        const struct node *n = &p->nodes[node];
        switch (n->kind) {
        case SET: return false;
        case SEQUENCE:
            if (!can_be_empty(p, n->a)) return false;
            node = n->b;
            break;
        case CHOICE:
            if (can_be_empty(p, n->a)) return true;
            node = n->b;
            break;
        case REPEAT:
            if (!n->least) return true;
            node = n->a;
            break;
        case ATOMIC: node = n->a; break;
        default: return true;
        }
    }
}

/* An atom with its quantifiers. */
static snug_status parse_repeated(struct parser *p, int32_t *out) {
    RETURN_IF_ERROR(parse_atom(p, out));
    for (int quantifiers = 0;; quantifiers++) {
        const size_t from = p->at;
        int64_t least = 0, most = SNUG_REGEX_INFINITE;
        struct node node = {.kind = REPEAT, .a = *out};
        const bool interval = take_interval(p, &least, &most);
        if (take(p, interval ? "" : "?"))
            most = interval ? most : 1;
        else if (take(p, "+"))
            least = 1;
        else if (!take(p, "*"))
            return SNUG_OK;
        p->before = 0;
        if ((!interval || least != most) && take(p, "?")) /* of {n}, ? is another quantifier */
            node.repeat = LAZY;
        else if (!interval && take(p, "+")) /* of {m,n}, + is another quantifier */
            node.repeat = POSSESSIVE;
        if (most < least || least > TIMES_MOST || (most > TIMES_MOST && most != SNUG_REGEX_INFINITE))
            return refuse(p, from, "these numbers of a quantifier");
        if (most > 1 && can_be_empty(p, *out)) return refuse(p, from, "a repeated group that can match nothing");
        if (quantifiers == QUANTIFIERS_MOST) return refuse(p, from, "so many quantifiers");
        node.least = (int32_t)least;
        node.most = (int32_t)most;
        RETURN_IF_ERROR(add_node(p, node, out));
    }
}

/* Both have their parts on the right, so that long ones need no recursion: parts are joined from the last. */
static snug_status join(struct parser *p, int kind, const int32_t *parts, size_t count, int32_t *out) {
    if (!count) return add_node(p, (struct node){.kind = EMPTY}, out);
    *out = parts[count - 1];
    for (size_t i = count - 1; i-- > 0;)
        RETURN_IF_ERROR(add_node(p, (struct node){.kind = kind, .a = parts[i], .b = *out}, out));
    return SNUG_OK;
}

static snug_status parse_parts(struct parser *p, bool choice, int32_t *out) {
    struct {
        int32_t *list;
        size_t count, capacity;
    } parts = {NULL, 0, 0};
    snug_status status = SNUG_OK;
    bool more = choice;
    while (status == SNUG_OK && (choice ? more : p->at < p->length && !is_next(p, "|") && !is_next(p, ")"))) {
        int32_t part = 0;
        status = choice ? parse_parts(p, false, &part) : parse_repeated(p, &part);
        if (status == SNUG_OK)
            status = snug_grow(p->ctx, (void **)&parts.list, &parts.capacity, parts.count + 1, sizeof *parts.list);
        if (status == SNUG_OK) parts.list[parts.count++] = part;
        more = choice && take(p, "|");
        if (choice) p->before = 0;
    }
    if (status == SNUG_OK) status = join(p, choice ? CHOICE : SEQUENCE, parts.list, parts.count, out);
    free(parts.list);
    return status;
}

static snug_status parse_choice(struct parser *p, int32_t *out) {
    p->before = 0;
    return parse_parts(p, true, out);
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static snug_status emit(struct parser *p, struct snug_regex_step step) {
    struct snug_regex *regex = p->regex;
    if (regex->step_count == STEPS_MOST) return refuse(p, 0, "too large a pattern");
    RETURN_IF_ERROR(
        snug_grow(p->ctx, (void **)&regex->steps, &regex->step_capacity, regex->step_count + 1, sizeof *regex->steps));
    regex->steps[regex->step_count++] = step;
    return SNUG_OK;
}

static snug_status emit_node(struct parser *p, int32_t node);

/* A node that is run by itself, up to MATCH. */
static snug_status emit_inner(struct parser *p, enum snug_regex_op op, bool negated, int32_t node) {
    const size_t at = p->regex->step_count;
    RETURN_IF_ERROR(emit(p, (struct snug_regex_step){.op = op, .negated = negated}));
    RETURN_IF_ERROR(emit_node(p, node));
    RETURN_IF_ERROR(emit(p, (struct snug_regex_step){.op = SNUG_REGEX_MATCH}));
    p->regex->steps[at].x = (int32_t)p->regex->step_count;
    return SNUG_OK;
}

/* A choice between the steps that follow and those that will come after it; *at is its place. Such choices are a list,
   from the last: y is the one before. */
static snug_status emit_split(struct parser *p, int32_t before, int32_t *at) {
    *at = (int32_t)p->regex->step_count;
    return emit(p, (struct snug_regex_step){.op = SNUG_REGEX_SPLIT, .y = before});
}

/* What comes after them is here. */
static void end_splits(struct parser *p, int32_t last, bool lazy) {
    const int32_t end = (int32_t)p->regex->step_count;
    while (last >= 0) {
        struct snug_regex_step *step = &p->regex->steps[last];
        const int32_t before = step->y, following = last + 1;
        step->x = lazy ? end : following;
        step->y = lazy ? following : end;
        last = before;
    }
}

static snug_status emit_repeat(struct parser *p, int32_t node) {
    const struct node n = p->nodes[node];
    const struct node *inner = &p->nodes[n.a];
    int32_t at = -1;
    if (inner->kind == SET && n.repeat != LAZY)
        return emit(p, (struct snug_regex_step){.op = SNUG_REGEX_REPEAT,
                                                .possessive = n.repeat == POSSESSIVE,
                                                .x = inner->a,
                                                .least = n.least,
                                                .most = n.most});
    if (n.repeat == POSSESSIVE) {
        p->nodes[node].repeat = GREEDY;
        return emit_inner(p, SNUG_REGEX_ATOMIC, false, node);
    }
    for (int32_t i = 0; i < n.least; i++) RETURN_IF_ERROR(emit_node(p, n.a));
    if (n.most == SNUG_REGEX_INFINITE) {
        RETURN_IF_ERROR(emit_split(p, -1, &at));
        RETURN_IF_ERROR(emit_node(p, n.a));
        RETURN_IF_ERROR(emit(p, (struct snug_regex_step){.op = SNUG_REGEX_JUMP, .x = at}));
    }
    for (int32_t i = n.least; i < n.most && n.most != SNUG_REGEX_INFINITE; i++) {
        RETURN_IF_ERROR(emit_split(p, at, &at));
        RETURN_IF_ERROR(emit_node(p, n.a));
    }
    end_splits(p, at, n.repeat == LAZY);
    return SNUG_OK;
}

static snug_status emit_node(struct parser *p, int32_t node) {
    for (;;) {
        const struct node n = p->nodes[node];
        size_t jump;
        int32_t at;
        switch (n.kind) {
        case EMPTY: return SNUG_OK;
        case SET: return emit(p, (struct snug_regex_step){.op = SNUG_REGEX_SET, .x = n.a});
        case PLACE: return emit(p, n.place);
        case ATOMIC: return emit_inner(p, SNUG_REGEX_ATOMIC, false, n.a);
        case AHEAD: return emit_inner(p, SNUG_REGEX_AHEAD, n.place.negated, n.a);
        case REPEAT: return emit_repeat(p, node);
        case SEQUENCE:
            RETURN_IF_ERROR(emit_node(p, n.a));
            node = n.b;
            break;
        case CHOICE:
            RETURN_IF_ERROR(emit_split(p, -1, &at));
            RETURN_IF_ERROR(emit_node(p, n.a));
            jump = p->regex->step_count;
            RETURN_IF_ERROR(emit(p, (struct snug_regex_step){.op = SNUG_REGEX_JUMP}));
            end_splits(p, at, false);
            RETURN_IF_ERROR(emit_node(p, n.b));
            p->regex->steps[jump].x = (int32_t)p->regex->step_count;
            return SNUG_OK;
        }
    }
}

static snug_status compile(struct parser *p) {
    int32_t root;
    const size_t invalid = snug_utf8_invalid(p->pattern, p->length);
    if (invalid < p->length) return refuse(p, invalid, "not UTF-8");
    RETURN_IF_ERROR(parse_choice(p, &root));
    if (p->at < p->length) return refuse(p, p->at, ") without (");
    if (can_be_empty(p, root)) return refuse(p, 0, "a pattern that can match nothing");
    RETURN_IF_ERROR(emit_node(p, root));
    return emit(p, (struct snug_regex_step){.op = SNUG_REGEX_MATCH});
}

snug_status snug_regex_compile(snug_context *ctx, const char *path, const char *pattern, size_t length,
                               struct snug_regex **out) {
    struct parser p = {.ctx = ctx, .path = path, .length = length};
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *p.regex, (void **)&p.regex));
    snug_status status = snug_alloc(ctx, length + 1, 1, (void **)&p.regex->pattern);
    if (status == SNUG_OK) {
        if (length) memcpy(p.regex->pattern, pattern, length);
        p.pattern = p.regex->pattern;
        status = compile(&p);
    }
    free(p.nodes);
    if (status == SNUG_OK)
        *out = p.regex;
    else
        snug_regex_free(p.regex);
    return status;
}

void snug_regex_free(struct snug_regex *regex) {
    if (!regex) return;
    free(regex->pattern);
    free(regex->steps);
    free(regex->sets);
    free(regex->items);
    free(regex);
}
