/* SPDX-License-Identifier: Apache-2.0 */
/* The content of batches: masked tokens, targets, token types and positions. */
#include <math.h>

#include "data/sampler.h"
#include "data/task.h"
#include "loader_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* ---- masked LM ------------------------------------------------------------------------------------------------- */

/* count is within 5 sigma of a binomial's mean. */
static void assert_binomial(int64_t count, int64_t draws, double p) {
    double mean = (double)draws * p;
    if (fabs((double)count - mean) > 5 * sqrt(mean * (1 - p)))
        fail_msg("%lld of %lld, where %g are expected", (long long)count, (long long)draws, mean);
}

FIXTURE_TEST(test_masks) {
    struct snug_dataset *dataset = open_rows(f, true);
    struct snug_loader_options options = loader_options(f, 16, 2);
    int64_t words = 0, chosen = 0, masks = 0, kept = 0, random = 0, same_as_before = 0;
    static uint8_t before[ROWS][32];
    options.task = SNUG_TASK_MLM;
    struct run run = start(f, dataset, options, 20);
    assert_int_equal(run.limits.rows, run.limits.tokens);
    memset(before, 0, sizeof before);
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        assert_int_equal(snug_loader_begin_epoch(run.loader, epoch, 0), SNUG_OK);
        int64_t place = 0;
        for (const struct snug_batch *batch; (batch = next(f, &run)); place += batch->sequences) {
            struct snug_row_buffer buffer = {0};
            struct snug_dataset_row row;
            int64_t head = 0;
            assert_consistent(batch);
            assert_int_equal(batch->items, batch->rows);
            for (int64_t s = 0; s < batch->sequences; s++) {
                const int64_t in_step = batch->sample[batch->offsets[s]];
                int64_t number = snug_permutation(7, epoch, ROWS, place / 32 * 32 + in_step);
                assert_int_equal(snug_dataset_read(f->ctx, dataset, number, &buffer, &row), SNUG_OK);
                words += row.count - 2;
                for (int64_t i = 0; i < row.count; i++) {
                    int64_t token = batch->offsets[s] + i;
                    int32_t now = batch->ids[token];
                    bool here = head < batch->rows && batch->loss_positions[head] == token;
                    same_as_before += here && before[number][i];
                    before[number][i] = here;
                    if (!here) {
                        assert_int_equal(now, row.ids[i]);
                        continue;
                    }
                    assert_true(row.ids[i] >= W0);
                    assert_int_equal(batch->labels[head++], row.ids[i]);
                    chosen++;
                    masks += now == MASK;
                    kept += now == row.ids[i];
                    random += now != MASK && now != row.ids[i];
                    assert_in_range(now, 0, VOCAB - 1);
                }
            }
            assert_int_equal(head, batch->rows);
            free(buffer.data);
        }
    }
    assert_binomial(chosen, words, 0.15);
    assert_binomial(masks, chosen, 0.8 + 0.1 / VOCAB); /* a random token may be [MASK] or the token itself */
    assert_binomial(kept, chosen, 0.1 + 0.1 / VOCAB);
    assert_binomial(random, chosen, 0.1 * (1 - 2.0 / VOCAB));
    assert_binomial(same_as_before, words * 19 / 20, 0.15 * 0.15); /* each epoch draws new masks */
    stop(&run);

    options.sampling = SNUG_SAMPLING_SEQUENTIAL; /* evaluation: always epoch 0, so the same masks */
    struct run a = start(f, dataset, options, 1), b = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(a.loader, 0, 0), SNUG_OK);
    assert_int_equal(snug_loader_begin_epoch(b.loader, 0, 0), SNUG_OK);
    int64_t place = 0;
    for (const struct snug_batch *batch; (batch = next(f, &a)); place += batch->sequences) {
        assert_int_equal(batch->first_row, place);
        assert_same(batch, next(f, &b));
    }
    stop(&a);
    stop(&b);
    snug_dataset_close(dataset);
}

/* Prediction: the [MASK] tokens of the text are the loss positions, and nothing else is masked. */
FIXTURE_TEST(test_predict_masks) {
    struct snug_dataset_options data = options_for(write_file(f, "fill.txt", "w1 [MASK] w2 [MASK]\nw3\n[MASK]\n"));
    data.task = SNUG_TASK_MLM;
    data.line_by_line = true;
    struct snug_dataset *dataset = open_with(f, data);
    struct snug_loader_options options = loader_options(f, 2, 2);
    options.task = SNUG_TASK_MLM;
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    options.predict = true;
    options.mlm_probability = 0;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    static const int32_t ids[] = {CLS, W0 + 1, MASK, W0 + 2, MASK, SEP, CLS, W0 + 3, SEP}, heads[] = {2, 4};
    const struct snug_batch *batch = next(f, &run);
    assert_int_equal(batch->tokens, 9);
    assert_memory_equal(batch->ids, ids, sizeof ids);
    assert_int_equal(batch->rows, 2);
    assert_memory_equal(batch->loss_positions, heads, sizeof heads);
    assert_int_equal(batch->labels[1], SNUG_IGNORE_LABEL);
    assert_int_equal(batch->items_in_step, 0);
    batch = next(f, &run);
    assert_int_equal(batch->rows, 1);
    assert_int_equal(batch->loss_positions[0], 1);
    stop(&run);
    snug_dataset_close(dataset);
}

