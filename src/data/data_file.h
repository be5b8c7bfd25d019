/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a data file: a file, a pipe or standard input, compressed by gzip or not; and which format they have. */
#ifndef SNUG_DATA_DATA_FILE_H
#define SNUG_DATA_DATA_FILE_H

#include <sys/types.h>

#include "core/context.h"

/* The last is no file: a program gives the rows. */
enum snug_data_form { SNUG_DATA_CSV, SNUG_DATA_TSV, SNUG_DATA_JSON, SNUG_DATA_TEXT, SNUG_DATA_CONLL, SNUG_DATA_ROWS };
/* The choices of --data_format. */
#define SNUG_DATA_FORMATS "csv|tsv|json|jsonl|txt|conll"

/* Whether the path is standard input: "-", or the name that Linux gives it. */
bool snug_data_is_stdin(const char *path);
/* The format, or NULL: the suffix of the name, that before .gz. SNUG_E_USAGE if it tells nothing. */
snug_status snug_data_form_of(snug_context *ctx, const char *path, const char *format, enum snug_data_form *out);
/* Opens it for reading; *fd is closed by the caller. */
snug_status snug_data_open(snug_context *ctx, const char *path, int *fd);
/* Fails as the two do: if the format is unknown, if there is no such file, or none that may be read. Waits for no
 * pipe. */
snug_status snug_data_look(snug_context *ctx, const char *path, const char *format);

struct snug_data_file;
/* Reads an open file from its current position. The caller closes fd after it. */
snug_status snug_data_file_create(snug_context *ctx, const char *path, int fd, struct snug_data_file **out);
void snug_data_file_free(struct snug_data_file *file);
/* The next bytes, decompressed if the first two are gzip's; *got is 0 at the end. SNUG_E_INPUT: damaged or truncated
   compressed data. */
snug_status snug_data_file_read(struct snug_data_file *file, void *data, size_t size, size_t *got);
/* Bytes read from the file so far, compressed ones. */
int64_t snug_data_file_taken(const struct snug_data_file *file);

#endif
