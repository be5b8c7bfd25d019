/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"

json_t *snug_report_string(const char *text) {
    json_t *string = json_string(text);
    return string ? string : json_string("\xEF\xBF\xBD");
}

snug_status snug_report_json(snug_context *ctx, json_t *object, char **text) {
    *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    return *text ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while writing JSON");
}
