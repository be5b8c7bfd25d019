/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

static json_t *integers(const int32_t *values, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(array, json_integer(values[i]));
    return array;
}

static snug_status on_row(void *user, const snug_tokenized *row) {
    json_t *object = json_object(), *tokens = json_array();
    for (size_t i = 0; i < row->count; i++) json_array_append_new(tokens, cli_string(row->tokens[i]));
    json_object_set_new(object, "index", json_integer(row->index));
    json_object_set_new(object, "input_ids", integers(row->input_ids, row->count));
    json_object_set_new(object, "token_type_ids", integers(row->token_type_ids, row->count));
    json_object_set_new(object, "tokens", tokens);
    return cli_put_json(user, object, 17);
}

int command_tokenize(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) code = cli_finish(&cli, snug_tokenize(cli.args, on_row, &cli));
    cli_close(&cli);
    return code;
}
