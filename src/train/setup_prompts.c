/* SPDX-License-Identifier: Apache-2.0 */
/* What is put before the texts of an embedding. */
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "model/sentence.h"
#include "train/setup_impl.h"

/* --prompts, as the argument of sentence-transformers' trainings: one text, or an object of texts by column. */
static snug_status read_prompts(struct snug_setup *setup) {
    const char *text = setup->args->prompts, *name;
    json_error_t error;
    json_t *value;
    if (*text != '{') {
        setup->prompt = text;
        return SNUG_OK;
    }
    setup->prompts = snug_json_parse(text, strlen(text), 0, &error);
    if (!setup->prompts)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "--prompts %s: this is not JSON: %s", text, error.text);
    json_object_foreach(setup->prompts, name, value) {
        if (!json_is_string(value))
            return snug_fail(setup->ctx, SNUG_E_USAGE,
                             "--prompts %s: the prompt of \"%s\" must be a text: {\"COLUMN\": \"TEXT\"}", text, name);
    }
    return SNUG_OK;
}

snug_status snug_setup_find_prompt(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const struct snug_sentence *sentence = setup->config.sentence;
    const char **out = &setup->prompt;
    if (!sentence) return SNUG_OK;
    if (args->prompts) return read_prompts(setup);
    if (setup->trains) return SNUG_OK;
    if (args->prompt && args->prompt_name)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "--prompt and --prompt_name are both given: give one of them");
    *out = setup->command == SNUG_COMMAND_EVAL ? NULL : args->prompt;
    return *out ? SNUG_OK : snug_sentence_prompt(setup->ctx, sentence, args->prompt_name, out);
}
