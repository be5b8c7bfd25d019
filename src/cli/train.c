/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "next.h"

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
        cli_add(&rank, "device", use->device ? cli_string(use->device) : json_null());
        cli_add(&rank, "memory", memory_json(&use->total));
        cli_append(&ranks, rank);
    }
    return ranks;
}

static json_t *best_json(const snug_train_result *result) {
    if (!result->best_metric) return json_null();
    json_t *best = json_object();
    cli_add(&best, "metric", cli_string(result->best_metric));
    cli_add(&best, "value", cli_real(result->best_value));
    cli_add(&best, "step", json_integer(result->best_step));
    cli_add(&best, "epoch", cli_real(result->best_epoch));
    cli_add(&best, "is_model", json_boolean(result->best_is_model));
    return best;
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
    if (result->loss_scale > 0) {
        cli_add(&object, "skipped_steps", json_integer(result->skipped_steps));
        cli_add(&object, "loss_scale", cli_real(result->loss_scale));
    }
    cli_add(&object, "best_model_checkpoint",
            result->best_checkpoint ? cli_string(result->best_checkpoint) : json_null());
    for (int i = 0; i < (int)result->memory_count; i++)
        cli_add(&memory, snug_memory_class_name((snug_memory_class)i), memory_json(&result->memory[i]));
    cli_add(&object, "output_dir", cli_string(result->output_dir));
    cli_add(&object, "best", best_json(result));
    cli_add(&memory, "total", memory_json(&result->total));
    cli_add(&object, "memory", memory);
    if (result->rank_count) cli_add(&object, "ranks", ranks_json(result));
    if (!result->device) return object;
    cli_add(&object, "device",
            json_pack("{s:o, s:s, s:o}", "name", cli_string(result->device), "method", result->device_method, "others",
                      cli_string(result->device_others)));
    return object;
}

/* The plan should be what the run takes; if it is not, or if the user wants to know, by class. */
static bool shows_memory(const struct cli *cli, const snug_train_result *result) {
    const double planned = (double)result->total.planned, measured = (double)result->total.measured;
    return cli->detailed || (measured >= 0 && fabs(measured - planned) > 0.01 * planned);
}

static snug_status report_memory(const snug_train_result *result) {
    char *text;
    const snug_status status = snug_train_result_memory_text(result, &text);
    if (status == SNUG_OK) fprintf(stderr, "\n%s", text);
    snug_free(text);
    return status;
}

static snug_status report(struct cli *cli, const snug_train_result *result) {
    char *text;
    snug_status status = snug_train_result_text(result, &text);
    progress_end(&cli->progress);
    if (status == SNUG_OK && !cli->progress.quiet) {
        fputs(text, stderr);
        cli_tell_next(cli, result);
    }
    snug_free(text);
    if (status == SNUG_OK && !cli->progress.quiet && shows_memory(cli, result)) status = report_memory(result);
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
        if (status == SNUG_E_INTERRUPTED && snug_args_rank(cli.args) == 0) cli_tell_continuation(&cli, argc, argv);
        snug_train_result_destroy(result);
        if (code != EXIT_DONE) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}
