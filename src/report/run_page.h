/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the page about trainings (runs.c). */
#ifndef SNUG_REPORT_RUN_PAGE_H
#define SNUG_REPORT_RUN_PAGE_H

#include <stdio.h>

#include "inspect/runs.h"

/* The line of a run in a chart, for legends. */
void snug_page_line_sample(FILE *out, size_t run);
/* The beginning of a table with a column for each run. */
void snug_page_table_begin(FILE *out, const snug_runs *runs);
/* NULL where there is none. */
const struct snug_series *snug_page_series(const struct snug_history *run, const char *name);
const char *snug_page_value(const struct snug_entries *entries, const char *name);

/* Where the models are, their metrics, and confusion matrices. */
void snug_page_results(FILE *out, const snug_runs *runs);
/* What changed from step to step, as charts; what did not, in words. */
void snug_page_curves(FILE *out, const snug_runs *runs);

#endif
