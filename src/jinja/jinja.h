/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates, rendered as transformers renders them: jinja2's sandbox of immutable values with trim_blocks,
 * lstrip_blocks, break and continue, raise_exception, strftime_now, transformers' tojson and {% generation %}.
 *
 * Supported: text, comments, raw; output; if, for (with if, else, recursive, unpacking), set, set blocks, macro, call,
 * filter, with, generation, break, continue; all operators; the filters, tests, methods and global functions of the
 * tables in filters.c, tests.c, methods.c and call.c. Not supported: what reads other templates (include, import,
 * extends, block), integers beyond 64 bits.
 *
 * A template is not trusted: steps, memory and depth of a rendering are limited.
 */
#ifndef SNUG_JINJA_JINJA_H
#define SNUG_JINJA_JINJA_H

#include <jansson.h>
#include <time.h>

#include "core/context.h"

/* The largest template, in bytes. The largest of 142 published ones has 30 KB. */
enum { SNUG_JINJA_TEMPLATE_MOST = 1 << 20 };

struct snug_jinja_template;
/* Parses a template of length bytes; the text is copied. path is for messages. SNUG_E_INPUT names path, line and what
   is wrong. */
snug_status snug_jinja_parse(snug_context *ctx, const char *path, const char *text, size_t length,
                             struct snug_jinja_template **out);
void snug_jinja_free(struct snug_jinja_template *template);
/* Whether it has {% generation %}. */
bool snug_jinja_has_generation(const struct snug_jinja_template *template);
/* Whether it calls strftime_now: what it renders depends on the date. */
bool snug_jinja_has_date(const struct snug_jinja_template *template);

struct snug_jinja_input {
    const json_t *const *variables; /* objects; of those with a name's member the first one has its value */
    size_t count;
    struct tm now;       /* for strftime_now */
    uint64_t steps_most; /* operations, and 64 bytes of text that is copied count as one; 0: 50 million */
    bool quiet;          /* SNUG_E_INPUT has no message: the caller tries something else then */
    size_t memory_most;  /* bytes of values and output; 0: 256 MiB */
};

struct snug_jinja_span {
    size_t begin, end; /* bytes of the text */
};

struct snug_jinja_output {
    char *text; /* NUL-terminated UTF-8; may hold a NUL, too */
    size_t length;
    struct snug_jinja_span *spans; /* of {% generation %}, in the order in which they ended */
    size_t span_count;
};

/* SNUG_E_INPUT: an error of the template, which names path and line, such as raise_exception's text. *out is then
   empty. Safe from several threads with one template. */
snug_status snug_jinja_render(snug_context *ctx, const struct snug_jinja_template *template,
                              const struct snug_jinja_input *input, struct snug_jinja_output *out);
void snug_jinja_output_free(struct snug_jinja_output *output);

#endif
