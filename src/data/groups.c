/* SPDX-License-Identifier: Apache-2.0 */
#include "data/groups.h"

#include <math.h>

/* Whether there are as many texts as members, or none. */
static bool check_texts(struct snug_group *group, const char *at, size_t size) {
    const char *const end = at + size;
    if (!size) return true;
    group->texts = at;
    for (uint32_t i = 0; i < group->count; i++) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        if (!nul) return false;
        at = nul + 1;
    }
    return end - at < 4;
}

bool snug_group_of(const uint32_t *numbers, int64_t number_count, int64_t tokens, struct snug_group *out) {
    int64_t sum = 0;
    if (number_count < SNUG_GROUP_HEAD || numbers[1] < 1 || numbers[1] > SNUG_GROUP_MOST) return false;
    *out = (struct snug_group){.example = numbers[0],
                               .count = numbers[1],
                               .labelled = numbers[2],
                               .query = numbers[3] | (uint64_t)numbers[4] << 32,
                               .members = numbers + SNUG_GROUP_HEAD};
    const int64_t rest = number_count - (int64_t)snug_group_numbers(out->count);
    if (rest < 0 || !check_texts(out, (const char *)(numbers + number_count - rest), (size_t)rest * 4)) return false;
    for (int64_t i = 0; i < (int64_t)out->count; i++) {
        if (snug_group_tokens(out, i) < 1 || snug_group_first(out, i) > snug_group_tokens(out, i)) return false;
        if (!isfinite(snug_group_target(out, i))) return false;
        sum += snug_group_tokens(out, i);
    }
    return sum == tokens;
}

static snug_status reserve(snug_context *ctx, size_t numbers, struct snug_encoder *encoder) {
    return snug_grow(ctx, (void **)&encoder->numbers, &encoder->number_capacity, numbers, sizeof *encoder->numbers);
}

snug_status snug_group_begin(snug_context *ctx, size_t count, bool labelled, uint64_t query,
                             struct snug_encoder *encoder) {
    const struct snug_window window = {
        .ids = encoder->out.count, .numbers = encoder->number_count, .number_count = SNUG_GROUP_HEAD, .begins = true};
    const uint32_t head[SNUG_GROUP_HEAD] = {0, (uint32_t)count, labelled, (uint32_t)query, (uint32_t)(query >> 32)};
    RETURN_IF_ERROR(reserve(ctx, window.numbers + snug_group_numbers(count), encoder));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->windows, &encoder->window_capacity, encoder->window_count + 1,
                              sizeof *encoder->windows));
    memcpy(encoder->numbers + window.numbers, head, sizeof head);
    encoder->windows[encoder->window_count++] = window;
    encoder->text_size = 0;
    return SNUG_OK;
}

snug_status snug_group_end(snug_context *ctx, struct snug_encoder *encoder) {
    struct snug_window *window = &encoder->windows[encoder->window_count - 1];
    const size_t more = (encoder->text_size + 3) / 4;
    RETURN_IF_ERROR(reserve(ctx, window->numbers + window->number_count + more, encoder));
    uint32_t *to = encoder->numbers + window->numbers + window->number_count;
    if (more) {
        to[more - 1] = 0; /* what follows the texts */
        memcpy(to, encoder->text, encoder->text_size);
    }
    window->number_count += more;
    encoder->number_count = window->numbers + window->number_count;
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
