/* SPDX-License-Identifier: Apache-2.0 */
/* Whole-word masking: where words begin, which are chosen, and that the choice follows a row wherever it is. */
#include <math.h>

#include "data/masking.h"
#include "io/json.h"
#include "loader_fixture.h"
#include "tokenizer/tokenizer_parts.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static struct snug_tokenizer *load_from(struct fixture *f, const char *folder) {
    struct snug_tokenizer *tokenizer;
    if (snug_tokenizer_load(f->ctx, folder, snug_family_tokenizer_class, &tokenizer) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
    return tokenizer;
}

static struct snug_tokenizer *load_golden(struct fixture *f, const char *name) {
    char folder[512];
    snprintf(folder, sizeof folder, SNUG_SOURCE_DIR "/tests/golden/%s", name);
    return load_from(f, folder);
}

/* ---- where words begin ------------------------------------------------------------------------------------------- */

static bool is_special(const struct snug_tokenizer *tokenizer, int32_t id) {
    const struct snug_special_ids special = snug_tokenizer_special(tokenizer);
    return id == special.cls || id == special.sep || id == special.pad;
}

/* Whether token i of a row is the first one of a word. */
static bool begins(const struct snug_word_mark *mark, const struct snug_tokenizer *tokenizer, const int32_t *ids,
                   int64_t i) {
    if (is_special(tokenizer, ids[i])) return false;
    return i == 0 || is_special(tokenizer, ids[i - 1]) || snug_word_begins(mark, tokenizer, ids[i]);
}

FIXTURE_TEST(test_words_of_transformers) {
    json_t *golden, *rows, *row;
    const char *name;
    size_t number;
    assert_int_equal(snug_json_read(f->ctx, NULL, SNUG_SOURCE_DIR "/tests/golden/whole_words.json", &golden), SNUG_OK);
    assert_int_equal(json_object_size(json_object_get(golden, "folders")), 6);
    json_object_foreach(json_object_get(golden, "folders"), name, rows) {
        char folder[128];
        struct snug_word_mark mark;
        snprintf(folder, sizeof folder, "tokenizer_parts/%s", name);
        struct snug_tokenizer *tokenizer = load_golden(f, folder);
        assert_int_equal(snug_word_mark_find(f->ctx, tokenizer, &mark), SNUG_OK);
        json_array_foreach(rows, number, row) {
            const json_t *list = json_array_get(row, 0), *right = json_array_get(row, 1);
            int32_t ids[128];
            assert_in_range(json_array_size(list), 1, 128);
            for (size_t i = 0; i < json_array_size(list); i++) {
                ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
                if (begins(&mark, tokenizer, ids, (int64_t)i) != (json_integer_value(json_array_get(right, i)) != 0))
                    fail_msg("%s: text %zu, token %zu, \"%s\"", name, number, i,
                             snug_tokenizer_token(tokenizer, ids[i]));
            }
        }
        snug_tokenizer_free(tokenizer);
    }
    json_decref(golden);
}

#define JSON(parts)                                                                                                    \
    "{" parts ",\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"
#define PIECE(prefix)                                                                                                  \
    "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\","        \
    "\"continuing_subword_prefix\":\"" prefix "\",\"vocab\":{\"a\":0,\"@@b\":1}}}"

