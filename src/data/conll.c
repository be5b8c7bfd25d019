/* SPDX-License-Identifier: Apache-2.0 */
#include "data/conll.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the first lines --------------------------------------------------------------------------------------------- */

/* A file that is being looked at. */
struct look {
    snug_context *ctx;
    const char *path, *lines, *end;
    int64_t number; /* of the first line */
    const struct snug_conll_choice *choice;
    struct snug_conll *out;
    bool hashes;           /* all lines begin with #: they are words */
    const char *sample;    /* the first line of words after the header */
    int64_t sample_number; /* its number */
    const char *header;    /* NULL: none */
    const char *global;    /* names in a comment, as in CoNLL-U Plus; NULL: none */
    struct snug_conll_profile *columns;
    struct snug_conll_field fields[SNUG_CONLL_COLUMNS + 1];
};

struct cursor {
    const char *line;
    int64_t number;
    bool begun; /* within a sentence, before this line */
    enum snug_conll_kind kind;
};

/* Goes to the next line; begin with zeros. Within a sentence a # is a word. */
static bool next(const struct look *look, struct cursor *at) {
    const bool first = !at->line;
    if (!first) at->begun = at->kind == SNUG_CONLL_WORD;
    at->line = first ? look->lines : at->line + strlen(at->line) + 1;
    at->number = first ? look->number : at->number + 1;
    if (at->line >= look->end) return false;
    at->kind = snug_conll_kind_of(at->line);
    if (at->kind == SNUG_CONLL_HASH && (at->begun || look->hashes)) at->kind = SNUG_CONLL_WORD;
    return true;
}

/* The next line of words after the header, whose columns are in look->fields then. */
static bool next_words(struct look *look, struct cursor *at) {
    while (next(look, at)) {
        if (at->kind != SNUG_CONLL_WORD || at->line == look->header) continue;
        snug_conll_split(at->line, look->out->tabs, look->fields);
        return true;
    }
    return false;
}

/* ---- the number of columns --------------------------------------------------------------------------------------- */

/* Tabs separate if any line of words has one. */
static void find_separator(struct look *look) {
    bool words = false;
    for (struct cursor at = {0}; next(look, &at); words |= at.kind == SNUG_CONLL_WORD)
        ;
    look->hashes = !words;
    for (struct cursor at = {0}; next(look, &at);)
        look->out->tabs |= at.kind == SNUG_CONLL_WORD && strchr(at.line, '\t');
}

/* What most lines have; of two numbers that are as frequent, the first. Comments may name a format. */
static snug_status count_columns(struct look *look) {
    static const char begin[] = "#begin document", global[] = "global.columns =";
    int32_t counts[SNUG_CONLL_COLUMNS + 2] = {0};
    struct snug_conll *out = look->out;
    size_t most = 0, least = SIZE_MAX;
    for (struct cursor at = {0}; next(look, &at);) {
        if (at.kind == SNUG_CONLL_HASH) {
            const char *comment = at.line + 1 + strspn(at.line + 1, " ");
            out->documents |= strncmp(at.line, begin, sizeof begin - 1) == 0;
            if (strncmp(comment, global, sizeof global - 1) == 0) look->global = comment + sizeof global - 1;
        }
        if (at.kind != SNUG_CONLL_WORD) continue;
        const size_t count = snug_conll_split(at.line, out->tabs, look->fields);
        if (count > SNUG_CONLL_COLUMNS)
            return snug_fail(look->ctx, SNUG_E_INPUT,
                             "%s:%" PRId64 ": the line has over %d columns, and a line holds one word with its columns",
                             look->path, at.number, (int)SNUG_CONLL_COLUMNS);
        if (count < least) least = count;
        counts[count]++;
    }
    for (struct cursor at = {0}; next(look, &at);) {
        if (at.kind != SNUG_CONLL_WORD) continue;
        const size_t count = snug_conll_split(at.line, out->tabs, look->fields);
        if (counts[count] > counts[most]) most = count;
    }
    /* One more than those with names: the last one has coreferences. */
    out->documents &= least > SNUG_CONLL_ENTITIES + 1 && least < SIZE_MAX;
    out->columns = out->documents ? SNUG_CONLL_ENTITIES + 1 : most ? most : 2;
    return SNUG_OK;
}