/* ---- causal LM -------------------------------------------------------------------------------------------------- */

/* Each token but a row's last has the next one as its label; nothing is masked. A row of one token has no loss. */
FIXTURE_TEST(test_next_tokens) {
    struct snug_dataset_options data = options_for(write_file(f, "next.txt", "w1 w2\nw3\nw4 w5 w6\n"));
    data.task = SNUG_TASK_CLM;
    data.line_by_line = true;
    struct snug_dataset *dataset = open_with(f, data);
    struct snug_loader_options options = loader_options(f, 2, 2);
    options.task = SNUG_TASK_CLM;
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(run.limits.rows, run.limits.tokens);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    static const int32_t ids[] = {CLS, W0 + 1, W0 + 2, SEP, CLS, W0 + 3, SEP}, places[] = {0, 1, 2, 4, 5},
                         labels[] = {W0 + 1, W0 + 2, SEP, W0 + 3, SEP};
    const struct snug_batch *batch = next(f, &run);
    assert_memory_equal(batch->ids, ids, sizeof ids);
    assert_int_equal(batch->rows, 5);
    assert_memory_equal(batch->loss_positions, places, sizeof places);
    assert_memory_equal(batch->labels, labels, sizeof labels);
    assert_true(batch->items == 5 && batch->items_in_step == 9 && batch->weight_in_step == 9);
    assert_int_equal(next(f, &run)->rows, 4);
    stop(&run);
    snug_dataset_close(dataset);

    struct snug_dataset_options single = {
        .path = "dummy:6x1", .task = SNUG_TASK_CLM, .max_samples = -1, .vocab_size = 9};
    dataset = open_with(f, single);
    options.vocab_size = 9;
    options.tokenizer = NULL;
    run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    batch = next(f, &run);
    assert_true(batch->tokens == 2 && batch->rows == 0 && batch->items_in_step == 0);
    stop(&run);
    snug_dataset_close(dataset);
}

/* Of a prompt and its completion only the latter's tokens have a loss, also in counts and means. */
FIXTURE_TEST(test_completions) {
    struct snug_dataset_options data =
        options_for(write_file(f, "pairs.csv", "prompt,completion\nw1 w2, w3\nw4, w5 w6\nw7,\n"));
    data.task = SNUG_TASK_CLM;
    data.completion_only = true;
    struct snug_dataset *dataset = open_with(f, data);
    struct snug_loader_options options = loader_options(f, 1, 2);
    options.task = SNUG_TASK_CLM;
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    static const int32_t labels[][3] = {{W0 + 3, SEP}, {W0 + 5, W0 + 6, SEP}, {SEP}},
                         places[][3] = {{2, 3}, {1, 2, 3}, {1}};
    static const int64_t counts[] = {2, 3, 1}, items[] = {5, 5, 1}; /* of the step */
    assert_float_equal(snug_task_info(SNUG_TASK_CLM)->positions(&options, dataset, 3, 13), 6, 1e-9);
    for (int i = 0; i < 3; i++) {
        const struct snug_batch *batch = next(f, &run);
        assert_int_equal(batch->rows, counts[i]);
        assert_memory_equal(batch->labels, labels[i], (size_t)counts[i] * sizeof **labels);
        assert_memory_equal(batch->loss_positions, places[i], (size_t)counts[i] * sizeof **places);
        assert_int_equal(batch->items_in_step, items[i]);
    }
    stop(&run);
    snug_dataset_close(dataset);
}

