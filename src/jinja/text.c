/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/text.h"

#include <string.h>
#include <utf8proc.h>

#include "tokenizer/unicode.h"

/* ---- building ---- */

snug_status snug_jinja_put(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder, const char *text,
                           size_t length) {
    RETURN_IF_ERROR(snug_jinja_spend(heap, length >> 6));
    if (length > builder->capacity - builder->length) {
        char *old = builder->text;
        size_t capacity = builder->capacity ? builder->capacity * 2 : 64;
        if (capacity < builder->length + length) capacity = builder->length + length;
        RETURN_IF_ERROR(snug_jinja_take(heap, capacity, (void **)&builder->text));
        if (old) memcpy(builder->text, old, builder->length);
        builder->capacity = capacity;
    }
    if (length) memcpy(builder->text + builder->length, text, length);
    builder->length += length;
    return SNUG_OK;
}

snug_status snug_jinja_put_text(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder, const char *text) {
    return snug_jinja_put(heap, builder, text, strlen(text));
}

static snug_status put_code(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder, uint32_t code) {
    char text[4];
    return snug_jinja_put(heap, builder, text, snug_utf8_put(text, code));
}

/* ---- characters ---- */

bool snug_jinja_is_space(uint32_t code) {
    if (code < 128) return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x1f);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

size_t snug_jinja_count(struct snug_jinja_value text) {
    size_t count = 0;
    for (size_t i = 0; i < text.length; i++) count += ((unsigned char)text.text[i] & 0xc0) != 0x80;
    return count;
}

size_t snug_jinja_offset(struct snug_jinja_value text, size_t index) {
    size_t at = 0;
    while (index-- && at < text.length) snug_utf8_next(text.text, &at);
    return at;
}

/* A part of it, by bytes. */
static struct snug_jinja_value part(struct snug_jinja_value text, size_t begin, size_t end) {
    struct snug_jinja_value out = snug_jinja_string(text.text + begin, end - begin);
    out.flag = text.flag;
    return out;
}

struct snug_jinja_value snug_jinja_cut(struct snug_jinja_value text, size_t begin, size_t end) {
    const size_t first = snug_jinja_offset(text, begin);
    if (end <= begin) return part(text, first, first);
    const size_t length = snug_jinja_offset(part(text, first, text.length), end - begin);
    return part(text, first, first + length);
}

static bool is_in(uint32_t code, const struct snug_jinja_value *set) {
    if (!set) return snug_jinja_is_space(code);
    for (size_t at = 0; at < set->length;)
        if (snug_utf8_next(set->text, &at) == code) return true;
    return false;
}

struct snug_jinja_value snug_jinja_strip(struct snug_jinja_value text, const struct snug_jinja_value *set, bool left,
                                         bool right) {
    size_t begin = 0, end = text.length;
    for (size_t at = 0; left && begin < end; begin = at)
        if (!is_in(snug_utf8_next(text.text, &at), set)) break;
    while (right && end > begin) {
        const size_t before = snug_utf8_previous(text.text, end);
        size_t at = before;
        if (!is_in(snug_utf8_next(text.text, &at), set)) break;
        end = before;
    }
    return part(text, begin, end);
}

size_t snug_jinja_find(struct snug_jinja_value text, struct snug_jinja_value sought, size_t from) {
    if (!sought.length) return from;
    while (from < text.length && text.length - from >= sought.length) {
        const char *first = memchr(text.text + from, sought.text[0], text.length - from - sought.length + 1);
        if (!first) return SIZE_MAX;
        from = (size_t)(first - text.text);
        if (memcmp(first, sought.text, sought.length) == 0) return from;
        from++;
    }
    return SIZE_MAX;
}

size_t snug_jinja_find_last(struct snug_jinja_value text, struct snug_jinja_value sought, size_t end) {
    if (end < sought.length) return SIZE_MAX;
    for (size_t at = end - sought.length;; at--) {
        if (!sought.length || memcmp(text.text + at, sought.text, sought.length) == 0) return at;
        if (!at) return SIZE_MAX;
    }
}

/* ---- case ---- */

static bool is_category(uint32_t code, int first, int last) {
    const int category = (int)(snug_codepoint_class(code) & SNUG_CLASS_CATEGORY);
    return category >= first && category <= last;
}

/* Numbers in SNUG_CATEGORIES. */
enum { LU, LL, LT, LM, LO, MN, MC, ME, ND, NL, NO, CATEGORY_ZS = 22, CATEGORY_CN = 29 };

static bool is_cased(uint32_t code) { return is_category(code, LU, LT); }

