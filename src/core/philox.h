/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox4x32 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a block of four
 * random words is a pure function of a 128-bit counter and a 64-bit key. Every random number in snug is keyed by its
 * logical position, never by the time or the thread that generates it, so that it can be replayed. snug uses 10 rounds,
 * as the authors advise. Dropout needs by far the most numbers and uses 7 rounds, the fewest that pass all of the
 * authors' tests (Crush).
 */
#ifndef SNUG_CORE_PHILOX_H
#define SNUG_CORE_PHILOX_H

#include <stdint.h>

struct snug_philox_block {
    uint32_t word[4];
};

enum { SNUG_PHILOX_ROUNDS = 10, SNUG_DROPOUT_ROUNDS = 7 };

static inline struct snug_philox_block snug_philox_rounds(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                                          uint32_t k0, uint32_t k1, int rounds) {
    for (int round = 0; round < rounds; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct snug_philox_block){{c0, c1, c2, c3}};
}

static inline struct snug_philox_block snug_philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                                                   uint32_t k1) {
    return snug_philox_rounds(c0, c1, c2, c3, k0, k1, SNUG_PHILOX_ROUNDS);
}

/* What the numbers are used for. The counter's last word contains it, so that no two uses share a block. */
enum snug_philox_use {
    SNUG_PHILOX_DROPOUT = 0,
    SNUG_PHILOX_INIT = 1,
    SNUG_PHILOX_ORDER = 2,
    SNUG_PHILOX_MASKING = 3,
    SNUG_PHILOX_DUMMY = 4,
    SNUG_PHILOX_ROUNDING = 5,
    SNUG_PHILOX_SPLIT = 6,
    SNUG_PHILOX_SAMPLE = 7, /* the last one that the top 3 bits hold */
};

/* Uniform in [0, 1) from one word, 24 bits. */
static inline float snug_philox_uniform(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/*
 * Dropout. The key is (seed's low word ^ its high word * golden ratio, optimizer step). The counter is
 *   hidden states:  (channel / 8, token's position in its sequence, sample's index in the step, site << 12)
 *   attention:      (key position / 4, query position / 2, sample's index in the step, site << 12 | head)
 * Sites number the dropouts of a model. There are fewer than 2^17 sites and fewer than 4096 heads, so they leave the
 * top 3 bits, which hold the use, unused.
 *
 * An element takes 16 bits, so a block is enough for 8 elements: the low half of word [channel % 8 / 2] if the channel
 * is even, else the high half; in attention, the same halves of word [key position % 4], by the query's position.
 * snug_dropout_half() shifts them up; elements below snug_dropout_threshold(p) are dropped. So p is rounded to a
 * multiple of 2^-16. Kept elements are multiplied by snug_dropout_scale(threshold), 1 / (1 - p) of the rounded p.
 */
static inline uint32_t snug_dropout_threshold(float p) {
    const uint32_t half = (uint32_t)((double)p * 65536 + 0.5);
    return (half < 65536 ? half : 65535) << 16;
}
static inline uint32_t snug_dropout_half(uint32_t word, uint32_t place) { return place % 2 ? word : word << 16; }
static inline double snug_dropout_scale(uint32_t threshold) { return 1 / (1 - threshold * 0x1p-32); }
static inline uint32_t snug_philox_key(uint64_t seed) { return (uint32_t)seed ^ (uint32_t)(seed >> 32) * 0x9E3779B9u; }

/*
 * Stochastic rounding of fp32 to bf16: 16 random bits are added to the discarded bits, so that the expectation is the
 * value. The key is dropout's; the counter is (element / 8, its high word, parameter, use << 29), where element counts
 * within the stacked parameter. Element e takes the low half of word [e % 8 / 2] if e is even, the high half otherwise.
 * Infinities and NaNs are not changed.
 */
static inline uint32_t snug_rounding_bits(uint64_t seed, int64_t step, int32_t parameter, int64_t element) {
    const struct snug_philox_block block =
        snug_philox((uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), (uint32_t)parameter,
                    (uint32_t)SNUG_PHILOX_ROUNDING << 29, snug_philox_key(seed), (uint32_t)step);
    return block.word[element % 8 / 2] >> (element % 2 ? 16 : 0) & 0xffffu;
}

#endif
