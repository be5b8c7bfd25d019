/* SPDX-License-Identifier: Apache-2.0 */
#include "train/results.h"

#include <stdio.h>
#include <string.h>

#include "io/json.h"

static snug_status merge_and_write(struct snug_output *o, const char *name, const json_t *values, bool merge) {
    json_t *all = NULL;
    if (merge && snug_entry_kind(&o->folder, name)) RETURN_IF_ERROR(snug_json_read(o->ctx, &o->folder, name, &all));
    if (!all) all = json_object();
    snug_status status =
        !all || json_object_update(all, (json_t *)values)
            ? snug_fail(o->ctx, SNUG_E_MEMORY, "out of memory while writing %s/%s", o->folder.path, name)
            : snug_json_write(o->ctx, &o->folder, name, all);
    json_decref(all);
    return status;
}

snug_status snug_results_write(struct snug_output *output, const char *split, const struct snug_metric_list *metrics,
                               json_t *more) {
    json_t *values = json_object();
    /* json_copy() omits members that it cannot add. */
    int failed = !values || (more && json_object_update(values, more));
    for (size_t i = 0; metrics && i < metrics->count && !failed; i++)
        failed = json_object_set_new(values, metrics->items[i].name, snug_json_number(metrics->items[i].value));
    if (failed) {
        json_decref(values);
        return snug_fail(output->ctx, SNUG_E_MEMORY, "out of memory while collecting results");
    }
    char own[64];
    snprintf(own, sizeof own, "%s_results.json", split);
    snug_status status = snug_output_begin(output, (const char *const[]){own, "all_results.json", NULL});
    if (status == SNUG_OK) status = merge_and_write(output, own, values, false);
    /* A training begins them: others are of another model, or another program's. */
    const bool merges = strcmp(split, "train") != 0;
    if (status == SNUG_OK) status = merge_and_write(output, "all_results.json", values, merges);
    if (status == SNUG_OK) status = snug_output_end(output);
    json_decref(values);
    return status;
}
