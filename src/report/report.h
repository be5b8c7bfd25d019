/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by reports. */
#ifndef SNUG_REPORT_REPORT_H
#define SNUG_REPORT_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "plan/estimate.h"

const char *snug_side_name(enum snug_side side);
/* For tables, and for JSON. */
const char *snug_group_name(enum snug_op_group group);
const char *snug_group_key(enum snug_op_group group);

/* The GPUs as a part of another report. */
json_t *snug_gpus_object(const snug_gpus *gpus);
struct snug_gpu_link;
/* "NV18", or the name of the PCIe path; "-" if unknown. */
void snug_gpu_link_text(char text[static 16], const struct snug_gpu_link *link);
/* A name that snug did not choose, escaped and truncated, so that it cannot begin a new line. */
enum { SNUG_SHOWN = 1024 };
const char *snug_shown(char shown[static SNUG_SHOWN], const char *text);
/* The output of print for report, as text with escaped lines. ctx may be NULL. */
snug_status snug_report_text(snug_context *ctx, void (*print)(FILE *out, const void *report), const void *report,
                             char **text);
/* object as text; takes over the reference; NULL: creating it failed, out of memory. */
snug_status snug_report_json(snug_context *ctx, json_t *object, char **text);

#endif
