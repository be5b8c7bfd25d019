/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through Jansson: whole files in and out, with errors that name the file and line. */
#ifndef SNUG_IO_JSON_H
#define SNUG_IO_JSON_H

#include <jansson.h>

#include "io/file.h"

/* The maximum number of values in a text. A value takes up to 172 bytes of memory ({"a":0}, in a list, is two values)
 * for as few as two bytes of the file: the maximum limits the memory to 1.4 GiB. A Trainer log of a million entries has
 * 7 million values. */
enum { SNUG_JSON_VALUES_MOST = 1 << 23 };
/* json_loadb() of an object or array, but too little memory is always an error, as are too many values, and an integer
 * beyond 64 bits becomes a real. NULL on failure; error then has the message, and line and column in the text. Replaces
 * Jansson's allocation functions by ones that call them, once in a process. */
json_t *snug_json_parse(const char *text, size_t length, size_t flags, json_error_t *error);
/* The status of a failure: SNUG_E_MEMORY or SNUG_E_INPUT. */
snug_status snug_json_status(const json_error_t *error);
/* Like json_dumps(), which may omit a key when it is out of memory; this function fails instead. NULL on failure; freed
 * with free(). */
char *snug_json_dump(const json_t *value, size_t flags);
/* As snug_json_dump(), but reals have the fewest digits that read back the same, as Python writes them. Freed with
 * free(). */
snug_status snug_json_text(snug_context *ctx, const json_t *value, size_t flags, char **text);
/* The size of a text, of UTF-8, as a JSON string with its quotes. */
size_t snug_json_quoted_size(const char *text, size_t length);
/* Writes that string, without a NUL; out may be where the text is. */
void snug_json_quote(char *out, const char *text, size_t length);
/* Reads a file that must hold one JSON object. Free *out with json_decref(). in: see io/file.h. */
snug_status snug_json_read(snug_context *ctx, const struct snug_folder *in, const char *name, json_t **out);
/* As snug_json_read(), for the text of a file; path is for messages. */
snug_status snug_json_read_text(snug_context *ctx, const char *path, const char *text, size_t size, json_t **out);
/* Writes value, indented by 2, atomically (snug_file_replace). */
snug_status snug_json_write(snug_context *ctx, const struct snug_folder *in, const char *name, const json_t *value);
/* Add a member or an element and take over the reference. When out of memory, the whole object is freed and becomes
 * NULL, so that an incomplete object is never written. */
void snug_json_add(json_t **object, const char *key, json_t *value);
void snug_json_append(json_t **array, json_t *value);
/* A string; malformed UTF-8 becomes U+FFFD, since file names and process names may be any bytes. */
json_t *snug_json_from_text(const char *text);
/* A number; null if it is not finite. */
json_t *snug_json_number(double value);
/* A string of 16 hexadecimal digits: a checksum. */
json_t *snug_json_hex(uint64_t number);
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