/* Upper case of several characters, of Unicode's SpecialCasing.txt, where it does not depend on language or context.
   Where title case has no character of its own, it is these with all after the first letter in lower case; an iota
   below then stays below (U+0345). */
static const struct {
    uint16_t code, upper[3];
} special_upper[] = {
    {0xdf, {0x53, 0x53}},
    {0x149, {0x2bc, 0x4e}},
    {0x1f0, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3b0, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1e96, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}},
    {0x1e98, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}},
    {0x1f80, {0x1f08, 0x399}},
    {0x1f81, {0x1f09, 0x399}},
    {0x1f82, {0x1f0a, 0x399}},
    {0x1f83, {0x1f0b, 0x399}},
    {0x1f84, {0x1f0c, 0x399}},
    {0x1f85, {0x1f0d, 0x399}},
    {0x1f86, {0x1f0e, 0x399}},
    {0x1f87, {0x1f0f, 0x399}},
    {0x1f88, {0x1f08, 0x399}},
    {0x1f89, {0x1f09, 0x399}},
    {0x1f8a, {0x1f0a, 0x399}},
    {0x1f8b, {0x1f0b, 0x399}},
    {0x1f8c, {0x1f0c, 0x399}},
    {0x1f8d, {0x1f0d, 0x399}},
    {0x1f8e, {0x1f0e, 0x399}},
    {0x1f8f, {0x1f0f, 0x399}},
    {0x1f90, {0x1f28, 0x399}},
    {0x1f91, {0x1f29, 0x399}},
    {0x1f92, {0x1f2a, 0x399}},
    {0x1f93, {0x1f2b, 0x399}},
    {0x1f94, {0x1f2c, 0x399}},
    {0x1f95, {0x1f2d, 0x399}},
    {0x1f96, {0x1f2e, 0x399}},
    {0x1f97, {0x1f2f, 0x399}},
    {0x1f98, {0x1f28, 0x399}},
    {0x1f99, {0x1f29, 0x399}},
    {0x1f9a, {0x1f2a, 0x399}},
    {0x1f9b, {0x1f2b, 0x399}},
    {0x1f9c, {0x1f2c, 0x399}},
    {0x1f9d, {0x1f2d, 0x399}},
    {0x1f9e, {0x1f2e, 0x399}},
    {0x1f9f, {0x1f2f, 0x399}},
    {0x1fa0, {0x1f68, 0x399}},
    {0x1fa1, {0x1f69, 0x399}},
    {0x1fa2, {0x1f6a, 0x399}},
    {0x1fa3, {0x1f6b, 0x399}},
    {0x1fa4, {0x1f6c, 0x399}},
    {0x1fa5, {0x1f6d, 0x399}},
    {0x1fa6, {0x1f6e, 0x399}},
    {0x1fa7, {0x1f6f, 0x399}},
    {0x1fa8, {0x1f68, 0x399}},
    {0x1fa9, {0x1f69, 0x399}},
    {0x1faa, {0x1f6a, 0x399}},
    {0x1fab, {0x1f6b, 0x399}},
    {0x1fac, {0x1f6c, 0x399}},
    {0x1fad, {0x1f6d, 0x399}},
    {0x1fae, {0x1f6e, 0x399}},
    {0x1faf, {0x1f6f, 0x399}},
    {0x1fb2, {0x1fba, 0x399}},
    {0x1fb3, {0x391, 0x399}},
    {0x1fb4, {0x386, 0x399}},
    {0x1fb6, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}},
    {0x1fbc, {0x391, 0x399}},
    {0x1fc2, {0x1fca, 0x399}},
    {0x1fc3, {0x397, 0x399}},
    {0x1fc4, {0x389, 0x399}},
    {0x1fc6, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}},
    {0x1fcc, {0x397, 0x399}},
    {0x1fd2, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}},
    {0x1fe6, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}},
    {0x1ff3, {0x3a9, 0x399}},
    {0x1ff4, {0x38f, 0x399}},
    {0x1ff6, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}},
    {0x1ffc, {0x3a9, 0x399}},
    {0xfb00, {0x46, 0x46}},
    {0xfb01, {0x46, 0x49}},
    {0xfb02, {0x46, 0x4c}},
    {0xfb03, {0x46, 0x46, 0x49}},
    {0xfb04, {0x46, 0x46, 0x4c}},
    {0xfb05, {0x53, 0x54}},
    {0xfb06, {0x53, 0x54}},
    {0xfb13, {0x544, 0x546}},
    {0xfb14, {0x544, 0x535}},
    {0xfb15, {0x544, 0x53b}},
    {0xfb16, {0x54e, 0x546}},
    {0xfb17, {0x544, 0x53d}},
};

