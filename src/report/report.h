/* SPDX-License-Identifier: Apache-2.0 */
/* What reports share. */
#ifndef SNUG_REPORT_REPORT_H
#define SNUG_REPORT_REPORT_H

#include <jansson.h>

#include "core/context.h"

/* The GPUs as a part of another report. */
json_t *snug_gpus_object(const snug_gpus *gpus);
/* object, whose reference is taken, as text; NULL is one for which there was no memory. */
snug_status snug_report_json(snug_context *ctx, json_t *object, char **text);

/* A string, U+FFFD for one that is not UTF-8. */
json_t *snug_report_string(const char *text);

#endif
