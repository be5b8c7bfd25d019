/* SPDX-License-Identifier: Apache-2.0 */
/* What reports share. */
#ifndef SNUG_REPORT_REPORT_H
#define SNUG_REPORT_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "plan/stages.h"

/* The parts of a step in tables. The head's backward operations stand behind its loss. */
enum snug_side { SNUG_SIDE_FORWARD, SNUG_SIDE_BACKWARD, SNUG_SIDE_UPDATE, SNUG_SIDE_COUNT };
enum snug_side snug_side_of(const struct snug_op *op, bool behind_loss);
const char *snug_side_name(enum snug_side side);
/* For tables, and for JSON. */
const char *snug_group_name(enum snug_op_group group);
const char *snug_group_key(enum snug_op_group group);

/* What a training computes in, and keeps its weights in. */
const char *snug_precision_text(const struct snug_program *program, enum snug_dtype weights);
/* The GPUs as a part of another report. */
json_t *snug_gpus_object(const snug_gpus *gpus);
/* A name from elsewhere, escaped and cut, so that it cannot begin a line of its own. */
enum { SNUG_SHOWN = 1024 };
const char *snug_shown(char shown[static SNUG_SHOWN], const char *text);
/* What print writes of report, as text whose lines are escaped. ctx is NULL where there is none. */
snug_status snug_report_text(snug_context *ctx, void (*print)(FILE *out, const void *report), const void *report,
                             char **text);
/* object, whose reference is taken, as text; NULL is one for which there was no memory. */
snug_status snug_report_json(snug_context *ctx, json_t *object, char **text);

#endif
