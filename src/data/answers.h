/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of question answering, as snug_dataset_row.labels holds it: a question with a part of its context (a window),
 * where the tokens of that part are in the context, and its answers. The numbers are struct snug_answers' in their
 * order, two offsets for each token of the context, and the texts: the question's id, the context, the answers, each
 * ending with a NUL.
 */
#ifndef SNUG_DATA_ANSWERS_H
#define SNUG_DATA_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNUG_NO_ANSWER UINT32_MAX /* start: it is not known whether there is one */

struct snug_answers {
    uint32_t example;      /* number of the question in the file, from 0: its windows are neighbours */
    uint32_t first, count; /* the tokens of the context among the row's */
    uint32_t start, end;   /* the first and last token of the answer; both 0 if it is not in the window */
    uint32_t answers;      /* texts of answers; 0: there is none */
    const uint32_t *offsets;
    const char *id, *context, *texts; /* texts: of the answers, one after another */
};
enum { SNUG_ANSWERS_HEAD = 6 }; /* numbers before the offsets */

/* The numbers that a window with this many tokens of the context and bytes of texts takes. */
static inline size_t snug_answers_numbers(size_t count, size_t text_size) {
    return SNUG_ANSWERS_HEAD + 2 * count + (text_size + 3) / 4;
}
void snug_answers_put(uint32_t *numbers, const struct snug_answers *answers, const char *texts, size_t text_size);
/* The parts of a row of so many tokens; false if numbers are not a valid row. */
bool snug_answers_of(const uint32_t *numbers, int64_t number_count, int64_t tokens, struct snug_answers *out);

#endif
