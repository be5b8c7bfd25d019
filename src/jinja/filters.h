/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of filters and tests. */
#ifndef SNUG_JINJA_FILTERS_H
#define SNUG_JINJA_FILTERS_H

#include "jinja/value.h"

struct snug_jinja_run;
struct snug_jinja_arguments;

struct snug_jinja_filter {
    const char *name;
    const char *parameters; /* as of snug_jinja_bind(); NULL: it takes the arguments as they are */
    snug_status (*apply)(struct snug_jinja_run *run, struct snug_jinja_value value,
                         const struct snug_jinja_arguments *arguments, const struct snug_jinja_value *bound,
                         struct snug_jinja_value *out);
};

struct snug_jinja_test {
    const char *name;
    const char *parameters;
    snug_status (*test)(struct snug_jinja_run *run, struct snug_jinja_value value, const struct snug_jinja_value *bound,
                        bool *out);
};

/* The number in the table; -1: there is none. */
int32_t snug_jinja_filter_find(struct snug_jinja_value name);
int32_t snug_jinja_test_find(struct snug_jinja_value name);
const struct snug_jinja_filter *snug_jinja_filter_at(int32_t number);
const struct snug_jinja_test *snug_jinja_test_at(int32_t number);

/* Filters of sequences: filters_sequence.c. */
extern const struct snug_jinja_filter snug_jinja_sequence_filters[];
extern const size_t snug_jinja_sequence_filter_count;

#endif