static snug_status put_upper(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder, uint32_t code,
                             bool title) {
    const utf8proc_int32_t c = (utf8proc_int32_t)code;
    const bool own = code < 0xdf || (title && code >= 0x1f80 && utf8proc_totitle(c) != c);
    bool cased = false;
    for (size_t i = 0; !own && i < sizeof special_upper / sizeof *special_upper; i++) {
        if (special_upper[i].code != code) continue;
        const uint16_t *upper = special_upper[i].upper;
        for (size_t k = 0; k < 3 && upper[k]; k++) {
            const uint32_t lower = code >= 0x1f80 && upper[k] == 0x399 ? 0x345 : (uint32_t)utf8proc_tolower(upper[k]);
            RETURN_IF_ERROR(put_code(heap, builder, title && cased ? lower : upper[k]));
            cased = cased || is_cased(upper[k]);
        }
        return SNUG_OK;
    }
    return put_code(heap, builder, (uint32_t)(title ? utf8proc_totitle(c) : utf8proc_toupper(c)));
}

/* A sigma at the end of a word has another lower case. */
static bool is_final_sigma(struct snug_jinja_value text, size_t begin, size_t end) {
    size_t next = end;
    if (!begin) return false;
    size_t before = snug_utf8_previous(text.text, begin);
    if (!is_cased(snug_utf8_next(text.text, &before))) return false;
    return end == text.length || !is_cased(snug_utf8_next(text.text, &next));
}

static snug_status put_lower(struct snug_jinja_heap *heap, struct snug_jinja_builder *builder,
                             struct snug_jinja_value text, size_t begin, size_t end, uint32_t code) {
    uint32_t lower[2];
    if (code == 0x3a3 && is_final_sigma(text, begin, end)) return put_code(heap, builder, 0x3c2);
    if (!(snug_codepoint_flags(code) & SNUG_CODEPOINT_LOWER)) return put_code(heap, builder, code);
    const int count = snug_codepoint_lower(code, lower);
    for (int i = 0; i < count; i++) RETURN_IF_ERROR(put_code(heap, builder, lower[i]));
    return SNUG_OK;
}

snug_status snug_jinja_change_case(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                                   enum snug_jinja_case which, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    bool in_word = false;
    for (size_t at = 0, begin = 0; at < text.length; begin = at) {
        const uint32_t code = snug_utf8_next(text.text, &at);
        const bool first = which == SNUG_JINJA_CAPITALIZE ? begin == 0 : which == SNUG_JINJA_TITLE && !in_word;
        const bool upper =
            which == SNUG_JINJA_UPPER || first || (which == SNUG_JINJA_SWAP && is_category(code, LL, LL));
        const bool stays = which == SNUG_JINJA_SWAP && !is_category(code, LU, LL);
        if (stays)
            RETURN_IF_ERROR(put_code(heap, &builder, code));
        else if (upper)
            RETURN_IF_ERROR(put_upper(heap, &builder, code, first));
        else
            RETURN_IF_ERROR(put_lower(heap, &builder, text, begin, at, code));
        in_word = is_cased(code);
    }
    *out = snug_jinja_built(&builder);
    out->flag = text.flag;
    return SNUG_OK;
}

/* ---- replace, split, escape ---- */

/* Searching may take the product of both lengths. */
static snug_status spend_search(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                                struct snug_jinja_value sought) {
    return snug_jinja_spend(heap, 1 + (uint64_t)text.length * (1 + sought.length / 16) / 16);
}

snug_status snug_jinja_replace(struct snug_jinja_heap *heap, struct snug_jinja_value text, struct snug_jinja_value old,
                               struct snug_jinja_value new, int64_t most, struct snug_jinja_value *out) {
    struct snug_jinja_builder builder = {0};
    size_t from = 0, done = 0;
    RETURN_IF_ERROR(spend_search(heap, text, old));
    for (; most != 0; most -= most > 0) {
        const size_t found = snug_jinja_find(text, old, from);
        if (found == SIZE_MAX) break;
        RETURN_IF_ERROR(snug_jinja_put(heap, &builder, text.text + done, found - done));
        RETURN_IF_ERROR(snug_jinja_put(heap, &builder, new.text, new.length));
        RETURN_IF_ERROR(snug_jinja_spend(heap, 1));
        done = from = found + old.length;
        if (old.length) continue;
        if (from == text.length) break;
        snug_utf8_next(text.text, &from); /* nothing is before each character, and at the end */
    }
    RETURN_IF_ERROR(snug_jinja_put(heap, &builder, text.text + done, text.length - done));
    *out = snug_jinja_built(&builder);
    return SNUG_OK;
}

