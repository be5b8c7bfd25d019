/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/block.h"
#include "core/context.h"
#include "core/dtype.h"
#include "core/normal.h"
#include "core/philox.h"
#include "core/utf8.h"
#include "test.h"

/* AddressSanitizer ends a program whose allocation is too large, unless it is configured to return NULL. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

/* ---- Philox ------------------------------------------------------------------------------------------------------ */

/* kat_vectors of Random123 1.14.0, philox4x32: counter, key, results of 7 and of 10 rounds. */
TEST(test_philox_known_answers) {
    static const uint32_t vectors[][14] = {
        {0, 0, 0, 0, 0, 0, 0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
         0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662, 0x408f276d, 0x41c83b0e,
         0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0x4dfccaba, 0x190a87f0, 0xc47362ba,
         0xb6b5242a, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const uint32_t *v = vectors[i];
        const struct snug_philox_block fewer =
            snug_philox_rounds(v[0], v[1], v[2], v[3], v[4], v[5], SNUG_DROPOUT_ROUNDS);
        const struct snug_philox_block block = snug_philox(v[0], v[1], v[2], v[3], v[4], v[5]);
        assert_memory_equal(fewer.word, v + 6, sizeof fewer.word);
        assert_memory_equal(block.word, v + 10, sizeof block.word);
    }
}

/* libm's result for the same words, moments, and no dependence on neighbouring elements. */
TEST(test_normal) {
    enum { COUNT = 1 << 18 };
    static const uint32_t ends[] = {0, 0, 0, ~0u, ~0u, 0, ~0u, ~0u, 1u << 31, 0x3fffffff, 7, 0x40000000, 7, 0x80000000};
    static uint32_t words[COUNT];
    static float values[COUNT], fewer[COUNT];
    for (uint32_t i = 0; i < COUNT / 4; i++) {
        const struct snug_philox_block block = snug_philox(i, 0, 0, 0, 42, 0);
        memcpy(words + (size_t)4 * i, block.word, sizeof block);
    }
    memcpy(words, ends, sizeof ends);
    snug_normal(values, words, COUNT, 0.5);
    double sums[4] = {0};
    for (size_t i = 0; i < COUNT; i++) {
        const uint32_t turn = words[i | 1];
        const double radius = sqrt(-2 * log((words[i & ~(size_t)1] + 0.5) * 0x1p-32));
        const double angle = ((turn & 0x3fffffff) + 0.5) * 0x1p-30 * acos(0);
        const double part = i % 2 ? sin(angle) * (turn >> 30 & 1 ? -1 : 1) : cos(angle) * (turn >> 31 ? -1 : 1);
        const double expected = 0.5 * radius * part, x = 2 * (double)values[i];
        if (!(fabs((double)values[i] - expected) <= 1e-7 * fabs(expected) + 1e-9))
            fail_msg("%zu: %.9g, expected %.9g", i, (double)values[i], expected);
        for (int k = 0; k < 4; k++) sums[k] += pow(x, k + 1) / COUNT;
    }
    /* within four standard deviations of sums of that many: for x^n, E[x^2n] - E[x^n]^2 is 1, 2, 15, 96 */
    assert_true(fabs(sums[0]) < 4 * sqrt(1. / COUNT) && fabs(sums[1] - 1) < 4 * sqrt(2. / COUNT));
    assert_true(fabs(sums[2]) < 4 * sqrt(15. / COUNT) && fabs(sums[3] - 3) < 4 * sqrt(96. / COUNT));
    for (int count = 0; count < 9; count++) {
        fewer[count] = 99;
        snug_normal(fewer, words, count, 0.5);
        assert_true(fewer[count] == 99 && memcmp(fewer, values, (size_t)count * sizeof *fewer) == 0);
    }
}

TEST(test_philox_helpers) {
    assert_true(snug_philox_uniform(0) == 0);
    assert_true(snug_philox_uniform(~0u) == 1 - 0x1p-24f);
    assert_int_equal(snug_dropout_threshold(0), 0);
    assert_int_equal(snug_dropout_threshold(0.5f), 0x80000000u);
    assert_int_equal(snug_dropout_threshold(0.1f), 6554u << 16);
    assert_int_equal(snug_dropout_threshold(1 - 0x1p-24f), 0xffff0000u); /* some elements are always kept */
    assert_int_equal(snug_philox_key(42), 42);
    assert_int_not_equal(snug_philox_key(42), snug_philox_key(42 | (uint64_t)1 << 32));
}

/* ---- element types ----------------------------------------------------------------------------------------------- */

/* sign, exponent and mantissa read as IEEE 754 defines them */
static double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void assert_same(float got, double want, unsigned bits) {
    if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
        fail_msg("%04x gives %g, expected %g", bits, (double)got, want);
}

TEST(test_widening) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        assert_same(snug_bf16_to_f32((uint16_t)bits), value_of((uint16_t)bits, 8, 7), bits);
        assert_same(snug_f16_to_f32((uint16_t)bits), value_of((uint16_t)bits, 5, 10), bits);
    }
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every bf16 is preserved; values between two neighbours round to the nearer one, the midpoint to the even one. */
TEST(test_narrowing) {
    for (uint32_t half = 0; half < 65536; half++) {
        uint32_t bits = half << 16;
        if (isnan(float_of(bits))) {
            for (uint32_t low = 0; low < 65536; low += 257)
                assert_true(isnan(snug_bf16_to_f32(snug_f32_to_bf16(float_of(bits | low)))));
            continue;
        }
        assert_int_equal(snug_f32_to_bf16(float_of(bits)), half);
        if (isinf(float_of(bits))) continue;
        assert_int_equal(snug_f32_to_bf16(float_of(bits | 0x7fff)), half);
        assert_int_equal(snug_f32_to_bf16(float_of(bits | 0x8000)), half + (half & 1));
        assert_int_equal(snug_f32_to_bf16(float_of(bits | 0x8001)), half + 1);
        assert_int_equal(snug_f32_to_bf16(float_of(bits | 0xffff)), half + 1);
    }
    /* a NaN whose payload lies in the low bits only must not become infinity */
    assert_true(isnan(snug_bf16_to_f32(snug_f32_to_bf16(float_of(0x7f800001)))));
    assert_true(isnan(snug_bf16_to_f32(snug_f32_to_bf16(float_of(0xff800001)))));
}

