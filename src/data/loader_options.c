/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader_options.h"

int64_t snug_loader_batches(int64_t rows, const struct snug_loader_options *options) {
    if (options->packs) return options->pack_count;
    const int64_t whole = rows / options->batch_size;
    return whole + (!options->drop_last && rows % options->batch_size != 0);
}

int64_t snug_loader_steps(int64_t rows, const struct snug_loader_options *options) {
    int64_t batches = snug_loader_batches(rows, options);
    return batches / options->accumulation + (batches % options->accumulation != 0);
}

int snug_loader_contributors(int64_t rows, const struct snug_loader_options *options, int64_t step, int64_t own) {
    int64_t left = snug_loader_batches(rows, options) - step * options->accumulation;
    const int64_t share = snug_loader_share(options), ranks = options->accumulation / share;
    if (left > options->accumulation) left = options->accumulation;
    const int64_t having = options->in_turns ? left - own * ranks : (left - own + share - 1) / share;
    return (int)(having < 0 || own >= share ? 0 : having < ranks ? having : ranks);
}