/* ---- other heads ----------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_targets) {
    struct snug_loader_options options = loader_options(f, 4, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    struct snug_dataset_options lists = options_for(write_file(f, "m.csv", "text,label\nw1,c|a\nw2,\nw3,b\n"));
    lists.label_separator = "|";
    struct snug_dataset *dataset = open_with(f, lists);
    options.problem = SNUG_PROBLEM_MULTI_LABEL;
    struct run run = start(f, dataset, options, 1); /* unbound labels are ignored */
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    const struct snug_batch *batch = next(f, &run);
    assert_int_equal(batch->items_in_step, 0);
    static const float none[9] = {0};
    assert_memory_equal(batch->targets, none, sizeof none);
    stop(&run);
    bind_own_labels(f, dataset);
    run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    batch = next(f, &run);
    assert_int_equal(batch->items_in_step, 9);
    static const float expected[9] = {1, 0, 1, 0, 0, 0, 0, 1, 0};
    assert_memory_equal(batch->targets, expected, sizeof expected);
    stop(&run);
    snug_dataset_close(dataset);

    struct snug_dataset_options some = options_for(write_file(
        f, "r.jsonl", "{\"text\":\"w1\",\"label\":0.5}\n{\"text\":\"w2\"}\n{\"text\":\"w3\",\"label\":-2}\n"));
    some.need_labels = false;
    dataset = open_with(f, some);
    options.problem = SNUG_PROBLEM_REGRESSION;
    options.labels = 1;
    run = start(f, dataset, options, 1); /* unbound labels are ignored */
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    batch = next(f, &run);
    assert_int_equal(batch->items_in_step, 0);
    assert_int_equal(batch->labels[0], SNUG_IGNORE_LABEL);
    stop(&run);
    bind_own_labels(f, dataset);
    run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    batch = next(f, &run);
    assert_int_equal(batch->items_in_step, 2);
    assert_float_equal(batch->targets[0], 0.5, 0);
    assert_float_equal(batch->targets[2], -2, 0);
    assert_int_equal(batch->labels[1], SNUG_IGNORE_LABEL);
    stop(&run);
    snug_dataset_close(dataset);
}

/* Numbers that exceed the table of distinct numbers are stored with their rows, and give the same targets. */
FIXTURE_TEST(test_many_numbers) {
    enum { ROWS_HERE = SNUG_LABELS_NUMBERED + 50 };
    struct snug_labels labels;
    FILE *file = fopen(path_of(f, "n.csv"), "w");
    assert_non_null(file);
    fprintf(file, "text,label\n");
    for (int i = 0; i < ROWS_HERE; i++) fprintf(file, i == ROWS_HERE - 1 ? "w1 w2,7\n" : "w1,%d.25\n", i);
    fclose(file);
    char *text;
    size_t size;
    assert_int_equal(snug_file_read(f->ctx, NULL, path_of(f, "n.csv"), &text, &size), SNUG_OK);
    file = fopen(path_of(f, "o.csv"), "w"); /* the same rows, and a number that overflows a float */
    assert_non_null(file);
    fprintf(file, "%sw1,1e99\n", text);
    fclose(file);
    free(text);
    const struct snug_labels one = {.problem = SNUG_PROBLEM_REGRESSION, .count = 1};
    struct snug_dataset *large = open_with(f, options_for(path_of(f, "o.csv")));
    assert_failed(f, snug_dataset_bind_labels(f->ctx, large, &one), SNUG_E_INPUT, "the label 1e99 is too large");
    snug_dataset_close(large);
    struct snug_dataset *dataset = open_with(f, options_for(path_of(f, "n.csv")));
    assert_int_equal(snug_dataset_raw_labels(dataset), SNUG_LABELS_NUMBERED);
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &labels), SNUG_OK);
    assert_int_equal(labels.problem, SNUG_PROBLEM_REGRESSION);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    struct snug_loader_options options = loader_options(f, 64, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    options.problem = SNUG_PROBLEM_REGRESSION;
    options.labels = 1;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    int row = 0;
    for (const struct snug_batch *batch; (batch = next(f, &run));)
        for (int64_t s = 0; s < batch->rows; s++, row++)
            assert_float_equal(batch->targets[s], row == ROWS_HERE - 1 ? 7 : row + 0.25, 0);
    assert_int_equal(row, ROWS_HERE);
    stop(&run);
    char *names[] = {"no", "yes"};
    labels = (struct snug_labels){.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = 2, .names = names};
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_E_INPUT, "its labels are not classes");
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_types_and_positions_follow_the_model) {
    struct snug_dataset *dataset =
        open_with(f, options_for(write_file(f, "p.csv", "sentence1,sentence2,label\nw1,w2,0\nw3 w4,w5,1\n")));
    struct snug_loader_options options = loader_options(f, 2, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    static const int32_t types[] = {0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1}, positions[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5};
    const struct snug_batch *batch = next(f, &run);
    assert_int_equal(batch->tokens, 11);
    assert_memory_equal(batch->types, types, sizeof types);
    assert_memory_equal(batch->positions, positions, sizeof positions);
    stop(&run);
    options.one_type = true;
    options.first_position = 2;
    run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    batch = next(f, &run);
    for (int64_t i = 0; i < batch->tokens; i++) {
        assert_int_equal(batch->types[i], 0);
        assert_int_equal(batch->positions[i], positions[i]);
        assert_int_equal(batch->position_ids[i], 2 + positions[i]);
    }
    stop(&run);
    snug_dataset_close(dataset);
}

/* Tokens of the id before the first position are not counted: as in transformers' create_position_ids_from_input_ids.
   The places, which are dropout's key, are counted without regard to ids. */
FIXTURE_TEST(test_padding_tokens_are_not_counted) {
    static const struct {
        const char *texts;
        int32_t first, count, ids[8];
    } cases[] = {{"w1 [PAD] w2", 1, 5, {1, 2, 0, 3, 4}},
                 {"[PAD] w1 [PAD] [PAD]", 1, 6, {1, 0, 2, 0, 0, 3}},
                 {"w1 w2", CLS + 1, 4, {CLS, CLS + 1, CLS + 2, CLS + 3}}, /* the padding token is [CLS] */
                 {"w5 w4 w5", W0 + 6, 5, {W0 + 6, W0 + 5, W0 + 7, W0 + 5, W0 + 8}},
                 {"w1 [PAD] w2", 0, 5, {0, 1, 2, 3, 4}}};
    struct snug_loader_options options = loader_options(f, 1, 1);
    options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char text[80];
        snprintf(text, sizeof text, "text,label\n%s,0\n", cases[c].texts);
        struct snug_dataset *dataset = open_with(f, options_for(write_file(f, "pad.csv", text)));
        options.first_position = cases[c].first;
        struct run run = start(f, dataset, options, 1);
        assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
        const struct snug_batch *batch = next(f, &run);
        assert_int_equal(batch->tokens, cases[c].count);
        assert_memory_equal(batch->position_ids, cases[c].ids, (size_t)cases[c].count * 4);
        for (int64_t i = 0; i < batch->tokens; i++) assert_int_equal(batch->positions[i], i);
        stop(&run);
        snug_dataset_close(dataset);
    }
}