snug_status snug_conll_check_width(snug_context *ctx, const char *path, int64_t number, const char *line, size_t count,
                                   const struct snug_conll *conll, size_t expected) {
    const bool sentence = conll->documents && expected > conll->columns;
    if (!conll->tabs && strchr(line, '\t'))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the line has a tab, and in the lines before it blanks separate the columns: "
                         "use one of them in the whole file",
                         path, number);
    if (count == expected || (conll->documents && !sentence && count > expected)) return SNUG_OK;
    return snug_fail(
        ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the line has %zu column%s, and the %s %zu, with %s between them%s", path,
        number, count, count == 1 ? "" : "s", sentence ? "sentence has" : "file has", expected,
        conll->tabs ? "tabs" : "blanks", *line == '#' ? "; a comment must be before a sentence, not within it" : "");
}

static snug_status check_widths(struct look *look) {
    for (struct cursor at = {0}; next(look, &at) && !look->out->documents;) {
        if (at.kind != SNUG_CONLL_WORD) continue;
        const size_t count = snug_conll_split(at.line, look->out->tabs, look->fields);
        RETURN_IF_ERROR(
            snug_conll_check_width(look->ctx, look->path, at.number, at.line, count, look->out, look->out->columns));
    }
    return SNUG_OK;
}

/* ---- their names ------------------------------------------------------------------------------------------------- */

/* Names that people give to the columns. */
static const char *const word_names[] = {"tokens", "token", "words", "word", "form", "text", NULL};
static const char *const tag_names[] = {"ner_tags", "ner_tag",  "ner-tag",  "ner", "tags", "tag",   "labels",
                                        "label",    "iob_tags", "bio_tags", "iob", "bio",  "bioes", NULL};
static const char *const speech_names[] = {"pos_tags", "pos_tag",    "pos",       "upos",  "xpos",
                                           "cpostag",  "chunk_tags", "chunk_tag", "chunk", NULL};
static const char *const other_names[] = {"id",    "idx",   "index",   "nr",     "number", "sentence", "sentence_id",
                                          "lemma", "head",  "deprel",  "deps",   "feats",  "misc",     "start",
                                          "end",   "score", "sent_id", "doc_id", "offset", "document", NULL};

static bool is_name(struct snug_conll_field field, const char *const names[]) {
    for (; *names; names++)
        if (strlen(*names) == field.length && strncasecmp(*names, field.text, field.length) == 0) return true;
    return false;
}

static bool is_column_name(struct snug_conll_field field) {
    return is_name(field, tag_names) || is_name(field, speech_names) || is_name(field, other_names);
}