/* Tokenizers whose tokens show where words begin, and others. */
FIXTURE_TEST(test_marks) {
    static const struct {
        const char *json, *mark;
        bool continues, bytes;
    } cases[] = {
        {PIECE("@@"), "@@", true, false},
        {PIECE(""), NULL, true, false},
        {JSON("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), "_", false, false},
        {JSON("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"), "\u0120", false, true},
        {JSON("\"pre_tokenizer\":{\"type\":\"Whitespace\"}"), NULL, false, false},
        {JSON("\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"normalizer\":{\"type\":\"Lowercase\"}"), NULL, false,
         false},
        {JSON("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"^\"}"), "^", false,
         false},
        {JSON("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\"}"), NULL, false,
         false},
        {JSON("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"^\"}"), NULL, false,
         false},
    };
    unlink(path_of(f, "vocab.txt"));
    unlink(path_of(f, "tokenizer_config.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_word_mark mark;
        write_file(f, "tokenizer.json", cases[i].json);
        struct snug_tokenizer *tokenizer = load_from(f, f->folder);
        const snug_status status = snug_word_mark_find(f->ctx, tokenizer, &mark);
        if (status != (cases[i].mark ? SNUG_OK : SNUG_E_UNSUPPORTED)) fail_msg("case %zu: %d", i, status);
        if (cases[i].mark) {
            assert_string_equal(mark.mark, cases[i].mark);
            assert_int_equal(mark.continues, cases[i].continues);
            assert_int_equal(mark.bytes, cases[i].bytes);
        } else {
            assert_non_null(strstr(snug_error_message(f->ctx), "--whole_word_mask needs tokens that show where"));
            struct snug_loader_options options = {.tokenizer = tokenizer, .whole_words = true};
            struct snug_masking masking = {0};
            assert_int_equal(snug_masking_init(f->ctx, &options, 4, &masking), SNUG_E_UNSUPPORTED);
            snug_masking_free(&masking);
        }
        snug_clear_error(f->ctx);
        snug_tokenizer_free(tokenizer);
    }
    struct snug_word_mark none;
    assert_int_equal(snug_word_mark_find(f->ctx, NULL, &none), SNUG_OK);
    assert_true(snug_word_begins(&none, NULL, 3)); /* dummy data */
    /* A new line is white space, in byte-level BPE too. */
    struct snug_tokenizer *tokenizer = load_golden(f, "tokenizer_parts/roberta");
    struct snug_ids ids = {0};
    assert_int_equal(snug_word_mark_find(f->ctx, tokenizer, &none), SNUG_OK);
    assert_int_equal(snug_tokenizer_encode(f->ctx, tokenizer, "a\nb\tc.", 6, &ids), SNUG_OK);
    assert_int_equal(ids.count, 6);
    for (size_t i = 0; i < 6; i++) assert_int_equal(snug_word_begins(&none, tokenizer, ids.ids[i]), i == 1 || i == 3);
    snug_tokenizer_free(tokenizer);
    /* So is that of an added token. */
    write_file(f, "tokenizer.json",
               JSON("\"added_tokens\":[{\"id\":2,\"content\":\" <x>\"},{\"id\":3,\"content\":\"<y>\"}],"
                    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"));
    tokenizer = load_from(f, f->folder);
    assert_int_equal(snug_word_mark_find(f->ctx, tokenizer, &none), SNUG_OK);
    assert_true(snug_word_begins(&none, tokenizer, 2));
    assert_false(snug_word_begins(&none, tokenizer, 3));
    free(ids.ids);
    snug_tokenizer_free(tokenizer);
}

/* ---- which words are chosen -------------------------------------------------------------------------------------- */

enum { LONGEST = 300 };

/* run_mlm_wwm.py's rule, given the words' random numbers: in their order, a word is chosen if it still fits. */
static int64_t choose_slowly(const struct snug_word_mark *mark, const struct snug_loader_options *options, int64_t row,
                             const int32_t *ids, int64_t count, bool *chosen) {
    int64_t taken = 0, most = lrint((double)count * options->mlm_probability), tried[LONGEST], words = 0;
    if (most < 1) most = 1;
    memset(chosen, 0, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        if (begins(mark, options->tokenizer, ids, i)) tried[words++] = i;
    for (int64_t left = words; left > 0 && taken < most; left--) {
        int64_t best = -1;
        for (int64_t w = 0; w < words; w++)
            if (tried[w] >= 0 && (best < 0 || snug_masking_draw(options, 3, row, tried[w]).word[0] <
                                                  snug_masking_draw(options, 3, row, tried[best]).word[0]))
                best = w;
        if (best < 0) break;
        int64_t first = tried[best], end = first + 1;
        tried[best] = -1;
        while (end < count && !begins(mark, options->tokenizer, ids, end) && !is_special(options->tokenizer, ids[end]))
            end++;
        if (taken + end - first > most) continue;
        for (int64_t i = first; i < end; i++) chosen[i] = true;
        taken += end - first;
    }
    return taken;
}

/* Rows of random tokens, with special ones between them and pieces at the beginning. */
FIXTURE_TEST(test_choice) {
    static const struct {
        const char *folder;
        double probability;
    } cases[] = {{"tokenizer/uncased", 0.15}, {"tokenizer/uncased", 0.5},        {"tokenizer/uncased", 1},
                 {"tokenizer/uncased", 1e-9}, {"tokenizer_parts/roberta", 0.15}, {"tokenizer_parts/xlm_roberta", 0.3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct snug_tokenizer *tokenizer = load_golden(f, cases[k].folder);
        const struct snug_loader_options options = {.task = SNUG_TASK_MLM,
                                                    .seed = 7 + k,
                                                    .mlm_probability = cases[k].probability,
                                                    .whole_words = true,
                                                    .tokenizer = tokenizer,
                                                    .vocab_size = snug_tokenizer_vocab_size(tokenizer)};
        struct snug_masking masking = {0};
        int64_t all = 0, tokens = 0;
        assert_int_equal(snug_masking_init(f->ctx, &options, LONGEST, &masking), SNUG_OK);
        for (int64_t row = 0; row < 300; row++) {
            int32_t ids[LONGEST];
            bool chosen[LONGEST];
            const int64_t count = row < LONGEST ? row : LONGEST;
            for (int64_t i = 0; i < count; i++) {
                const uint32_t random = snug_philox((uint32_t)i, (uint32_t)row, 0, 0, 1, 2).word[0];
                ids[i] = random % 11 ? (int32_t)(random / 11 % (uint64_t)options.vocab_size)
                                     : snug_tokenizer_special(tokenizer).sep;
            }
            const int64_t expected = choose_slowly(&masking.mark, &options, row, ids, count, chosen);
            assert_int_equal(snug_masking_choose(&masking, &options, 3, row, ids, count), expected);
            assert_memory_equal(masking.chosen, chosen, (size_t)count);
            all += expected;
            tokens += count;
        }
        /* Nearly as many as asked for: what is missing does not fit. Special tokens are counted, not chosen. */
        const double share = (double)all / (double)tokens;
        if (cases[k].probability < 0.9 && cases[k].probability > 0.1)
            assert_true(share > 0.9 * cases[k].probability && share <= 1.02 * cases[k].probability);
        snug_masking_free(&masking);
        snug_tokenizer_free(tokenizer);
    }
}

/* ---- in batches ----------------------------------------------------------------------------------------------------
 */

/* What is masked of each row: a bit for each token. */
static void read_masks(struct fixture *f, const struct snug_dataset *dataset, struct snug_loader_options options,
                       uint32_t masks[ROWS], int64_t counts[4]) {
    int64_t place = 0;
    struct run run = start(f, dataset, options, 1);
    memset(masks, 0, ROWS * sizeof *masks);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    for (const struct snug_batch *batch; (batch = next(f, &run)); place += batch->sequences) {
        assert_int_equal(batch->items, options.predict ? 0 : batch->rows);
        for (int64_t i = 0; i < batch->rows; i++) {
            const int32_t token = batch->loss_positions[i];
            const int64_t sequence = snug_batch_sequence(batch, token);
            masks[place + sequence] |= UINT32_C(1) << (token - batch->offsets[sequence]);
            counts[0]++;
            counts[1] += batch->ids[token] == MASK;
            counts[2] += batch->ids[token] == batch->labels[i];
            assert_true(batch->labels[i] >= W0);
        }
    }
    assert_int_equal(place, ROWS);
    stop(&run);
}

/* The masks of a row do not depend on its batch; 80 % of the chosen tokens become [MASK], 10 % stay; predictions are
   not masked. */
FIXTURE_TEST(test_batches) {
    struct snug_dataset *dataset = open_rows(f, true);
    struct snug_loader_options options = loader_options(f, 32, 1);
    static uint32_t first[ROWS], other[ROWS];
    int64_t counts[4] = {0}, ignored[4], tokens = 0;
    options.task = SNUG_TASK_MLM;
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    options.whole_words = true;
    read_masks(f, dataset, options, first, counts);
    for (int64_t row = 0; row < ROWS; row++) tokens += 4 + row * 8 % 21 < 20 ? 4 + row * 8 % 21 : 20;
    assert_in_range(counts[0], tokens * 13 / 100, tokens * 17 / 100);
    assert_true(fabs((double)counts[1] / (double)counts[0] - 0.8) < 0.03);
    assert_true(fabs((double)counts[2] / (double)counts[0] - 0.1) < 0.03);
    static const int64_t shapes[][2] = {{1, 1}, {8, 4}, {1, 32}, {5, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        options.batch_size = shapes[i][0];
        options.accumulation = shapes[i][1];
        options.workers = i % 2 ? 2 : 0;
        read_masks(f, dataset, options, other, ignored);
        assert_memory_equal(other, first, sizeof first);
    }
    options.seed++;
    read_masks(f, dataset, options, other, ignored);
    assert_memory_not_equal(other, first, sizeof first);
    static const uint32_t none[ROWS] = {0};
    options.predict = true;
    read_masks(f, dataset, options, other, ignored);
    assert_memory_equal(other, none, sizeof none);
    snug_dataset_close(dataset);
}

TEST_MAIN(NULL, NULL)
