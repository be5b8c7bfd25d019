/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

static json_t *memory_json(const snug_memory_line *line) {
    json_t *object = json_object();
    cli_add(&object, "planned", json_integer(line->planned));
    cli_add(&object, "measured", line->measured < 0 ? json_null() : json_integer(line->measured));
    return object;
}

/* By rank. */
static json_t *ranks_json(const snug_train_result *result) {
    json_t *ranks = json_array();
    for (size_t i = 0; i < result->rank_count; i++) {
        const snug_rank_use *use = &result->ranks[i];
        json_t *rank = json_object();
        cli_add(&rank, "host", cli_string(use->host));
        cli_add(&rank, "device", use->device ? cli_string(use->device) : json_null()); /* may be untested: needs GPUs */
        cli_add(&rank, "memory", memory_json(&use->total));
        cli_append(&ranks, rank);
    }
    return ranks;
}

/* The keys are those of Trainer's all_results.json, then snug's own. */
static json_t *result_json(const snug_train_result *result) {
    json_t *object = json_object(), *memory = json_object();
    cli_add(&object, "epoch", cli_real(result->epochs));
    cli_add(&object, "train_loss", cli_real(result->train_loss));
    cli_add(&object, "train_runtime", cli_real(result->seconds));
    cli_add(&object, "train_samples_per_second", cli_real(result->samples_per_second));
    cli_add(&object, "train_steps_per_second", cli_real(result->steps_per_second));
    cli_add(&object, "total_flos", cli_real(result->flops));
    cli_add_metrics(&object, result->metrics);
    cli_add(&object, "steps", json_integer(result->steps));
    cli_add(&object, "samples", json_integer(result->samples));
    cli_add(&object, "tokens", json_integer(result->tokens));
    cli_add(&object, "start_seconds", cli_real(result->seconds_to_first_step));
    cli_add(&object, "peak_rss_bytes", json_integer(result->peak_resident));
    cli_add(&object, "padding_avoided", cli_real(result->padding_avoided));
    cli_add(&object, "truncated_texts", json_integer(result->truncated_texts));
    cli_add(&object, "nan_inf_losses", json_integer(result->infinite_losses));
    cli_add(&object, "nan_inf_gradients", json_integer(result->infinite_gradients));
    if (result->loss_scale > 0) { /* untested: only fp16 on a GPU has a loss scale */
        cli_add(&object, "skipped_steps", json_integer(result->skipped_steps));
        cli_add(&object, "loss_scale", cli_real(result->loss_scale));
    }
    cli_add(&object, "best_model_checkpoint",
            result->best_checkpoint ? cli_string(result->best_checkpoint) : json_null());
    for (int i = 0; i < (int)result->memory_count; i++)
        cli_add(&memory, snug_memory_class_name((snug_memory_class)i), memory_json(&result->memory[i]));
    cli_add(&memory, "total", memory_json(&result->total));
    cli_add(&object, "memory", memory);
    if (result->rank_count) cli_add(&object, "ranks", ranks_json(result)); /* may be untested: needs MPI */
    if (!result->device) return object;                                    /* untested: only a GPU has a name */
    cli_add(&object, "device",
            json_pack("{s:o, s:s, s:o}", "name", cli_string(result->device), "method", result->device_method, "others",
                      cli_string(result->device_others)));
    return object;
}

static snug_status report(struct cli *cli, const snug_train_result *result) {
    char *text;
    snug_status status = snug_train_result_text(result, &text);
    progress_end(&cli->progress);
    if (status == SNUG_OK && !cli->progress.quiet) fputs(text, stderr);
    snug_free(text);
    json_t *object = status == SNUG_OK && cli->json ? result_json(result) : NULL;
    if (status == SNUG_OK && cli->json) status = cli_put_result(cli, object, 15);
    return status;
}

int command_train(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code) && !cli_launch(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        snug_train_result *result;
        snug_status status = snug_train(cli.args, &cli.callbacks, &result);
        if (status == SNUG_OK && snug_args_rank(cli.args) == 0) status = report(&cli, result);
        code = cli_finish(&cli, status);
        snug_train_result_destroy(result);
        if (code != EXIT_DONE) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}