static bool is_same(struct snug_conll_field a, struct snug_conll_field b) {
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

/* Whether a line that names columns is a sentence's first word: its tag is then that of other words, too. */
static bool recurs(struct look *look, const char *line) {
    struct snug_conll_field names[SNUG_CONLL_COLUMNS + 1];
    const size_t count = snug_conll_split(line, look->out->tabs, names);
    for (struct cursor at = {0}; next_words(look, &at);) {
        if (strcmp(at.line, line) == 0) continue;
        for (size_t i = 0; i < count; i++)
            if (is_column_name(names[i]) && is_same(names[i], look->fields[i])) return true;
    }
    return false;
}

/* A header has the name of the words, and another one. */
static void find_header(struct look *look) {
    struct cursor at = {0};
    size_t words = 0, others = 0;
    if (!next_words(look, &at) || look->global || look->out->documents) return;
    for (size_t i = 0; i < look->out->columns; i++) {
        words += is_name(look->fields[i], word_names);
        others += is_column_name(look->fields[i]);
    }
    if (words != 1 || !others || recurs(look, at.line)) return;
    look->header = at.line;
    look->out->header = true;
}

static snug_status take_name(struct look *look, size_t column, struct snug_conll_field name) {
    return snug_format(look->ctx, &look->out->names[column], "%.*s", (int)name.length, name.text);
}

/* Names in a line; none if they do not distinguish the columns. */
static snug_status take_names(struct look *look, const char *line, bool tabs) {
    struct snug_conll *out = look->out;
    const size_t count = snug_conll_split(line, tabs, look->fields);
    bool usable = count == out->columns;
    for (size_t i = 0; i < count && usable; i++) {
        usable = look->fields[i].length > 0;
        for (size_t k = 0; k < i; k++) usable &= !is_same(look->fields[i], look->fields[k]);
    }
    out->named = usable;
    for (size_t i = 0; i < count && usable; i++) RETURN_IF_ERROR(take_name(look, i, look->fields[i]));
    return SNUG_OK;
}

static snug_status name_columns(struct look *look) {
    static const char universal[] = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC";
    static const char documents[] = "document part number word pos parse lemma frameset sense speaker ner";
    struct snug_conll *out = look->out;
    void *memory;
    RETURN_IF_ERROR(snug_alloc(look->ctx, out->columns, sizeof *out->names, &memory));
    out->names = memory;
    if (look->header) {
        RETURN_IF_ERROR(take_names(look, look->header, out->tabs));
    } else if (look->global) {
        RETURN_IF_ERROR(take_names(look, look->global, false));
        out->format = out->named ? "CoNLL-U Plus" : NULL;
    } else if (out->documents) {
        RETURN_IF_ERROR(take_names(look, documents, false));
        out->format = "CoNLL-2012";
    } else if (out->columns == 10 && look->columns[0].running && look->columns[6].heads) {
        RETURN_IF_ERROR(take_names(look, universal, false));
        out->format = "CoNLL-U";
    }
    for (size_t i = 0; i < out->columns && !out->named; i++)
        RETURN_IF_ERROR(snug_format(look->ctx, &out->names[i], "column %zu of %zu", i + 1, out->columns));
    return SNUG_OK;
}

bool snug_conll_is_position(const char *name) {
    static const char before[] = "column ", between[] = " of ", figures[] = "0123456789";
    if (strncmp(name, before, sizeof before - 1) != 0) return false;
    name += sizeof before - 1;
    name += strspn(name, figures);
    if (strncmp(name, between, sizeof between - 1) != 0) return false;
    name += sizeof between - 1;
    return !name[strspn(name, figures)];
}

/* ---- profiles ---------------------------------------------------------------------------------------------------- */

static snug_status profile(struct look *look) {
    const size_t columns = look->out->columns;
    void *memory;
    RETURN_IF_ERROR(snug_alloc(look->ctx, columns, sizeof *look->columns, &memory));
    look->columns = memory;
    for (size_t i = 0; i < columns; i++) snug_conll_profile_begin(&look->columns[i]);
    for (struct cursor at = {0}; next_words(look, &at);) {
        if (!look->sample) {
            look->sample = at.line;
            look->sample_number = at.number;
        }
        for (size_t i = 0; i < columns; i++) {
            look->columns[i].fresh |= !at.begun;
            snug_conll_profile_add(&look->columns[i], look->fields[i]);
        }
    }
    return SNUG_OK;
}

/* ---- for messages ------------------------------------------------------------------------------------------------ */

struct text {
    char text[768];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *to, const char *format, ...) {
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(to->text + to->length, sizeof to->text - to->length, format, values);
    va_end(values);
    to->length += (size_t)length;
    if (to->length >= sizeof to->text) to->length = sizeof to->text - 1;
}

/* The columns of a line of words, each with its number. */
static void add_sample(struct look *look, struct text *to) {
    const size_t count = snug_conll_split(look->sample, look->out->tabs, look->fields);
    add(to, "Line %" PRId64 " has: ", look->sample_number);
    for (size_t i = 0; i < count && i < look->out->columns; i++) {
        int length = look->fields[i].length < 24 ? (int)look->fields[i].length : 24;
        while (((unsigned char)look->fields[i].text[length] & 0xC0) == 0x80) length--; /* within a character */
        add(to, "%s%zu", i ? ", " : "", i + 1);
        if (look->out->named) add(to, " %s", look->out->names[i]);
        add(to, " \"%.*s\"", length, look->fields[i].text);
    }
}

static void add_column(const struct snug_conll *conll, size_t column, struct text *to) {
    if (conll->named)
        add(to, "%s (column %zu of %zu)", conll->names[column], column + 1, conll->columns);
    else
        add(to, "%s", conll->names[column]);
}

static snug_status fail_to_choose(struct look *look, const char *what, const char *argument) {
    struct text sample = {"", 0};
    add_sample(look, &sample);
    return snug_fail(look->ctx, SNUG_E_INPUT, "%s: %s: give its number%s with --%s. %s", look->path, what,
                     look->out->named ? " or name" : "", argument, sample.text);
}

/* ---- the words --------------------------------------------------------------------------------------------------- */

size_t snug_conll_find(const struct snug_conll *conll, const char *name, size_t length) {
    const struct snug_conll_field wanted = {name, length};
    int64_t number;
    for (size_t i = 0; i < conll->columns; i++)
        if (snug_conll_is(wanted, conll->names[i])) return i;
    for (size_t i = 0; i < conll->columns; i++)
        if (strlen(conll->names[i]) == length && strncasecmp(conll->names[i], name, length) == 0) return i;
    if (snug_conll_id_of(wanted, &number) == SNUG_CONLL_ID && number > 0 && (size_t)number <= conll->columns)
        return (size_t)number - 1;
    return snug_conll_is(wanted, "tokens")     ? conll->words
           : snug_conll_is(wanted, "ner_tags") ? conll->tags
                                               : SNUG_CONLL_NONE;
}

/* Whether an argument is more than the name that any column of words, or tags, may be called by. */
static bool is_given(const char *name, const char *usual) { return name && strcmp(name, usual) != 0; }

/* A column that an argument names. */
static snug_status find_named(struct look *look, const char *name, const char *argument, size_t *out) {
    *out = snug_conll_find(look->out, name, strlen(name));
    if (*out != SNUG_CONLL_NONE) return SNUG_OK;
    struct text sample = {"", 0};
    if (look->sample) add_sample(look, &sample);
    return snug_fail(look->ctx, SNUG_E_INPUT,
                     "%s: --%s: there is no column \"%s\": the file has %zu, which are counted from 1. %s", look->path,
                     argument, name, look->out->columns, sample.text);
}

/* A column that a training used. */
static size_t find_trained(const struct look *look, const char *name) {
    for (size_t i = 0; name && i < look->out->columns; i++)
        if (strcmp(look->out->names[i], name) == 0) return i;
    return SNUG_CONLL_NONE;
}

static struct snug_conll_field named(const struct look *look, size_t column) {
    return (struct snug_conll_field){look->out->names[column], strlen(look->out->names[column])};
}

/* The only column with one of these names; SNUG_CONLL_NONE, and their number in *count. */
static size_t find_only(const struct look *look, const char *const names[], size_t *count) {
    size_t found = SNUG_CONLL_NONE;
    *count = 0;
    for (size_t i = 0; i < look->out->columns && look->out->named; i++) {
        if (!is_name(named(look, i), names)) continue;
        found = i;
        ++*count;
    }
    return *count == 1 ? found : SNUG_CONLL_NONE;
}

/* Running numbers before the other columns. Two columns may also be numbers with their tags. */
static void find_index(struct look *look) {
    const struct snug_conll_profile *first = &look->columns[0];
    struct snug_conll *out = look->out;
    size_t count;
    const bool named = find_only(look, (const char *const[]){"id", "idx", "index", "nr", "number", NULL}, &count) == 0;
    out->index = SNUG_CONLL_NONE;
    if (!look->sample || !first->running) return;
    if (named || (out->columns > 2 && first->steps)) out->index = 0;
}

/* The first column that holds neither running numbers nor tags. */
static snug_status guess_words(struct look *look) {
    const struct snug_conll *out = look->out;
    size_t found = SNUG_CONLL_NONE, others = 0;
    for (size_t i = 0; i < out->columns; i++) {
        const struct snug_conll_profile *column = &look->columns[i];
        if (i == out->index || i == out->tags || column->placeholder || snug_conll_has_tags(column)) continue;
        if (found == SNUG_CONLL_NONE)
            found = i;
        else
            others += !column->iob;
    }
    if (found == SNUG_CONLL_NONE) found = out->index == 0 ? 1 : 0;
    look->out->words = found;
    const struct snug_conll_profile *column = &look->columns[found];
    /* Numbers, or B-PER in all lines: words, or not. */
    if (others && (column->numbers || (column->iob && column->typed)))
        return fail_to_choose(look, "which column has the words", "text_column_name");
    return SNUG_OK;
}

static snug_status find_words(struct look *look) {
    const struct snug_conll_choice *choice = look->choice;
    struct snug_conll *out = look->out;
    size_t count;
    if (is_given(choice->words, "tokens")) return find_named(look, choice->words, "text_column_name", &out->words);
    out->words = find_trained(look, choice->words ? choice->words : choice->trained_words);
    if (out->words == SNUG_CONLL_NONE) out->words = find_only(look, word_names, &count);
    if (out->words == SNUG_CONLL_NONE && look->sample) return guess_words(look);
    if (out->words == SNUG_CONLL_NONE) out->words = 0;
    return SNUG_OK;
}

/* WikiAnn writes the language before each word. */
static void find_prefix(struct look *look) {
    struct snug_conll *out = look->out;
    const struct snug_conll_field first = look->columns[out->words].first;
    size_t length = 0;
    if (out->columns != 2 || look->columns[out->words].values < 2) return;
    while (length < first.length &&
           ((first.text[length] >= 'a' && first.text[length] <= 'z') || (length > 1 && first.text[length] == '-')))
        length++;
    const bool language = strcspn(first.text, "-:") <= 3 || strncmp(first.text, "simple:", 7) == 0;
    if (length < 2 || length == first.length || first.text[length] != ':' || !language) return;
    if (++length >= sizeof out->prefix) return;
    for (struct cursor at = {0}; next_words(look, &at);)
        if (look->fields[out->words].length < length || memcmp(look->fields[out->words].text, first.text, length) != 0)
            return;
    memcpy(out->prefix, first.text, length);
    out->format = "WikiAnn";
}

/* ---- the tags ---------------------------------------------------------------------------------------------------- */

/* Columns that may have them. */
struct candidates {
    size_t columns[SNUG_CONLL_COLUMNS], count;
};

static void add_candidate(struct candidates *to, size_t column) { to->columns[to->count++] = column; }

static snug_status be_unsure(struct look *look, const struct candidates *candidates) {
    struct text text = {"", 0};
    for (size_t i = 0; i < candidates->count; i++) {
        const size_t column = candidates->columns[i];
        add(&text, "%s%zu", i == 0 ? "" : i + 1 < candidates->count ? ", " : " or ", column + 1);
        if (look->out->named) add(&text, " (%s)", look->out->names[column]);
    }
    return snug_strdup(look->ctx, text.text, &look->out->unsure);
}

static snug_status take_tags(struct look *look, size_t column) {
    look->out->tags = column;
    return SNUG_OK;
}

/* Several columns look like tags of entities or chunks, and the last one does. */
static snug_status guess_entities(struct look *look, const struct candidates *all) {
    struct snug_conll *out = look->out;
    struct candidates alike = {.count = 0};
    size_t entities = 0;
    const size_t last = all->columns[all->count - 1];
    for (size_t i = 0; i < all->count; i++) {
        const struct snug_conll_profile *column = &look->columns[all->columns[i]];
        if (column->iob) add_candidate(&alike, all->columns[i]);
        entities += column->iob && column->entity && all->columns[i] != last;
    }
    const struct snug_conll_profile *first = &look->columns[alike.columns[0]];
    const bool phrases = first->typed && !first->entity;
    if (out->index == 0 && out->columns == 4 && alike.count == 2 && !phrases) {
        out->format = "GermEval 2014, outer entities";
        return take_tags(look, alike.columns[0]);
    }
    return entities ? be_unsure(look, &alike) : take_tags(look, last); /* chunks, then entities */
}

/* By the columns' values: entities if a column looks like them, else the last column, unless that is in doubt. */
static snug_status guess_by_values(struct look *look, bool several) {
    const struct snug_conll *out = look->out;
    struct candidates texts = {.count = 0}, all = {.count = 0};
    size_t alike = 0;
    for (size_t i = 0; i < out->columns; i++) {
        const struct snug_conll_profile *column = &look->columns[i];
        if (i == out->index || i == out->words || column->placeholder) continue;
        if (out->named && is_name(named(look, i), other_names)) continue;
        if (column->numbers && !column->integers) continue; /* scores */
        add_candidate(&all, i);
        if (!column->numbers) add_candidate(&texts, i);
        alike += !column->numbers && column->iob;
    }
    if (!all.count) return SNUG_OK;
    if (all.count == 1) return take_tags(look, all.columns[0]);
    if (!alike && (texts.count < all.count || several)) return be_unsure(look, &all);
    const size_t last = texts.columns[texts.count - 1];
    if (!alike) return take_tags(look, last);
    if (!look->columns[last].iob) return be_unsure(look, &texts);
    return guess_entities(look, &texts);
}

/* Names come first: ner_tags, as in JSON; then any other name of tags; UPOS of CoNLL-U; parts of speech. */
static snug_status guess_tags(struct look *look) {
    const struct snug_conll *out = look->out;
    struct candidates tags = {.count = 0};
    size_t count, speech;
    for (size_t i = 0; i < out->columns && out->named; i++) {
        if (i == out->words || look->columns[i].placeholder || !is_name(named(look, i), tag_names)) continue;
        if (strcasecmp(out->names[i], "ner_tags") == 0) return take_tags(look, i);
        add_candidate(&tags, i);
    }
    if (tags.count == 1) return take_tags(look, tags.columns[0]);
    if (tags.count) return be_unsure(look, &tags);
    const size_t universal = find_only(look, (const char *const[]){"upos", NULL}, &count),
                 only = find_only(look, speech_names, &speech);
    if (universal != SNUG_CONLL_NONE && !look->columns[universal].placeholder) return take_tags(look, universal);
    if (only != SNUG_CONLL_NONE) return take_tags(look, only);
    return guess_by_values(look, speech > 1);
}

static snug_status find_tags(struct look *look) {
    const char *name = look->choice->tags;
    struct snug_conll *out = look->out;
    if (!is_given(name, "ner_tags")) {
        out->tags = find_trained(look, name ? name : look->choice->trained_tags);
        return SNUG_OK;
    }
    out->tags = snug_conll_find(out, name, strlen(name));
    return look->choice->need_tags ? find_named(look, name, "label_column_name", &out->tags) : SNUG_OK;
}

static snug_status need_tags(struct look *look) {
    const struct snug_conll *out = look->out;
    char *what;
    if (!look->choice->need_tags || out->tags != SNUG_CONLL_NONE) return SNUG_OK;
    RETURN_IF_ERROR(out->unsure
                        ? snug_format(look->ctx, &what, "which column has the tags: %s", out->unsure)
                        : snug_format(look->ctx, &what, "its words are in column %zu of %zu, and no column has tags",
                                      out->words + 1, out->columns));
    const snug_status status = fail_to_choose(look, what, "label_column_name");
    free(what);
    return status;
}

/* A # before a sentence, with the file's number of columns between blanks: whether it is a word is known if its tag is
   that of another word. Where tags are those of entities, that is seen from the tag alone. */
static snug_status check_hashes(struct look *look) {
    const struct snug_conll *out = look->out;
    struct snug_conll_field fields[SNUG_CONLL_COLUMNS + 1];
    if (out->tabs || out->iob || out->tags == SNUG_CONLL_NONE || out->documents || out->index == 0) return SNUG_OK;
    for (struct cursor at = {0}; next(look, &at);) {
        if (at.kind != SNUG_CONLL_HASH || snug_conll_split(at.line, false, fields) != out->columns) continue;
        bool known = !snug_conll_is(fields[0], "#");
        for (struct cursor other = {0}; !known && next_words(look, &other);)
            known = is_same(look->fields[out->tags], fields[out->tags]);
        if (known) continue;
        return snug_fail(look->ctx, SNUG_E_INPUT,
                         "%s:%" PRId64
                         ": is \"%.60s\" a comment, or the word # with its tag? It has as many columns as "
                         "the other lines, %zu, but no other word has this tag: remove the comments, or put tabs "
                         "between the columns",
                         look->path, at.number, at.line, out->columns);
    }
    return SNUG_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static snug_status decide(struct look *look) {
    const struct snug_conll_choice *choice = look->choice;
    struct snug_conll *out = look->out;
    find_separator(look);
    RETURN_IF_ERROR(count_columns(look));
    RETURN_IF_ERROR(check_widths(look));
    find_header(look);
    RETURN_IF_ERROR(profile(look));
    RETURN_IF_ERROR(name_columns(look));
    find_index(look);
    RETURN_IF_ERROR(find_tags(look));
    RETURN_IF_ERROR(find_words(look));
    if (out->words == out->tags)
        return snug_fail(look->ctx, SNUG_E_USAGE, "%s: column %zu cannot have both the words and the tags", look->path,
                         out->words + 1);
    if (!look->sample) {
        if (out->tags == SNUG_CONLL_NONE) out->tags = out->words ? 0 : 1; /* no line of words is coming */
        return SNUG_OK;
    }
    if (out->tags == SNUG_CONLL_NONE && !is_given(choice->tags, "ner_tags")) RETURN_IF_ERROR(guess_tags(look));
    RETURN_IF_ERROR(need_tags(look));
    find_prefix(look);
    out->iob = out->tags != SNUG_CONLL_NONE && look->columns[out->tags].iob;
    return check_hashes(look);
}

snug_status snug_conll_decide(snug_context *ctx, const char *path, const char *lines, size_t size, int64_t number,
                              const struct snug_conll_choice *choice, struct snug_conll *out) {
    void *memory;
    *out = (struct snug_conll){.index = SNUG_CONLL_NONE, .words = SNUG_CONLL_NONE, .tags = SNUG_CONLL_NONE};
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct look), &memory));
    struct look *look = memory;
    look->ctx = ctx;
    look->path = path;
    look->lines = lines;
    look->end = lines + size;
    look->number = number;
    look->choice = choice;
    look->out = out;
    const snug_status status = decide(look);
    free(look->columns);
    free(look);
    return status;
}

