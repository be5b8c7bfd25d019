/* SPDX-License-Identifier: Apache-2.0 */
/* CoNLL: words with tags. */
#include <string.h>

#include "text/reader_impl.h"

static snug_status append_to_sentence(struct snug_reader *reader, int column, const char *text, size_t length) {
    const size_t size = reader->sentence_size[column];
    if (length >= RECORD_MAX - size) /* untested: a record of over 256 MiB */
        return snug_reader_fail_at(reader, reader->record_line,
                                   "a sentence of over 256 MiB begins here: are there no blank lines?");
    RETURN_IF_ERROR(snug_grow(reader->ctx, (void **)&reader->sentence[column], &reader->sentence_capacity[column],
                              size + length + 2, 1));
    memcpy(reader->sentence[column] + size, text, length);
    memset(reader->sentence[column] + size + length, 0, 2);
    reader->sentence_size[column] += length + 1;
    return SNUG_OK;
}

/* The word and the tag of the line in the record, which begins with a word. */
static snug_status take_word(struct snug_reader *reader, int64_t line) {
    static const char blanks[] = " \t\r\n";
    const char *word = reader->record + strspn(reader->record, blanks), *tag = NULL;
    const size_t length = strcspn(word, blanks);
    for (const char *at = word + length; *(at += strspn(at, blanks)); at += strcspn(at, blanks)) tag = at;
    if (reader->sentence_size[WORD] && !tag != !reader->sentence_size[TAG])
        return snug_reader_fail_at(reader, line,
                                   tag ? "a word with a tag follows words without one" : "the word has no tag");
    RETURN_IF_ERROR(append_to_sentence(reader, WORD, word, length));
    return tag ? append_to_sentence(reader, TAG, tag, strcspn(tag, blanks)) : SNUG_OK;
}

snug_status snug_reader_sentence(struct snug_reader *reader) {
    static const char boundary[] = "-DOCSTART-";
    int64_t first = 0;
    reader->sentence_size[WORD] = reader->sentence_size[TAG] = 0;
    for (;;) {
        const snug_status status = snug_reader_first_line(reader);
        if (status == SNUG_END && first) break;
        RETURN_IF_ERROR(status);
        const bool blank = !reader->record[strspn(reader->record, " \t\r\n")];
        if (blank || strncmp(reader->record, boundary, sizeof boundary - 1) == 0) {
            if (first) break;
            continue;
        }
        if (!first) first = reader->record_line;
        RETURN_IF_ERROR(take_word(reader, reader->record_line));
    }
    reader->record_line = first;
    reader->fields[WORD] = (struct snug_field){SNUG_FIELD_WORDS, reader->sentence[WORD], reader->sentence_size[WORD]};
    reader->fields[TAG] = (struct snug_field){SNUG_FIELD_WORDS, reader->sentence[TAG], reader->sentence_size[TAG]};
    if (!reader->sentence_size[TAG]) reader->fields[TAG] = (struct snug_field){SNUG_FIELD_MISSING, "", 0};
    return SNUG_OK;
}