/* Positions are those of the ids after masking: here [MASK] and w1 are not counted. */
FIXTURE_TEST(test_positions_follow_masked_ids) {
    struct snug_dataset *dataset = open_rows(f, true);
    struct snug_loader_options options = loader_options(f, 16, 2);
    int64_t uncounted = 0;
    options.task = SNUG_TASK_MLM;
    options.mlm_probability = 0.5;
    options.first_position = MASK + 1;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    for (const struct snug_batch *batch; (batch = next(f, &run));)
        for (int64_t s = 0; s < batch->sequences; s++)
            for (int32_t t = batch->offsets[s], position = MASK + 1; t < batch->offsets[s + 1]; t++) {
                const bool masked = batch->ids[t] == MASK;
                assert_int_equal(batch->position_ids[t], masked ? MASK : position++);
                uncounted += masked;
            }
    assert_true(uncounted > 100);
    stop(&run);
    snug_dataset_close(dataset);
}

/* Without a tokenizer and with too few ids for BERT's [MASK], the last id is the mask. */
FIXTURE_TEST(test_mask_of_a_small_vocabulary) {
    const struct snug_dataset_options small = {
        .path = "dummy:8x16", .task = SNUG_TASK_MLM, .max_samples = -1, .vocab_size = 50};
    struct snug_dataset *dataset;
    assert_int_equal(snug_dataset_open(f->ctx, NULL, &small, &dataset), SNUG_OK);
    struct snug_loader_options options = loader_options(f, 8, 1);
    options.task = SNUG_TASK_MLM;
    options.mlm_probability = 1;
    options.tokenizer = NULL;
    options.vocab_size = 50;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    const struct snug_batch *batch = next(f, &run);
    int masks = 0;
    for (int64_t i = 0; i < batch->tokens; i++) masks += batch->ids[i] == 49;
    assert_in_range(masks, 64, 128); /* of 128, about 80 % */
    stop(&run);
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_tokenizer_without_mask) {
    struct snug_dataset *dataset = open_rows(f, true);
    struct snug_loader_options options = loader_options(f, 8, 1);
    struct snug_loader_limits limits;
    load_tokenizer(f, "{\"do_lower_case\": true, \"mask_token\": null}");
    options.task = SNUG_TASK_MLM;
    options.tokenizer = f->tokenizer;
    assert_failed(f, snug_loader_limits(f->ctx, dataset, &options, 1, 0, &limits), SNUG_E_INPUT, "no [MASK] token");
    snug_dataset_close(dataset);
}

TEST_MAIN(NULL, NULL)
