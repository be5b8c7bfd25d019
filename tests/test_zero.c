/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO: several ranks divide states, gradients and weights. Every stage has the bits of a run without, and the bytes of
 * its plan. */
#include "mpirun.h"

#include "program/shards.h"

enum { STAGES = 3 };

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* Shards are in order and without gaps, of whole chunks, and differ by one chunk at most. */
static void test_shards(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int start = 0; start < ranks; start++)
            for (int64_t elements = 1; elements <= 40; elements++) {
                const struct snug_shards s = {elements, 3, ranks, start};
                const int64_t chunks = (elements + 2) / 3;
                int64_t begin = 0;
                for (int rank = 0; rank < ranks; rank++) {
                    const int64_t extra = (rank - start + ranks) % ranks < chunks % ranks;
                    int64_t end = begin + (chunks / ranks + extra) * 3;
                    if (end > elements) end = elements;
                    assert_int_equal(snug_shard_begin(&s, rank), begin);
                    assert_int_equal(snug_shard_size(&s, rank), end - begin);
                    assert_true(end - begin <= snug_shard_largest(&s));
                    begin = end;
                }
                assert_int_equal(begin, elements);
                assert_int_equal(snug_shard_begin(&s, ranks), elements);
            }
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

#define SAVING "--save_steps 2 "

/* N ranks of every stage = one rank with N micro-batches: model, optimizer states, losses, norms. 76 rows are 10
   micro-batches: some ranks have none in an epoch's last step. "cut" has weights of several chunks, "odd" stacks of
   parameters whose 8-bit blocks no shard can cut. */
static void test_stages_have_the_same_bits(void **state) {
    static const struct {
        const char *words;
        int least, most; /* ranks */
    } kinds[] = {
        {TRAIN "--config_name cut --train_file train.csv --validation_file dev.csv --eval_strategy epoch "
               "--num_train_epochs 2 " SAVING,
         2, 4},
        {TRAIN "--config_name cut --train_file train.csv --max_steps 4 --bf16 --freeze embeddings,layer.0 " SAVING, 3,
         3},
        {TRAIN "--config_name cut --train_file train.csv --max_steps 4 --bf16 --optim adamw_8bit " SAVING, 2, 2},
        {TRAIN "--config_name odd --train_file train.csv --max_steps 4 --dtype bfloat16 --optim adamw_8bit " SAVING, 4,
         4},
        {TRAIN
         "--config_name cut --train_file train.csv --max_steps 4 --bf16 --recompute layer --optim lion_32bit " SAVING,
         3, 3},
        {TRAIN
         "--config_name modern --train_file train.csv --max_steps 3 --optim sgd --optim_args momentum=0.9 " SAVING,
         2, 2},
    };
    struct fixture *f = *state;
    if (skips) return;
    write_model(f, "cut", 0.1, 160, 2, VOCABULARY);
    write_model(f, "odd", 0.1, 68, 1, VOCABULARY);
    write_other_families(f, 32);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int ranks = kinds[kind].least; ranks <= kinds[kind].most; ranks++) {
            char words[1024], one[32], many[32];
            snprintf(one, sizeof one, "one%zu_%d", kind, ranks);
            snprintf(words, sizeof words, "%s --gradient_accumulation_steps %d --output_dir %s", kinds[kind].words,
                     ranks, one);
            free(run_well(f, words));
            for (int stage = 1; stage <= STAGES; stage++) {
                snprintf(many, sizeof many, "many%zu_%d_%d", kind, ranks, stage);
                snprintf(words, sizeof words, "%s --zero_stage %d --output_dir %s", kinds[kind].words, stage, many);
                run_ranks_well(f, ranks, words);
                assert_same_run(f, one, many);
                assert_same_in_both(f, one, many, "checkpoint-2/model.safetensors");
                assert_same_in_both(f, one, many, "checkpoint-2/optimizer.safetensors");
            }
        }
}

