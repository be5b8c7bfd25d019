/* SPDX-License-Identifier: Apache-2.0 */
/* Words with tags: a word a line, a sentence a row (data/conll.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/reader_impl.h"

/* The columns are decided by as many lines as come with these numbers of words and bytes. Comments before the first
   word may take more. */
enum { DECIDING_WORDS = 1000, DECIDING_BYTES = 1 << 18, COMMENT_BYTES = 1 << 24 };

struct column {
    char *text; /* the sentence's values, NUL-terminated */
    size_t size, capacity;
};

struct snug_sentences {
    struct snug_conll conll;
    char *held; /* the first lines, each with a NUL */
    size_t held_size, held_capacity, next;
    int64_t held_line; /* of the next one */
    struct column *columns;
    bool header_read;
    bool tagged;                         /* the sentence's words have tags */
    size_t width;                        /* columns of its lines */
    char entity[64];                     /* CoNLL-2012: the type whose bracket is open, or "" */
    int64_t skipped[SNUG_CONLL_SKIPPED]; /* lines */
    struct snug_conll_field fields[SNUG_CONLL_COLUMNS + 1];
};

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* The next line of the file as the record, without its end. */
static snug_status read_line(struct snug_reader *reader) {
    RETURN_IF_ERROR(snug_reader_first_line(reader));
    snug_reader_trim(reader);
    if (!strchr(reader->record, '\r')) return SNUG_OK;
    return snug_reader_fail_at(reader, reader->record_line,
                               "a carriage return within a line; end lines with \\n or \\r\\n");
}

/* The next line, after those that are held. */
static snug_status next_line(struct snug_reader *reader, const char **line) {
    struct snug_sentences *s = reader->sentences;
    if (s->next < s->held_size) {
        *line = s->held + s->next;
        s->next += strlen(*line) + 1;
        reader->record_line = s->held_line++;
        return SNUG_OK;
    }
    const snug_status status = read_line(reader);
    *line = reader->record;
    return status;
}

static snug_status hold(struct snug_reader *reader) {
    struct snug_sentences *s = reader->sentences;
    const size_t size = reader->record_size + 1;
    if (!s->held_size) s->held_line = reader->record_line;
    RETURN_IF_ERROR(snug_grow(reader->ctx, (void **)&s->held, &s->held_capacity, s->held_size + size, 1));
    memcpy(s->held + s->held_size, reader->record, size);
    s->held_size += size;
    return SNUG_OK;
}

/* Reads the first lines. */
static snug_status peek(struct snug_reader *reader) {
    const struct snug_sentences *s = reader->sentences;
    for (int words = 0; words < DECIDING_WORDS && s->held_size < (size_t)(words ? DECIDING_BYTES : COMMENT_BYTES);) {
        const snug_status status = read_line(reader);
        if (status == SNUG_END) break;
        RETURN_IF_ERROR(status);
        const enum snug_conll_kind kind = snug_conll_kind_of(reader->record);
        words += kind == SNUG_CONLL_WORD;
        if (kind != SNUG_CONLL_BLANK || s->held_size) RETURN_IF_ERROR(hold(reader));
    }
    return SNUG_OK;
}

snug_status snug_reader_begin_sentences(struct snug_reader *reader, const struct snug_conll_choice *choice) {
    void *memory;
    RETURN_IF_ERROR(snug_alloc(reader->ctx, 1, sizeof *reader->sentences, &memory));
    struct snug_sentences *s = reader->sentences = memory;
    RETURN_IF_ERROR(peek(reader));
    const struct snug_conll_choice any = {0};
    RETURN_IF_ERROR(snug_conll_decide(reader->ctx, reader->path, s->held ? s->held : "", s->held_size, s->held_line,
                                      choice ? choice : &any, &s->conll));
    RETURN_IF_ERROR(snug_alloc(reader->ctx, s->conll.columns, sizeof *s->columns, &memory));
    s->columns = memory;
    return SNUG_OK;
}

void snug_reader_free_sentences(struct snug_reader *reader) {
    struct snug_sentences *s = reader->sentences;
    if (!s) return;
    for (size_t i = 0; s->columns && i < s->conll.columns; i++) free(s->columns[i].text);
    free(s->columns);
    snug_conll_free(&s->conll);
    free(s->held);
    free(s);
}

