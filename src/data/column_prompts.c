/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column_prompts.h"

#include <jansson.h>

const char *snug_column_prompt(const struct snug_dataset_options *options, const struct snug_columns *columns,
                               const char *const *names, size_t i) {
    if (!options->prompts) return options->prompt;
    return json_string_value(json_object_get(options->prompts, names[columns->text[i]]));
}

snug_status snug_column_prompts_check(snug_context *ctx, const struct snug_dataset_options *options,
                                      const struct snug_columns *columns, const char *const *names) {
    char known[512] = "";
    const char *name;
    json_t *prompt;
    if (!options->prompts || !options->prompts_are_all) return SNUG_OK;
    for (size_t i = 0; i < columns->texts; i++) snug_column_names_add(known, sizeof known, names[columns->text[i]]);
    json_object_foreach((json_t *)(uintptr_t)options->prompts, name, prompt) {
        size_t i = 0;
        while (i < columns->texts && strcmp(names[columns->text[i]], name) != 0) i++;
        if (i == columns->texts)
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: --prompts: there is no text column \"%s\"; the columns of its texts are: %s",
                             options->path, name, known);
    }
    return SNUG_OK;
}
