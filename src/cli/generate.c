/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "cli.h"
#include "snug_generate.h"

/* Where text of a single answer is written as it grows. */
struct writing {
    struct cli *cli;
    bool streams; /* one answer to one prompt: given by --prompt */
};

static json_t *reals(const float *values, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) cli_append(&array, cli_real((double)values[i]));
    return array;
}

static snug_status put_json(struct cli *cli, const snug_answer *answer) {
    json_t *object = json_object(), *ids = json_array();
    for (size_t i = 0; i < answer->count; i++) cli_append(&ids, json_integer(answer->ids[i]));
    cli_add(&object, "index", json_integer(answer->index));
    cli_add(&object, "sequence", json_integer(answer->sequence));
    cli_add(&object, "prompt", cli_string(answer->prompt));
    cli_add(&object, "text", json_stringn(answer->text, answer->text_length));
    cli_add(&object, "token_ids", ids);
    cli_add(&object, "log_probabilities", reals(answer->log_probabilities, answer->count));
    if (!isnan(answer->score)) cli_add(&object, "score", cli_real(answer->score));
    cli_add(&object, "num_beams", json_integer(answer->beams));
    cli_add(&object, "stop", cli_string(answer->stop));
    const snug_status status = cli_put_json(cli, object, 9);
    return status == SNUG_OK ? cli_put(cli, "") : status; /* answers come one by one */
}

static snug_status on_piece(void *user, const snug_piece *piece) {
    const struct writing *w = user;
    if (!w->streams) return SNUG_OK;
    progress_end(&w->cli->progress);
    const snug_status status = cli_put_text(w->cli, piece->text, piece->length);
    return status == SNUG_OK ? cli_put(w->cli, "") : status;
}

static snug_status on_answer(void *user, const snug_answer *answer) {
    const struct writing *w = user;
    if (w->cli->json) return put_json(w->cli, answer);
    if (!w->streams) cli_put_text(w->cli, answer->text, answer->text_length);
    return cli_put(w->cli, "\n");
}

static snug_status make_plan(struct cli *cli, char **text) { return snug_generate_plan(cli->args, cli->json, text); }

static int answer_prompts(struct cli *cli) {
    struct writing writing = {.cli = cli};
    writing.streams = !cli->json && snug_args_given(cli->args, "prompt") && cli_argument_is(cli, "num_beams", "1") &&
                      cli_argument_is(cli, "num_return_sequences", "1");
    cli_catch_signals(cli);
    return cli_finish(cli, snug_generate(cli->args, &cli->callbacks, on_piece, on_answer, &writing));
}

static int generate(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code))
        code = cli_argument_is(&cli, "plan_only", "True") ? cli_make(&cli, make_plan) : answer_prompts(&cli);
    cli_close(&cli);
    return code;
}

int command_generate(int argc, char **argv) { return cli_name_model(argc, argv, generate); }