/* Every fp16 value, every midpoint of two, and both neighbours of it. */
TEST(test_f16) {
    for (uint32_t half = 0; half < 0x7c00; half++) {
        const float low = snug_f16_to_f32((uint16_t)half);
        const float high = half == 0x7bff ? 65536.0f : snug_f16_to_f32((uint16_t)(half + 1)), middle = (low + high) / 2;
        const uint32_t even = half % 2 ? half + 1 : half;
        assert_int_equal(snug_f32_to_f16(low), half);
        assert_int_equal(snug_f32_to_f16(-low), half | 0x8000);
        assert_int_equal(snug_f32_to_f16(middle), even);
        assert_int_equal(snug_f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(snug_f32_to_f16(nextafterf(middle, 0)), half);
        assert_int_equal(snug_f32_to_f16(nextafterf(middle, INFINITY)), half + 1);
    }
    assert_int_equal(snug_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(snug_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(snug_f32_to_f16(1e-30f), 0);
    assert_true(isnan(snug_f16_to_f32(snug_f32_to_f16(NAN))));
}

TEST(test_dtype_table) {
    assert_int_equal(snug_dtype_size(SNUG_F32), 4);
    assert_int_equal(snug_dtype_size(SNUG_BF16), 2);
    assert_int_equal(snug_dtype_size(SNUG_F16), 2);
    assert_int_equal(snug_dtype_size(SNUG_I32), 4);
    assert_int_equal(snug_dtype_size(SNUG_U8), 1);
    for (enum snug_dtype dtype = 0; dtype < SNUG_DTYPE_COUNT; dtype++) assert_non_null(snug_dtype_name(dtype));
}

/* ---- context ----------------------------------------------------------------------------------------------------- */

static int set_up(void **state) {
    snug_context *ctx;
    snug_status status = snug_context_create(&ctx);
    *state = ctx;
    return status;
}

static int tear_down(void **state) {
    snug_context_destroy(*state);
    return 0;
}

TEST_IN(test_failures, void *fixture, set_up, tear_down) {
    snug_context *ctx = fixture;
    assert_string_equal(snug_error_message(ctx), "");
    assert_int_equal(snug_fail(ctx, SNUG_E_INPUT, "line %d", 7), SNUG_E_INPUT);
    assert_int_equal(snug_fail(ctx, SNUG_E_IO, "a consequence"), SNUG_E_IO);
    assert_string_equal(snug_error_message(ctx), "line 7"); /* the first error is kept */
    snug_clear_error(ctx);
    assert_string_equal(snug_error_message(ctx), "");
    char name[4000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    snug_fail(ctx, SNUG_E_INPUT, "%s", name); /* truncated, not overrun */
    assert_in_range(strlen(snug_error_message(ctx)), 1000, sizeof name - 1);
    snug_context_destroy(NULL);
    snug_clear_error(ctx);
    snug_fail(ctx, SNUG_E_INPUT, "\xC2\x85\xC2\xA9\xC2"); /* a control character, ©, and half a character */
    assert_string_equal(snug_error_message(ctx), "\\u0085\xC2\xA9\\xc2");
    snug_add_to_error(ctx, SNUG_E_INPUT, " (in %s)", "line\n3");
    assert_string_equal(snug_error_message(ctx), "\\u0085\xC2\xA9\\xc2 (in line\\x0a3)");
    /* A long message is cut between characters and between escapes. */
    for (size_t length = 2000; length < 2100; length++) {
        static const char *const pieces[] = {"\xF0\x9F\x8C\x8D", "\033", "\xE2\x80\xA8", "\xFF"};
        for (int i = 0; i < 4; i++) {
            memset(name, 'x', sizeof name);
            name[length] = '\0';
            for (int k = 0; k < 20; k++) strcat(name, pieces[i]);
            snug_clear_error(ctx);
            snug_fail(ctx, SNUG_E_INPUT, "%s", name);
            const char *message = snug_error_message(ctx), *tail = message + strspn(message, "x");
            assert_in_range(strlen(message), 2036, 2047);
            const size_t unit = i == 0 ? 4 : i == 2 ? 6 : 4;
            assert_int_equal(strlen(tail) % unit, 0);
        }
    }
}

/* NOLINTBEGIN(misc-misleading-bidirectional): such characters are what is tested, written as escapes */
/* Characters that a terminal interprets are escaped, all others are kept; a text is cut between characters. */
TEST(test_escape) {
    static const struct {
        const char *text, *escaped;
    } cases[] = {
        {"", ""},
        {"plain, caf\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x8C\x8D \\x1b",
         "plain, caf\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x8C\x8D \\x1b"},
        {"\033[2J\a\t\r\n\x1f\x7f ~", "\\x1b[2J\\x07\\x09\\x0d\\x0a\\x1f\\u007f ~"},
        {"\xC2\x80\xC2\x9B\xC2\x9F\xC2\xA0", "\\u0080\\u009b\\u009f\xC2\xA0"},
        {"\xD8\x9B\xD8\x9C\xD8\x9D", "\xD8\x9B\\u061c\xD8\x9D"},
        {"\xE2\x80\x8D\xE2\x80\x8E\xE2\x80\x8F\xE2\x80\x90", "\xE2\x80\x8D\\u200e\\u200f\xE2\x80\x90"},
        {"\xE2\x80\xA7\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA\xE2\x80\xAE\xE2\x80\xAF",
         "\xE2\x80\xA7\\u2028\\u2029\\u202a\\u202e\xE2\x80\xAF"},
        {"\xE2\x81\xA5\xE2\x81\xA6\xE2\x81\xA9\xE2\x81\xAA", "\xE2\x81\xA5\\u2066\\u2069\xE2\x81\xAA"},
        {"\xFF\x80 \xC0\xAF \xED\xA0\x80 \xF4\x90\x80\x80",
         "\\xff\\x80 \\xc0\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80"},
        {"\xE2\x80", "\\xe2\\x80"},
        {"\xF0\x9F\x8C", "\\xf0\\x9f\\x8c"},
    };
    char out[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].text;
        const size_t length = strlen(text);
        assert_int_equal(snug_escape(out, sizeof out, text, length), length);
        assert_string_equal(out, cases[i].escaped);
        for (size_t size = 16; size < 24; size++) { /* the same piece by piece */
            char joined[256] = "";
            for (size_t at = 0, taken; at < length; at += taken) {
                taken = snug_escape(out, size, text + at, length - at);
                assert_true(taken > 0 && strlen(out) < size);
                strcat(joined, out);
            }
            assert_string_equal(joined, cases[i].escaped);
        }
    }
    assert_int_equal(snug_escape(out, sizeof out, "a\0b", 3), 3);
    assert_string_equal(out, "a\\x00b");
    assert_int_equal(snug_escape(out, 16, "0123456789abcde\033", 16), 15);
    assert_string_equal(out, "0123456789abcde");
}

/* NOLINTEND(misc-misleading-bidirectional) */

static void *fail_from_thread(void *ctx) {
    for (int i = 0; i < 1000; i++) {
        snug_fail(ctx, SNUG_E_INPUT, "%d %d", i, i);
        snug_log(ctx, SNUG_LOG_WARNING, "%d", i);
    }
    return NULL;
}

static void count_messages(void *user, snug_log_level level, const char *message) {
    assert_int_equal(level, SNUG_LOG_WARNING);
    assert_non_null(message);
    ++*(int *)user; /* the context calls from one thread at a time */
}

/* The error of any thread may be the first, but its message is whole: it has i twice. */
TEST_IN(test_threads, void *fixture, set_up, tear_down) {
    snug_context *ctx = fixture;
    int messages = 0, a, b;
    snug_context_set_log(ctx, count_messages, &messages, SNUG_LOG_INFO);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, fail_from_thread, ctx), 0);
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(sscanf(snug_error_message(ctx), "%d %d", &a, &b), 2);
    assert_int_equal(a, b);
    assert_int_equal(a, 0);
    assert_int_equal(messages, 8000);
    snug_log(ctx, SNUG_LOG_DEBUG, "below the level");
    assert_int_equal(messages, 8000);
    snug_context_set_log(ctx, NULL, NULL, SNUG_LOG_DEBUG);
    snug_log(ctx, SNUG_LOG_WARNING, "to nobody");
    assert_int_equal(messages, 8000);
}

static void keep_message(void *user, snug_log_level level, const char *message) {
    (void)level;
    snprintf(user, 64, "%s", message);
}

/* Of the ranks other than 0: warnings with their number, and nothing below. */
TEST_IN(test_messages_of_ranks, void *fixture, set_up, tear_down) {
    snug_context *ctx = fixture;
    char kept[64] = "";
    snug_context_set_log(ctx, keep_message, kept, SNUG_LOG_DEBUG);
    snug_context_set_rank(ctx, 3);
    snug_log(ctx, SNUG_LOG_INFO, "rank 0 says it");
    assert_string_equal(kept, "");
    snug_log(ctx, SNUG_LOG_WARNING, "a file is %s", "damaged");
    assert_string_equal(kept, "rank 3: a file is damaged");
    snug_context_set_rank(ctx, 0);
    snug_log(ctx, SNUG_LOG_INFO, "all");
    assert_string_equal(kept, "all");
    snug_context_set_log(ctx, NULL, NULL, SNUG_LOG_DEBUG);
}

TEST_IN(test_alloc, void *fixture, set_up, tear_down) {
    snug_context *ctx = fixture;
    void *memory;
    assert_int_equal(snug_alloc(ctx, 100, 8, &memory), SNUG_OK);
    for (int i = 0; i < 800; i++) assert_int_equal(((char *)memory)[i], 0);
    free(memory);
    memory = &memory;
    assert_int_equal(snug_alloc(ctx, 0, 8, &memory), SNUG_OK);
    assert_null(memory);
    memory = &memory;
    assert_int_equal(snug_alloc(ctx, SIZE_MAX / 2, 3, &memory), SNUG_E_MEMORY); /* the product overflows */
    assert_null(memory);
    assert_non_null(strstr(snug_error_message(ctx), "out of memory"));
}

TEST_IN(test_grow, void *fixture, set_up, tear_down) {
    snug_context *ctx = fixture;
    int32_t *numbers = NULL;
    size_t capacity = 0;
    for (int32_t i = 0; i < 10000; i++) {
        assert_int_equal(snug_grow(ctx, (void **)&numbers, &capacity, (size_t)i + 1, sizeof *numbers), SNUG_OK);
        assert_true(capacity > (size_t)i);
        numbers[i] = i;
    }
    for (int32_t i = 0; i < 10000; i++) assert_int_equal(numbers[i], i);
    size_t before = capacity;
    int32_t *same = numbers;
    assert_int_equal(snug_grow(ctx, (void **)&numbers, &capacity, SIZE_MAX / 4 + 1, sizeof *numbers), SNUG_E_MEMORY);
    assert_ptr_equal(numbers, same); /* the old content is kept */
    assert_int_equal(capacity, before);
    assert_int_equal(numbers[9999], 9999);
    free(numbers);
}

TEST_IN(test_strings, void *fixture, set_up, tear_down) {
    snug_context *ctx = fixture;
    char *text;
    assert_int_equal(snug_strdup(ctx, "", &text), SNUG_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(snug_strdup(ctx, "bert", &text), SNUG_OK);
    assert_string_equal(text, "bert");
    free(text);
    assert_int_equal(snug_format(ctx, &text, "%s.%d", "layer", 11), SNUG_OK);
    assert_string_equal(text, "layer.11");
    free(text);
}

TEST(test_memory_class_names) {
    assert_string_equal(snug_memory_class_name((snug_memory_class)0), "weights");
    assert_string_equal(snug_memory_class_name(SNUG_MEMORY_CLASS_COUNT - 1), "host");
    assert_string_equal(snug_memory_class_name(SNUG_MEMORY_CLASS_COUNT), "?");
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

TEST_IN(test_host_blocks, void *fixture, set_up, tear_down) {
    snug_context *ctx = fixture;
    struct snug_block block;
    char text[8] = "abcdefg";
    assert_int_equal(snug_block_host(ctx, 0, &block), SNUG_OK); /* a block of 0 bytes is a valid block */
    assert_true(block.bytes >= 1 && block.base[0] == 0);
    snug_block_release(&block);
    assert_null(block.base);
    snug_block_release(&block);
    assert_int_equal(snug_block_host(ctx, 8, &block), SNUG_OK);
    assert_int_equal(snug_block_copy(ctx, &block, block.base, text, 8), SNUG_OK);
    assert_int_equal(snug_block_copy(ctx, &block, block.base, text, 0), SNUG_OK);
    assert_string_equal((const char *)block.base, "abcdefg");
    snug_block_release(&block);
}

/* The length without a last character that is cut off. */
TEST(test_utf8_cut) {
    assert_int_equal(snug_utf8_cut("", 0), 0);
    assert_int_equal(snug_utf8_cut("\x80", 1), 1); /* belongs to no character */
    assert_int_equal(snug_utf8_cut("a\xC3", 2), 1);
    assert_int_equal(snug_utf8_cut("a\xC3\xA9", 3), 3);
}

TEST_MAIN(NULL, NULL)