static snug_status split_at(struct snug_jinja_heap *heap, struct snug_jinja_value text, struct snug_jinja_value by,
                            int64_t most, struct snug_jinja_list *list) {
    size_t from = 0, found;
    for (; most != 0 && (found = snug_jinja_find(text, by, from)) != SIZE_MAX; most -= most > 0) {
        RETURN_IF_ERROR(snug_jinja_list_add(heap, list, part(text, from, found)));
        from = found + by.length;
    }
    return snug_jinja_list_add(heap, list, part(text, from, text.length));
}

/* From its end on: the items are in reverse. */
static snug_status split_back(struct snug_jinja_heap *heap, struct snug_jinja_value text, struct snug_jinja_value by,
                              int64_t most, struct snug_jinja_list *list) {
    size_t end = text.length, found;
    for (; most != 0 && (found = snug_jinja_find_last(text, by, end)) != SIZE_MAX; most -= most > 0) {
        RETURN_IF_ERROR(snug_jinja_list_add(heap, list, part(text, found + by.length, end)));
        end = found;
    }
    return snug_jinja_list_add(heap, list, part(text, 0, end));
}

/* The first word of text, or the last; rest: what is left of it. False: there is none. */
static bool take_word(struct snug_jinja_value *rest, bool from_right, struct snug_jinja_value *word) {
    *rest = snug_jinja_strip(*rest, NULL, !from_right, from_right);
    size_t at = from_right ? rest->length : 0;
    while (from_right ? at > 0 : at < rest->length) {
        size_t begin = from_right ? snug_utf8_previous(rest->text, at) : at, next = begin;
        if (snug_jinja_is_space(snug_utf8_next(rest->text, &next))) break;
        at = from_right ? begin : next;
    }
    *word = from_right ? part(*rest, at, rest->length) : part(*rest, 0, at);
    *rest = from_right ? part(*rest, 0, at) : part(*rest, at, rest->length);
    return word->length;
}

static snug_status split_words(struct snug_jinja_heap *heap, struct snug_jinja_value text, int64_t most,
                               bool from_right, struct snug_jinja_list *list) {
    struct snug_jinja_value word;
    for (; most != 0 && take_word(&text, from_right, &word); most -= most > 0)
        RETURN_IF_ERROR(snug_jinja_list_add(heap, list, word));
    text = snug_jinja_strip(text, NULL, !from_right, from_right);
    return text.length ? snug_jinja_list_add(heap, list, text) : SNUG_OK;
}

snug_status snug_jinja_split(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                             const struct snug_jinja_value *separator, int64_t most, bool from_right,
                             struct snug_jinja_value *out) {
    RETURN_IF_ERROR(snug_jinja_list_new(heap, SNUG_JINJA_LIST, 0, out));
    struct snug_jinja_list *list = out->list;
    if (separator && !separator->length) return snug_jinja_fail(heap, "empty separator");
    RETURN_IF_ERROR(spend_search(heap, text, separator ? *separator : text));
    if (!separator)
        RETURN_IF_ERROR(split_words(heap, text, most, from_right, list));
    else if (from_right)
        RETURN_IF_ERROR(split_back(heap, text, *separator, most, list));
    else
        return split_at(heap, text, *separator, most, list);
    for (size_t i = 0; from_right && i < list->count / 2; i++) {
        const struct snug_jinja_value item = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = item;
    }
    return SNUG_OK;
}

