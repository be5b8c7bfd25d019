/* SPDX-License-Identifier: Apache-2.0 */
/* Words of rows that several ranks have, put into the order of the rows. */
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "metrics/metrics_impl.h"

enum { TOGETHER = 1 << 10 }; /* words that the ranks exchange at a time, about: 8 KiB */

/* Gathers the words of `rounds` rounds from `first` on, in each of which every rank has a batch, and puts them to their
   rows. part: [ranks, rounds * batch], of which the last may be incomplete. */
static snug_status merge_rounds(const struct snug_metric_accumulator *accumulator,
                                const struct snug_process_group *group, int64_t batch, int64_t first, int64_t rounds,
                                int64_t all, uint64_t *part, uint64_t *words) {
    const int ranks = snug_group_size(group);
    uint64_t *own = part + snug_group_rank(group) * rounds * batch;
    const int64_t begin = first * batch, left = accumulator->rows - begin;
    if (left > 0) memcpy(own, words + begin, (size_t)snug_min(left, rounds * batch) * sizeof *own);
    RETURN_IF_ERROR(snug_group_all_gather(accumulator->ctx, group, part, rounds * batch * (int64_t)sizeof *part));
    for (int64_t round = 0; round < rounds; round++)
        for (int r = 0; r < ranks; r++) {
            const int64_t row = ((first + round) * ranks + r) * batch;
            if (row < all)
                memcpy(words + row, part + (r * rounds + round) * batch,
                       (size_t)snug_min(batch, all - row) * sizeof *part);
        }
    return SNUG_OK;
}

/* From the last rounds to the first: the rows of a round are never before this rank's own words of it, so that those
   which are still needed are not overwritten. */
snug_status snug_metric_merge_words(const struct snug_metric_accumulator *accumulator,
                                    const struct snug_process_group *group, int64_t batch, uint64_t *words) {
    const int64_t ranks = snug_group_size(group);
    int64_t all = accumulator->rows;
    void *part;
    RETURN_IF_ERROR(snug_group_sum(accumulator->ctx, group, &all, 1));
    const int64_t rounds = (all + ranks * batch - 1) / (ranks * batch);
    const int64_t fit = TOGETHER / (ranks * batch), together = fit < 1 ? 1 : snug_min(fit, rounds);
    RETURN_IF_ERROR(snug_alloc(accumulator->ctx, (size_t)(ranks * together * batch), sizeof(uint64_t), &part));
    snug_status status = SNUG_OK;
    for (int64_t end = rounds; end > 0 && status == SNUG_OK; end -= together) {
        const int64_t first = end > together ? end - together : 0;
        status = merge_rounds(accumulator, group, batch, first, end - first, all, part, words);
    }
    free(part);
    return status;
}
