/* SPDX-License-Identifier: Apache-2.0 */
/* The program's calls that concern arguments. */
#include "args/args.h"
#include "args/table.h"

snug_status snug_args_create(snug_context *ctx, snug_args **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(ctx);
    RETURN_IF_ERROR(snug_enter(ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(ctx, snug_args_make(ctx, out));
}

void snug_args_destroy(snug_args *args) {
    if (!args) return;
    snug_context *ctx = args->ctx;
    if (snug_enter(ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_QUIET) != SNUG_OK) return;
    snug_args_free(args);
    snug_leave(ctx, SNUG_OK);
}

snug_status snug_args_set(snug_args *args, const char *name, const char *value) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(name);
    SNUG_REQUIRE(value);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, snug_args_assign(args, name, value));
}

snug_status snug_args_get(const snug_args *args, const char *name, char *buffer, size_t size) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(name);
    SNUG_REQUIRE(buffer);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_WITHIN));
    return snug_leave(args->ctx, snug_args_value(args, name, buffer, size));
}

bool snug_args_given(const snug_args *args, const char *name) {
    SNUG_REQUIRE_OR(false, args);
    SNUG_REQUIRE_OR(false, name);
    if (snug_enter(args->ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_WITHIN | SNUG_TURN_QUIET) != SNUG_OK) return false;
    const bool given = snug_args_is_set(args, name);
    snug_leave(args->ctx, SNUG_OK);
    return given;
}

snug_status snug_args_parse(snug_args *args, int argc, char *const argv[]) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE_ITEMS(argv, argc);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, snug_args_read_words(args, argc, argv));
}

snug_status snug_args_set_rows(snug_args *args, const char *name, snug_rows *rows) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(name);
    SNUG_REQUIRE(rows);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, snug_args_take_rows(args, name, rows));
}

int snug_args_rank(const snug_args *args) {
    SNUG_REQUIRE_OR(-1, args);
    return snug_group_rank(args->group);
}

int snug_args_rank_count(const snug_args *args) {
    SNUG_REQUIRE_OR(-1, args);
    return snug_group_size(args->group);
}

void snug_end_ranks(snug_args *args, int code) {
    if (!args || !args->group) return;
    snug_watch_end(args->group->watch, code);
    args->group->collectives->abort(code);
}

const snug_arg_info *snug_args_info(size_t index) {
    return index < snug_argument_count ? &snug_arguments[index].info : NULL;
}