static bool is_line_end(uint32_t code) {
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

snug_status snug_jinja_split_lines(struct snug_jinja_heap *heap, struct snug_jinja_value text, bool keep,
                                   struct snug_jinja_value *out) {
    size_t begin = 0;
    RETURN_IF_ERROR(snug_jinja_list_new(heap, SNUG_JINJA_LIST, 0, out));
    RETURN_IF_ERROR(snug_jinja_spend(heap, text.length >> 4));
    for (size_t at = 0, end = 0; at < text.length; end = at) {
        const uint32_t code = snug_utf8_next(text.text, &at);
        if (!is_line_end(code)) continue;
        if (code == '\r' && at < text.length && text.text[at] == '\n') at++;
        RETURN_IF_ERROR(snug_jinja_list_add(heap, out->list, part(text, begin, keep ? at : end)));
        begin = at;
    }
    return begin < text.length ? snug_jinja_list_add(heap, out->list, part(text, begin, text.length)) : SNUG_OK;
}

snug_status snug_jinja_escape(struct snug_jinja_heap *heap, struct snug_jinja_value text,
                              struct snug_jinja_value *out) {
    static const char bytes[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct snug_jinja_builder builder = {0};
    *out = text;
    if (text.flag) return SNUG_OK;
    for (size_t i = 0, done = 0; i <= text.length; i++) {
        const char *found = i < text.length && text.text[i] ? strchr(bytes, text.text[i]) : NULL;
        if (!found && i < text.length) continue;
        RETURN_IF_ERROR(snug_jinja_put(heap, &builder, text.text + done, i - done));
        if (found) RETURN_IF_ERROR(snug_jinja_put_text(heap, &builder, escapes[found - bytes]));
        done = i + 1;
    }
    *out = snug_jinja_built(&builder);
    out->flag = true;
    return SNUG_OK;
}

enum { GROWS = 256 }; /* bytes from which on a string gets room to grow */

/* Room for a's text and more bytes after it, at a's text if it has that already. */
static snug_status grow(struct snug_jinja_heap *heap, struct snug_jinja_value a, size_t more, char **out) {
    const size_t length = a.length + more;
    for (size_t i = 0; i < SNUG_JINJA_GROWING; i++) {
        if (heap->growing[i].text != a.text || heap->growing[i].length != a.length) continue;
        if (heap->growing[i].capacity < length) continue;
        heap->growing[i].length = length;
        *out = heap->growing[i].text;
        return SNUG_OK;
    }
    const size_t capacity = a.length < GROWS ? length : 2 * length;
    if (length > UINT32_MAX) return snug_jinja_fail(heap, "a string has more than 4 GiB");
    RETURN_IF_ERROR(snug_jinja_take(heap, capacity, (void **)out));
    if (a.length) memcpy(*out, a.text, a.length);
    if (capacity == length) return SNUG_OK;
    heap->growing[heap->next_growing].text = *out;
    heap->growing[heap->next_growing].length = length;
    heap->growing[heap->next_growing].capacity = capacity;
    heap->next_growing = (heap->next_growing + 1) % SNUG_JINJA_GROWING;
    return SNUG_OK;
}

snug_status snug_jinja_add_text(struct snug_jinja_heap *heap, struct snug_jinja_value a, struct snug_jinja_value b,
                                struct snug_jinja_value *out) {
    char *text;
    if (a.flag || b.flag) {
        RETURN_IF_ERROR(snug_jinja_escape(heap, a, &a));
        RETURN_IF_ERROR(snug_jinja_escape(heap, b, &b));
    }
    RETURN_IF_ERROR(snug_jinja_spend(heap, b.length >> 6));
    RETURN_IF_ERROR(grow(heap, a, b.length, &text));
    if (b.length) memcpy(text + a.length, b.text, b.length);
    *out = snug_jinja_string(text, (size_t)a.length + b.length);
    out->flag = a.flag;
    return SNUG_OK;
}

/* ---- classes ---- */

static bool is_of(uint32_t code, enum snug_jinja_class class) {
    switch (class) {
    case SNUG_JINJA_IS_ALPHA: return is_category(code, LU, LO);
    case SNUG_JINJA_IS_DIGIT: return is_category(code, ND, ND);
    case SNUG_JINJA_IS_ALNUM: return is_category(code, LU, LO) || is_category(code, ND, NO);
    case SNUG_JINJA_IS_SPACE: return snug_jinja_is_space(code);
    case SNUG_JINJA_IS_UPPER: return !is_category(code, LL, LT);
    case SNUG_JINJA_IS_LOWER: return !is_category(code, LU, LU) && !is_category(code, LT, LT);
    case SNUG_JINJA_IS_PRINTABLE: return code == ' ' || !is_category(code, CATEGORY_ZS, CATEGORY_CN);
    }
    return false;
}

bool snug_jinja_is(struct snug_jinja_value text, enum snug_jinja_class class) {
    bool cased = class != SNUG_JINJA_IS_UPPER && class != SNUG_JINJA_IS_LOWER;
    if (!text.length) return class == SNUG_JINJA_IS_PRINTABLE;
    for (size_t at = 0; at < text.length;) {
        const uint32_t code = snug_utf8_next(text.text, &at);
        if (!is_of(code, class)) return false;
        cased = cased || is_category(code, LU, LL);
    }
    return cased;
}
