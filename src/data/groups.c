/* SPDX-License-Identifier: Apache-2.0 */
#include "data/groups.h"

#include <math.h>

bool snug_group_of(const uint32_t *numbers, int64_t number_count, int64_t tokens, struct snug_group *out) {
    int64_t sum = 0;
    if (number_count < SNUG_GROUP_HEAD || numbers[1] < 1 || numbers[1] > SNUG_GROUP_MOST) return false;
    *out = (struct snug_group){numbers[0], numbers[1], numbers[2], numbers + SNUG_GROUP_HEAD};
    if (number_count != (int64_t)snug_group_numbers(out->count)) return false;
    for (int64_t i = 0; i < (int64_t)out->count; i++) {
        if (snug_group_tokens(out, i) < 1 || snug_group_first(out, i) > snug_group_tokens(out, i)) return false;
        if (!isfinite(snug_group_target(out, i))) return false;
        sum += snug_group_tokens(out, i);
    }
    return sum == tokens;
}

snug_status snug_group_begin(snug_context *ctx, size_t count, bool labelled, struct snug_encoder *encoder) {
    const struct snug_window window = {
        .ids = encoder->out.count, .numbers = encoder->number_count, .number_count = SNUG_GROUP_HEAD, .begins = true};
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->numbers, &encoder->number_capacity,
                              window.numbers + snug_group_numbers(count), sizeof *encoder->numbers));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->windows, &encoder->window_capacity, encoder->window_count + 1,
                              sizeof *encoder->windows));
    uint32_t *head = encoder->numbers + window.numbers;
    head[0] = 0;
    head[1] = (uint32_t)count;
    head[2] = labelled;
    encoder->number_count += snug_group_numbers(count);
    encoder->windows[encoder->window_count++] = window;
    return SNUG_OK;
}

snug_status snug_group_add(snug_context *ctx, const struct snug_encoding *encoding, const char *first,
                           const char *second, float target, struct snug_encoder *encoder) {
    struct snug_window *window = &encoder->windows[encoder->window_count - 1];
    struct snug_encoding own = *encoding;
    struct snug_encoded one;
    own.pair = second;
    RETURN_IF_ERROR(snug_encode_texts(ctx, &own, (const char *const[]){first, second},
                                      (const size_t[]){strlen(first), second ? strlen(second) : 0}, encoder, &one));
    uint32_t *member = encoder->numbers + window->numbers + window->number_count;
    member[0] = (uint32_t)one.count;
    member[1] = (uint32_t)one.first_count;
    memcpy(&member[2], &target, sizeof target);
    window->number_count += SNUG_GROUP_MEMBER;
    window->count += one.count;
    window->first_count += one.first_count;
    window->truncated |= one.truncated;
    return SNUG_OK;
}