/* From stage 2 on also several micro-batches of each rank have the bits of one rank with all of them: 10 micro-batches,
   so that an epoch's last step has 2 of 8, or 4 of 6. */
static void test_accumulation(void **state) {
    static const char words[] =
        TRAIN "--config_name cut --train_file train.csv --num_train_epochs 2 --bf16 --save_strategy no ";
    static const int ranks[] = {2, 3}, each[] = {4, 2};
    struct fixture *f = *state;
    if (skips) return;
    write_model(f, "cut", 0.1, 160, 2, VOCABULARY);
    for (int i = 0; i < 2; i++) {
        char command[1024], one[32], many[32];
        snprintf(one, sizeof one, "one%d", i);
        snprintf(command, sizeof command, "%s --gradient_accumulation_steps %d --output_dir %s", words,
                 ranks[i] * each[i], one);
        free(run_well(f, command));
        for (int stage = 2; stage <= STAGES; stage++) {
            snprintf(many, sizeof many, "many%d_%d", i, stage);
            snprintf(command, sizeof command, "%s --gradient_accumulation_steps %d --zero_stage %d --output_dir %s",
                     words, each[i], stage, many);
            run_ranks_well(f, ranks[i], command);
            assert_same_run(f, one, many);
        }
    }
}

/* A checkpoint has no trace of the ranks that wrote it. */
static void test_resumed_in_another_stage(void **state) {
    static const char words[] = TRAIN "--config_name cut --train_file train.csv --validation_file dev.csv --bf16 "
                                      "--num_train_epochs 2 --eval_strategy steps --eval_steps 2 --save_steps 2 ";
    struct fixture *f = *state;
    char command[1024];
    if (skips) return;
    write_model(f, "cut", 0.1, 160, 2, VOCABULARY);
    snprintf(command, sizeof command, "%s --gradient_accumulation_steps 4 --output_dir one --load_best_model_at_end",
             words);
    free(run_well(f, command));
    for (int stage = 1; stage <= STAGES; stage++) {
        snprintf(command, sizeof command, "%s --zero_stage %d --output_dir best%d --load_best_model_at_end", words,
                 stage, stage);
        run_ranks_well(f, 4, command);
        snprintf(command, sizeof command, "best%d", stage);
        assert_same_run(f, "one", command);
        snprintf(command, sizeof command,
                 "%s --zero_stage %d --output_dir up%d --resume_from_checkpoint one/checkpoint-2", words, stage, stage);
        run_ranks_well(f, 4, command);
        snprintf(command, sizeof command, "up%d", stage);
        assert_same_in_both(f, "one", command, "checkpoint-6/optimizer.safetensors");
        snprintf(command, sizeof command,
                 "%s --gradient_accumulation_steps 4 --output_dir down%d --resume_from_checkpoint up%d/checkpoint-4",
                 words, stage, stage);
        free(run_well(f, command));
        snprintf(command, sizeof command, "down%d", stage);
        assert_same_in_both(f, "one", command, "checkpoint-6/optimizer.safetensors");
    }
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* The plan of a run that is not started has the bytes of the run, and the larger the stage, the fewer. */
static void test_plan_is_allocation(void **state) {
    struct fixture *f = *state;
    int64_t before = INT64_MAX;
    if (skips) return;
    write_model(f, "cut", 0.1, 160, 2, VOCABULARY);
    for (int stage = 0; stage <= STAGES; stage++) {
        static const char words[] = "--use_cpu --tokenizer_name model --config_name cut --train_file train.csv --bf16 "
                                    "--threads 1 --max_steps 2 --per_device_train_batch_size 4 ";
        char command[1024];
        snprintf(command, sizeof command, "train %s --zero_stage %d --output_dir out%d --save_strategy no", words,
                 stage, stage);
        run_ranks_well(f, 3, command);
        char *log = output_of(f, "stderr");
        snprintf(command, sizeof command, "plan %s --zero_stage %d --num_processes 3 --json", words, stage);
        json_t *plan = run_json(f, command);
        const json_t *bytes = json_object_get(plan, "bytes"), *ranks = json_object_get(plan, "ranks");
        int64_t sum = 0;
        assert_int_equal(json_integer_value(json_object_get(ranks, "count")), 3);
        assert_int_equal(json_integer_value(json_object_get(ranks, "zero_stage")), stage);
        assert_true(json_integer_value(json_object_get(ranks, "sent_bytes")) > 0);
        for (int i = 0; i < SNUG_MEMORY_CONTEXT; i++)
            sum += json_integer_value(json_object_get(bytes, snug_memory_class_name((snug_memory_class)i)));
        char says[96];
        snprintf(says, sizeof says, "rank %lld allocates most, %lld bytes",
                 (long long)json_integer_value(json_object_get(ranks, "rank")), (long long)sum);
        assert_contains(log, says);
        assert_true(sum < before);
        before = sum;
        free(log);
        json_decref(plan);
    }
}

/* ---- what is refused, and what fails ----------------------------------------------------------------------------- */

#define PLAN "plan --use_cpu --config_name bert-base-uncased --num_processes 4 "

static void test_refused(void **state) {
    static const struct {
        const char *words;
        int code;
        const char *says;
    } cases[] = {
        {PLAN "--zero_stage 4", 2, "--zero_stage 4"},
        {PLAN "--zero_stage 1 --optim adafactor", 1, "--zero_stage 1 does not support --optim adafactor yet"},
        {PLAN "--fit", 1, "--fit is not supported on several ranks yet"},
        {PLAN "--offload optimizer", 1, "--offload is not supported on several ranks yet"},
        {PLAN "--update_in_backward", 1, "--update_in_backward is not supported on several ranks yet"},
        {TRAIN "--config_name model --train_file train.csv --num_processes 2", 2, "mpirun -n 2"},
        {PLAN "--zero_stage 1", 0, ""},
        {"plan --use_cpu --config_name huge --num_processes 2 --zero_stage 3", 1, "tensors of more than 2 GiB"},
        {"plan --use_cpu --config_name bert-base-uncased --zero_stage 1", 0, ""},
    };
    struct fixture *f = *state;
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "huge")), SNUG_OK);
    write_text(f, "huge/config.json",
               "{\"model_type\": \"bert\", \"vocab_size\": 600000, \"hidden_size\": 1024, \"num_hidden_layers\": 1,"
               " \"num_attention_heads\": 16, \"intermediate_size\": 1024, \"max_position_embeddings\": 64}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int code = run(f, cases[i].words);
        char *text = output_of(f, "stderr");
        if (code != cases[i].code || !strstr(text, cases[i].says))
            fail_msg("%s: exit code %d: %s", cases[i].words, code, text);
        free(text);
    }
}

/* Weights that an update made infinite are named, though no rank has all of them. */
static void test_infinite_weights(void **state) {
    static const char words[] = TRAIN "--config_name cut --train_file train.csv --bf16 --max_steps 3 --optim sgd "
                                      "--weight_decay 1e38 --learning_rate 1e3 --lr_scheduler_type constant ";
    struct fixture *f = *state;
    char command[1024];
    if (skips) return;
    write_model(f, "cut", 0.1, 160, 2, VOCABULARY);
    snprintf(command, sizeof command, "%s --gradient_accumulation_steps 2 --output_dir one", words);
    assert_int_equal(run(f, command), 1);
    char *one = output_of(f, "stderr");
    snprintf(command, sizeof command, "-n 2 " SNUG " %s --zero_stage 1 --output_dir two", words);
    assert_int_equal(run_ranks(f, command), 1);
    char *two = output_of(f, "stderr");
    const char *said = strstr(one, "snug: step 2: "), *name = strstr(one, "the weight ");
    if (!said || !name) fail_msg("%s", one);
    assert_contains(two, name);
    free(one);
    free(two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stages_have_the_same_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_accumulation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resumed_in_another_stage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_plan_is_allocation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_infinite_weights, set_up, tear_down),
    };
    find_mpirun();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
