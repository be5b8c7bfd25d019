/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

static json_t *ledger_json(const snug_ledger_line *line) {
    json_t *object = json_object();
    json_object_set_new(object, "planned", json_integer(line->planned));
    json_object_set_new(object, "measured", line->measured < 0 ? json_null() : json_integer(line->measured));
    return object;
}

/* The keys are those of Trainer's all_results.json, then snug's own. */
static json_t *result_json(const snug_train_result *result) {
    json_t *object = json_object(), *memory = json_object();
    json_object_set_new(object, "epoch", cli_real(result->epochs));
    json_object_set_new(object, "train_loss", cli_real(result->train_loss));
    json_object_set_new(object, "train_runtime", cli_real(result->seconds));
    json_object_set_new(object, "train_samples_per_second", cli_real(result->samples_per_second));
    json_object_set_new(object, "train_steps_per_second", cli_real(result->steps_per_second));
    json_object_set_new(object, "total_flos", cli_real(result->flops));
    cli_add_metrics(object, &result->metrics);
    json_object_set_new(object, "steps", json_integer(result->steps));
    json_object_set_new(object, "samples", json_integer(result->samples));
    json_object_set_new(object, "tokens", json_integer(result->tokens));
    json_object_set_new(object, "start_seconds", cli_real(result->seconds_to_first_step));
    json_object_set_new(object, "peak_rss_bytes", json_integer(result->peak_resident));
    json_object_set_new(object, "padding_avoided", cli_real(result->padding_avoided));
    json_object_set_new(object, "truncated_texts", json_integer(result->truncated_texts));
    if (result->loss_scale > 0) {
        json_object_set_new(object, "skipped_steps", json_integer(result->skipped_steps));
        json_object_set_new(object, "loss_scale", cli_real(result->loss_scale));
    }
    json_object_set_new(object, "best_model_checkpoint",
                        *result->best_checkpoint ? cli_string(result->best_checkpoint) : json_null());
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        json_object_set_new(memory, snug_memory_class_name((snug_memory_class)i), ledger_json(&result->ledger[i]));
    json_object_set_new(memory, "total", ledger_json(&result->total));
    json_object_set_new(object, "memory", memory);
    if (!*result->device.name) return object;
    json_object_set_new(object, "device",
                        json_pack("{s:o, s:s, s:o}", "name", cli_string(result->device.name), "method",
                                  result->device.method, "others", cli_string(result->device.others)));
    return object;
}

static snug_status report(struct cli *cli, const snug_train_result *result) {
    char *text;
    snug_status status = snug_train_result_text(result, &text);
    progress_end(&cli->progress);
    if (status == SNUG_OK && !cli->progress.quiet) fputs(text, stderr);
    free(text);
    if (status == SNUG_OK && cli->json) status = cli_put_json(cli, result_json(result), 15);
    return status;
}

int command_train(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        snug_train_result result = {0};
        snug_status status = snug_train(cli.args, &cli.callbacks, &result);
        if (status == SNUG_OK) status = report(&cli, &result);
        code = cli_finish(&cli, status);
    }
    cli_close(&cli);
    return code;
}