void snug_conll_free(struct snug_conll *conll) {
    for (size_t i = 0; conll->names && i < conll->columns; i++) free(conll->names[i]);
    free(conll->names);
    free(conll->unsure);
    *conll = (struct snug_conll){0};
}

void snug_conll_tell(snug_context *ctx, const char *path, const struct snug_conll *conll) {
    struct text text = {"", 0};
    if (conll->format) add(&text, "%s: ", conll->format);
    add(&text, "words: ");
    add_column(conll, conll->words, &text);
    if (conll->tags == SNUG_CONLL_NONE)
        add(&text, ", no tags");
    else if (conll->named)
        add(&text, ", tags: %s (column %zu)", conll->names[conll->tags], conll->tags + 1);
    else
        add(&text, ", tags: column %zu", conll->tags + 1);
    if (conll->unsure) add(&text, " (--label_column_name says which column has them: %s)", conll->unsure);
    if (conll->index != SNUG_CONLL_NONE) add(&text, "; column %zu has running numbers", conll->index + 1);
    if (conll->header) add(&text, "; the first line is a header");
    if (conll->documents && conll->tags == SNUG_CONLL_ENTITIES) add(&text, "; brackets are read as B-, I- and O");
    if (*conll->prefix) add(&text, "; each word's \"%s\" is left out", conll->prefix);
    snug_log(ctx, SNUG_LOG_INFO, "%s: %s", path, text.text);
}

void snug_conll_tell_skipped(snug_context *ctx, const char *path, const int64_t skipped[SNUG_CONLL_SKIPPED]) {
    static const char *const names[][2] = {
        [SNUG_CONLL_COMMENTS] = {"comment line", "comment lines"},
        [SNUG_CONLL_RANGES] = {"line of a multiword token, whose words follow",
                               "lines of multiword tokens, whose words follow"},
        [SNUG_CONLL_EMPTY_NODES] = {"empty node", "empty nodes"},
    };
    struct text text = {"", 0};
    for (int i = 0; i < SNUG_CONLL_SKIPPED; i++)
        if (skipped[i]) add(&text, "%s%" PRId64 " %s", text.length ? "; " : "", skipped[i], names[i][skipped[i] > 1]);
    if (text.length) snug_log(ctx, SNUG_LOG_INFO, "%s: skipped %s", path, text.text);
}
