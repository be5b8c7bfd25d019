/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

static json_t *integers(const int32_t *values, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) cli_append(&array, json_integer(values[i]));
    return array;
}

static snug_status on_row(void *user, const snug_tokenized *row) {
    json_t *object = json_object(), *tokens = json_array();
    for (size_t i = 0; i < row->count; i++) cli_append(&tokens, cli_string(row->tokens[i]));
    cli_add(&object, "index", json_integer(row->index));
    cli_add(&object, "input_ids", integers(row->input_ids, row->count));
    cli_add(&object, "token_type_ids", integers(row->token_type_ids, row->count));
    cli_add(&object, "tokens", tokens);
    if (row->has_loss) cli_add(&object, "has_loss", integers(row->has_loss, row->count));
    if (row->text) cli_add(&object, "text", cli_string(row->text));
    return cli_put_json(user, object, 17);
}

int command_tokenize(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) code = cli_finish(&cli, snug_tokenize(cli.args, on_row, &cli));
    cli_close(&cli);
    return code;
}
