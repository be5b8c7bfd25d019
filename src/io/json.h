/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through Jansson: whole files in and out, with errors that name the file and line. */
#ifndef SNUG_IO_JSON_H
#define SNUG_IO_JSON_H

#include <jansson.h>

#include "io/file.h"

/* Values of a text, at most. A value takes up to 172 bytes of memory ({"a":0}, in a list, is two) for as few as two of
   the file: this bounds them by 1.4 GiB. Trainer's log of a million entries has 7 million. */
enum { SNUG_JSON_VALUES_MOST = 1 << 23 };
/* json_loadb() of an object or array, but never with characters missing where memory was short, and more values than
   any file needs are an error. NULL on failure: see error, whose text, line and column are those of the text. */
json_t *snug_json_parse_exact(const char *text, size_t length, size_t flags, json_error_t *error);
/* The same, but an integer beyond 64 bits becomes a real instead of an error. */
json_t *snug_json_parse(const char *text, size_t length, size_t flags, json_error_t *error);
/* What a failure was: SNUG_E_MEMORY or SNUG_E_INPUT. */
snug_status snug_json_status(const json_error_t *error);
/* json_dumps(), which may leave out a key where memory is short; this does not. NULL on failure; freed with free(). */
char *snug_json_dump(const json_t *value, size_t flags);
/* The same, but reals have the fewest digits that read back the same, as Python writes them. Freed with free(). */
snug_status snug_json_text(snug_context *ctx, const json_t *value, size_t flags, char **text);
/* Reads a file that must hold one JSON object. *out is released with json_decref(). in: see io/file.h. */
snug_status snug_json_read(snug_context *ctx, const struct snug_folder *in, const char *name, json_t **out);
/* The same of a file's text that was read before; path is for messages. */
snug_status snug_json_read_text(snug_context *ctx, const char *path, const char *text, size_t size, json_t **out);
/* Writes value, indented by 2, whole or not at all (snug_file_replace). */
snug_status snug_json_write(snug_context *ctx, const struct snug_folder *in, const char *name, const json_t *value);
/* Add a member or an element, taking the reference. Where memory is short the whole is freed and becomes NULL, so that
   nothing is written without a part of it. */
void snug_json_add(json_t **object, const char *key, json_t *value);
void snug_json_append(json_t **array, json_t *value);
/* A string, with U+FFFD for one that is not UTF-8: file names and names of processes may be anything. */
json_t *snug_json_from_text(const char *text);
/* Members of an object, with a default where absent or null; a wrong type is SNUG_E_INPUT naming path and key. */
snug_status snug_json_int(snug_context *ctx, const char *path, const json_t *object, const char *key, int64_t otherwise,
                          int64_t *out);
snug_status snug_json_real(snug_context *ctx, const char *path, const json_t *object, const char *key, double otherwise,
                           double *out);
snug_status snug_json_bool(snug_context *ctx, const char *path, const json_t *object, const char *key, bool otherwise,
                           bool *out);
/* Borrowed from the object; otherwise may be NULL. */
snug_status snug_json_string(snug_context *ctx, const char *path, const json_t *object, const char *key,
                             const char *otherwise, const char **out);

#endif
