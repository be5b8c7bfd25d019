/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row that is a group of texts, each a sequence of its own, whose scores are compared: the choices of a question, the
 * documents of a query. As snug_dataset_row.labels holds it: struct snug_group's numbers, then of each member its
 * tokens, those of type 0, and the bits of its target as fp32, then the texts of the members if they are kept, each
 * ending with a NUL.
 */
#ifndef SNUG_DATA_GROUPS_H
#define SNUG_DATA_GROUPS_H

#include <string.h>

#include "data/encode.h"

struct snug_group {
    uint32_t example; /* number of the row in the file, from 0 */
    uint32_t count;   /* members */
    bool labelled;    /* the targets are known */
    uint64_t query;   /* a hash of what the members are compared for: rows of one query belong together; 0: none */
    const uint32_t *members;
    const char *texts; /* NULL: not kept */
};
enum { SNUG_GROUP_HEAD = 5, SNUG_GROUP_MEMBER = 3, SNUG_GROUP_MOST = 1 << 16 };

static inline size_t snug_group_numbers(size_t count) { return SNUG_GROUP_HEAD + SNUG_GROUP_MEMBER * count; }
/* The parts of a row of so many tokens; false if numbers are not a valid row. */
bool snug_group_of(const uint32_t *numbers, int64_t number_count, int64_t tokens, struct snug_group *out);
static inline int64_t snug_group_tokens(const struct snug_group *group, int64_t i) { return group->members[3 * i]; }
static inline int64_t snug_group_first(const struct snug_group *group, int64_t i) { return group->members[3 * i + 1]; }
static inline float snug_group_target(const struct snug_group *group, int64_t i) {
    float target;
    memcpy(&target, &group->members[3 * i + 2], sizeof target);
    return target;
}

/* Begins a group of so many members, which follow in their order. */
snug_status snug_group_begin(snug_context *ctx, size_t count, bool labelled, uint64_t query,
                             struct snug_encoder *encoder);
/* The member of a text, or of a pair of texts. */
snug_status snug_group_add(snug_context *ctx, const struct snug_encoding *encoding, const char *first,
                           const char *second, float target, struct snug_encoder *encoder);
/* Ends it, with the texts of the members if they are kept: those in encoder->text since its begin
   (snug_object_add_text()). */
snug_status snug_group_end(snug_context *ctx, struct snug_encoder *encoder);

#endif