const struct snug_conll *snug_reader_conll(const struct snug_reader *reader) {
    return reader->sentences ? &reader->sentences->conll : NULL;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static snug_status append(struct snug_reader *reader, struct column *column, struct snug_conll_field value) {
    if (value.length >= RECORD_MAX - column->size)
        return snug_reader_fail_at(reader, reader->record_line,
                                   "a sentence of over 256 MiB ends here: are there no blank lines?");
    RETURN_IF_ERROR(
        snug_grow(reader->ctx, (void **)&column->text, &column->capacity, column->size + value.length + 2, 1));
    memcpy(column->text + column->size, value.text, value.length);
    memset(column->text + column->size + value.length, 0, 2);
    column->size += value.length + 1;
    return SNUG_OK;
}

static bool is_first_word(const struct snug_sentences *s) { return s->columns[s->conll.words].size == 0; }

/* In CoNLL-2012, whose sentences have different numbers of columns, all lines of a sentence have the same. */
static snug_status check_width(struct snug_reader *reader, const char *line, size_t count) {
    struct snug_sentences *s = reader->sentences;
    RETURN_IF_ERROR(snug_conll_check_width(reader->ctx, reader->path, reader->record_line, line, count, &s->conll,
                                           s->conll.documents && !is_first_word(s) ? s->width : s->conll.columns));
    s->width = count;
    return SNUG_OK;
}

/* "(PERSON*", "*", "*)" and "(PERSON)" as B-PERSON, I-PERSON and O. */
static snug_status append_entity(struct snug_reader *reader, struct column *column, struct snug_conll_field value) {
    struct snug_sentences *s = reader->sentences;
    char tag[sizeof s->entity + 2];
    const bool opens = *value.text == '(', closes = value.text[value.length - 1] == ')';
    const char *type = value.text + opens;
    size_t length = value.length - opens - closes;
    const bool star = length && type[length - 1] == '*';
    length -= star;
    const bool valid = opens ? length && length < sizeof s->entity && star != closes && !*s->entity
                             : star && !length && (!closes || *s->entity);
    if (!valid)
        return snug_fail(reader->ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": \"%.*s\" is no tag here: an entity is written (TYPE*, *, *), or (TYPE)",
                         reader->path, reader->record_line, (int)value.length, value.text);
    if (opens) snprintf(s->entity, sizeof s->entity, "%.*s", (int)length, type);
    const int size = snprintf(tag, sizeof tag, "%s%s", opens ? "B-" : *s->entity ? "I-" : "O", s->entity);
    if (closes) *s->entity = '\0';
    return append(reader, column, (struct snug_conll_field){tag, (size_t)size});
}

/* A sentence has a tag for each word, or none. */
static snug_status check_tag(struct snug_reader *reader) {
    struct snug_sentences *s = reader->sentences;
    const bool tagged = s->conll.tags != SNUG_CONLL_NONE && s->fields[s->conll.tags].length;
    if (is_first_word(s)) s->tagged = tagged;
    if (s->tagged == tagged) return SNUG_OK;
    return snug_fail(reader->ctx, SNUG_E_INPUT,
                     "%s:%" PRId64 ": %s: column %zu has the tags, and is empty in one line of the sentence",
                     reader->path, reader->record_line, tagged ? "the words before have no tag" : "the word has no tag",
                     s->conll.tags + 1);
}

static snug_status check_word(struct snug_reader *reader, struct snug_conll_field *word) {
    const struct snug_conll *conll = &reader->sentences->conll;
    const size_t prefix = strlen(conll->prefix);
    if (word->length < prefix || memcmp(word->text, conll->prefix, prefix) != 0)
        return snug_fail(reader->ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the word \"%.*s\" does not begin with \"%s\", as those before it do",
                         reader->path, reader->record_line, (int)word->length, word->text, conll->prefix);
    *word = (struct snug_conll_field){word->text + prefix, word->length - prefix};
    if (word->length) return SNUG_OK;
    return snug_fail(reader->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the word is missing: column %zu is empty",
                     reader->path, reader->record_line, conll->words + 1);
}

/* The line's columns, which are in s->fields. */
static snug_status take_word(struct snug_reader *reader) {
    struct snug_sentences *s = reader->sentences;
    const struct snug_conll *conll = &s->conll;
    RETURN_IF_ERROR(check_tag(reader));
    RETURN_IF_ERROR(check_word(reader, &s->fields[conll->words]));
    for (size_t i = 0; i < conll->columns; i++)
        RETURN_IF_ERROR(conll->documents && i == SNUG_CONLL_ENTITIES && i == conll->tags
                            ? append_entity(reader, &s->columns[i], s->fields[i])
                            : append(reader, &s->columns[i], s->fields[i]));
    return SNUG_OK;
}

/* ---- sentences --------------------------------------------------------------------------------------------------- */

/* Whether a line that begins with # before a sentence is a comment: it is, unless it has the columns of a word. */
static bool is_comment(const struct snug_sentences *s, size_t count) {
    const struct snug_conll *conll = &s->conll;
    if (conll->documents || conll->index == 0 || count != conll->columns) return true;
    return conll->iob && !snug_conll_is_iob(s->fields[conll->tags]);
}

/* Whether the line is the header; a further one is an error. */
static snug_status check_header(struct snug_reader *reader, bool *header) {
    struct snug_sentences *s = reader->sentences;
    *header = s->conll.header && !s->header_read;
    s->header_read = true;
    bool same = s->conll.header && s->conll.named;
    for (size_t i = 0; i < s->conll.columns && same; i++) same = snug_conll_is(s->fields[i], s->conll.names[i]);
    if (*header || !same) return SNUG_OK;
    return snug_reader_fail_at(reader, reader->record_line, "this is the header again: remove the line");
}

/* Numbers of CoNLL-U: a multiword token is written before its words, and an empty node is none. */
static snug_status check_number(struct snug_reader *reader, bool *skipped) {
    struct snug_sentences *s = reader->sentences;
    int64_t number;
    *skipped = false;
    if (s->conll.index == SNUG_CONLL_NONE) return SNUG_OK;
    const struct snug_conll_field field = s->fields[s->conll.index];
    const enum snug_conll_id id = snug_conll_id_of(field, &number);
    if (id == SNUG_CONLL_NO_ID)
        return snug_fail(reader->ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": \"%.*s\" is no number, and column %zu has running numbers", reader->path,
                         reader->record_line, (int)field.length, field.text, s->conll.index + 1);
    *skipped = id != SNUG_CONLL_ID;
    s->skipped[SNUG_CONLL_RANGES] += id == SNUG_CONLL_RANGE;
    s->skipped[SNUG_CONLL_EMPTY_NODES] += id == SNUG_CONLL_EMPTY_NODE;
    return SNUG_OK;
}

/* A line that is neither blank nor a boundary; *taken: it is a word. */
static snug_status take_line(struct snug_reader *reader, const char *line, bool hash, bool *taken) {
    struct snug_sentences *s = reader->sentences;
    const size_t count = snug_conll_split(line, s->conll.tabs, s->fields);
    bool skipped = hash && is_first_word(s) && is_comment(s, count);
    *taken = false;
    s->skipped[SNUG_CONLL_COMMENTS] += skipped;
    if (skipped) return SNUG_OK;
    RETURN_IF_ERROR(check_width(reader, line, count));
    RETURN_IF_ERROR(check_header(reader, &skipped));
    if (skipped) return SNUG_OK;
    RETURN_IF_ERROR(check_number(reader, &skipped));
    *taken = !skipped;
    return skipped ? SNUG_OK : take_word(reader);
}

static snug_status end_sentence(struct snug_reader *reader, int64_t first) {
    struct snug_sentences *s = reader->sentences;
    if (*s->entity)
        return snug_fail(reader->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": an entity of the sentence, %s, is not closed",
                         reader->path, first, s->entity);
    reader->record_line = first;
    for (size_t i = 0; i < s->conll.columns; i++)
        reader->fields[i] = (struct snug_field){SNUG_FIELD_WORDS, s->columns[i].text, s->columns[i].size};
    if (!s->tagged && s->conll.tags != SNUG_CONLL_NONE)
        reader->fields[s->conll.tags] = (struct snug_field){SNUG_FIELD_MISSING, "", 0};
    return SNUG_OK;
}

snug_status snug_reader_sentence(struct snug_reader *reader) {
    struct snug_sentences *s = reader->sentences;
    int64_t first = 0;
    *s->entity = '\0';
    for (size_t i = 0; i < s->conll.columns; i++) s->columns[i].size = 0;
    for (;;) {
        const char *line;
        bool taken;
        const snug_status status = next_line(reader, &line);
        if (status == SNUG_END && first) break;
        RETURN_IF_ERROR(status);
        const enum snug_conll_kind kind = snug_conll_kind_of(line);
        if (kind == SNUG_CONLL_BLANK || kind == SNUG_CONLL_BOUNDARY) {
            if (first) break;
            continue;
        }
        RETURN_IF_ERROR(take_line(reader, line, kind == SNUG_CONLL_HASH, &taken));
        if (taken && !first) first = reader->record_line;
    }
    return end_sentence(reader, first);
}

void snug_reader_skipped(const struct snug_reader *reader, int64_t skipped[SNUG_CONLL_SKIPPED]) {
    for (int i = 0; i < SNUG_CONLL_SKIPPED; i++) skipped[i] = reader->sentences ? reader->sentences->skipped[i] : 0;
}
