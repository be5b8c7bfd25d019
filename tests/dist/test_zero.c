/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO: several ranks divide states, gradients and weights. Every stage has the bits of a run without, and the bytes of
 * its plan. */
#include "mpirun.h"

#include "args/args.h"
#include "program/shards.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { STAGES = 3 };

/* One comparison has all stages, and each of the others one. */
static bool has_stage(int stage, int first, size_t number) {
    return is_long() || stage == (SANITIZED ? STAGES : first + (int)(number % (size_t)(STAGES + 1 - first)));
}

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* Shards are in order and without gaps, of whole chunks, and differ by one chunk at most. */
TEST(test_shards) {
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

#define DECODER "--task clm --train_file lines.txt --line_by_line "
#define PAIRS "--task embedding --train_file pairs.csv --config_name cut "

/* The plan of a run that is not started has the bytes that the ranks have just allocated; their sum. words: of snug
   train. */
static int64_t assert_planned(const struct fixture *f, const char *words, int ranks, int stage) {
    char command[1200], says[96], *log = output_of(f, "stderr");
    int64_t sum = 0;
    snprintf(command, sizeof command, "plan %s --num_processes %d --json", words + strlen("train "), ranks);
    json_t *plan = run_json(f, command);
    const json_t *bytes = json_object_get(plan, "bytes"), *about = json_object_get(plan, "ranks");
    assert_int_equal(json_integer_value(json_object_get(about, "count")), ranks);
    assert_int_equal(json_integer_value(json_object_get(about, "zero_stage")), stage);
    assert_true(json_integer_value(json_object_get(about, "sent_bytes")) > 0);
    for (int c = 0; c < SNUG_MEMORY_CONTEXT; c++)
        sum += json_integer_value(json_object_get(bytes, snug_memory_class_name((snug_memory_class)c)));
    snprintf(says, sizeof says, "each allocates %lld bytes", (long long)sum);
    assert_contains(log, says);
    free(log);
    json_decref(plan);
    return sum;
}

/* N ranks of every stage = one rank with their micro-batches and without the method: model, optimizer states, losses,
   norms. 76 rows are 10 micro-batches: some ranks have none in an epoch's last step, or fewer; some runs continue after
   it. "cut" has weights of several chunks, "odd" stacks of parameters whose 8-bit blocks no shard can cut; of "large"
   some shards are smaller than what is offloaded, others are cut. From stage 2 on a rank may have several
   micro-batches. Where one comparison has all stages, and where states are offloaded, the plan is compared with the
   ranks' bytes: the larger the stage, the fewer. `make check-long` runs every number of ranks; SNUG_RANKS_MOST=8: also
   8 ranks. */
FIXTURE_TEST(test_stages_have_the_same_bits) {
    static const struct {
        const char *words, *method;
        int least, most, each, first; /* ranks; micro-batches of each; stage */
    } kinds[] = {
        {"--config_name cut --validation_file dev.csv --eval_strategy epoch --max_steps 5", "", 3, 4 - SANITIZED, 1, 0},
        {"--config_name cut --max_steps 3 --bf16 --freeze embeddings,layer.0", "", 3, 3, 1, 1},
        {"--config_name cut --max_steps 3 --bf16 --optim adamw_8bit", "", 2, 2, 1, 1},
        {"--config_name odd --max_steps 3 --dtype bfloat16 --optim adamw_8bit", "", 4, 4, 1, 1},
        {"--config_name cut --max_steps 3 --bf16 --optim lion_32bit", "--recompute layer", 3, 3, 1, 1},
        {"--config_name modern --max_steps 2 --optim sgd --optim_args momentum=0.9", "", 2, 2, 1, 1},
        {"--config_name cut --max_steps 3 --bf16", "", 2, 2, 4, 2},
        {"--config_name large --max_steps 3", "--offload optimizer --offload_ratio 1", 4, 4, 1, 0},
        {"--config_name large --max_steps 2 --bf16 --optim adamw_8bit",
         "--offload optimizer,activations --offload_ratio 0.6", 3, 3, 1, 0},
        {"--config_name cut --num_train_epochs 1 --per_device_train_tokens 90", "", 3, 3, 1, 0},
        {DECODER "--config_name qwen --max_steps 2 --bf16 --per_device_train_tokens 120", "--gradient_checkpointing", 3,
         3, 2, 2},
        {DECODER "--config_name qwen --num_train_epochs 1 --per_device_train_tokens 70 --optim adamw_8bit",
         "--offload optimizer,activations --offload_ratio 1", 2, 2, 1, 0},
        {PAIRS "--max_steps 4", "--recompute layer", 3, 4, 1, 0},
        {PAIRS "--max_steps 3 --bf16", "", 2, 3, 2, 2},
        {DECODER "--config_name phi --max_steps 2 --dtype bfloat16", "--recompute attention", 4, 4, 1, 1},
        {"--config_name large --max_steps 3 --bf16", "--offload optimizer --offload_ratio 1", 2, 2, 4, 2},
        {"--model_name_or_path trained --max_steps 2 --load_in_4bit --freeze base_model", "--recompute layer", 3, 3, 1,
         STAGES},
        {"--model_name_or_path trained --max_steps 2 --load_in_4bit --use_bnb_nested_quant False --freeze base_model",
         "", 2, 2, 1, STAGES},
    };
    const char *given = getenv("SNUG_RANKS_MOST");
    const int most = given ? atoi(given) : kinds[0].most;
    if (skips) return;
    write_cut(f, 2);
    write_model(f, "odd", 0.1, 68, 1, VOCABULARY);
    write_model(f, "large", 0.1, 260, 1, 3000);
    write_other_families(f, 128);
    write_data(f, "lines.txt", FORM_TEXT, EVAL_ROWS, 5);
    write_data(f, "pairs.csv", FORM_PAIRS, TRAIN_ROWS, 6);
    free(run_well(f, TRAIN "--train_file train.csv --config_name large --max_steps 1 --output_dir trained"));
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int ranks = kinds[kind].least; ranks <= (kind ? kinds[kind].most : most); ranks += ranks < 4 ? 1 : 4) {
            const int each = kinds[kind].each, first = kinds[kind].first;
            const bool has_all = !kind && ranks == 3;
            int64_t before = INT64_MAX;
            char words[512], command[1024], one[32], many[32];
            if (kind && ranks < kinds[kind].most && !is_long()) continue;
            snprintf(words, sizeof words, TRAIN "--train_file train.csv --save_steps 2 %s", kinds[kind].words);
            snprintf(one, sizeof one, "one%zu_%d", kind, ranks);
            snprintf(command, sizeof command, "%s --gradient_accumulation_steps %d --output_dir %s", words,
                     ranks * each, one);
            free(run_well(f, command));
            for (int stage = first; stage <= STAGES; stage++) {
                if (!has_all && !has_stage(stage, first, kind)) continue;
                snprintf(many, sizeof many, "many%zu_%d_%d", kind, ranks, stage);
                snprintf(command, sizeof command,
                         "%s %s --gradient_accumulation_steps %d --zero_stage %d --output_dir %s", words,
                         kinds[kind].method, each, stage, many);
                run_ranks_well(f, ranks, command);
                assert_same_run(f, one, many);
                assert_same_in_both(f, one, many, "checkpoint-2/model.safetensors");
                assert_same_in_both(f, one, many, "checkpoint-2/optimizer.safetensors");
                if (!has_all && !strstr(kinds[kind].method, "offload")) continue;
                const int64_t bytes = assert_planned(f, command, ranks, stage);
                assert_true(bytes < before);
                before = bytes;
            }
        }
}

/* A weight that is shared by the embeddings and the prediction head, whose gradient is cleared, and a head of more than
   128 loss positions: every stage = stage 0. */
FIXTURE_TEST(test_shared_weight) {
    static const struct {
        const char *words, *method;
        int ranks;
    } kinds[] = {
        {"--task mlm --train_file lines.txt --line_by_line --config_name cut --bf16", "", 2},
        {DECODER "--config_name llama --per_device_train_batch_size 20", "--recompute layer", 2},
        {DECODER "--config_name gemma --bf16 --per_device_train_tokens 200", "--gradient_checkpointing", 3},
        {DECODER "--config_name gpt --optim adamw_8bit", "--offload optimizer,activations --offload_ratio 1", 2},
    };
    if (skips) return;
    write_cut(f, 2);
    write_other_families(f, 128);
    write_data(f, "lines.txt", FORM_TEXT, EVAL_ROWS, 5);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        char words[1024], none[32], many[32];
        snprintf(none, sizeof none, "none%zu", kind);
        snprintf(words, sizeof words, TRAIN "%s --max_steps 2 --save_steps 2 --output_dir %s", kinds[kind].words, none);
        run_ranks_well(f, kinds[kind].ranks, words);
        for (int stage = is_long() ? 0 : STAGES; stage <= STAGES; stage++) {
            snprintf(many, sizeof many, "many%zu_%d", kind, stage);
            snprintf(words, sizeof words, TRAIN "%s %s --max_steps 2 --save_steps 2 --zero_stage %d --output_dir %s",
                     kinds[kind].words, kinds[kind].method, stage, many);
            run_ranks_well(f, kinds[kind].ranks, words);
            assert_same_run(f, none, many);
            assert_same_in_both(f, none, many, "checkpoint-2/optimizer.safetensors");
        }
    }
}

/* Adapters beside a frozen model, whose weights stage 3 divides: the bits of one rank, also resumed in another stage.
   DoRA reads whole weights for its lengths; the table beside the words is saved as its transpose. */
FIXTURE_TEST(test_adapters) {
    static const char words[] =
        TRAIN "--train_file train.csv --model_name_or_path base --use_peft --lora_target_modules all-linear --use_dora "
              "--bf16 --save_steps 2 --max_steps 3";
    static const char tables[] =
        TRAIN "--train_file train.csv --model_name_or_path base --use_peft --lora_target_modules query,word_embeddings "
              "--bias all --save_steps 2 --max_steps 2";
    char command[1024], many[32];
    if (skips) return;
    write_cut(f, 2);
    free(run_well(f, TRAIN "--config_name cut --train_file train.csv --max_steps 1 --output_dir base"));
    snprintf(command, sizeof command, "%s --gradient_accumulation_steps 3 --output_dir tables1", tables);
    free(run_well(f, command));
    snprintf(command, sizeof command, "%s --zero_stage %d --output_dir tables3", tables, STAGES);
    run_ranks_well(f, 3, command);
    assert_same_in_both(f, "tables1", "tables3", "adapter_model.safetensors");
    snprintf(command, sizeof command, "%s --gradient_accumulation_steps 3 --output_dir one", words);
    free(run_well(f, command));
    for (int stage = 0; stage <= STAGES; stage++) {
        if (!has_stage(stage, 0, 3) && stage) continue;
        if (has_stage(stage, 0, 3)) {
            snprintf(many, sizeof many, "many%d", stage);
            snprintf(command, sizeof command, "%s --zero_stage %d --output_dir %s", words, stage, many);
            run_ranks_well(f, 3, command);
            assert_same_in_both(f, "one", many, "adapter_model.safetensors");
            assert_same_in_both(f, "one", many, "checkpoint-2/adapter_model.safetensors");
            assert_same_in_both(f, "one", many, "checkpoint-2/optimizer.safetensors");
        }
        snprintf(command, sizeof command,
                 "%s --zero_stage %d --output_dir up%d --resume_from_checkpoint one/checkpoint-2", words,
                 STAGES - stage, stage);
        run_ranks_well(f, 3, command);
        snprintf(many, sizeof many, "up%d", stage);
        assert_same_in_both(f, "one", many, "adapter_model.safetensors");
    }
}

/* Rows of tokens, of which stage 3 divides a large number, read by the embeddings and the tied output, so that a
   gradient has two parts; and word table and output as two weights that begin as one: every stage = stage 0. */
FIXTURE_TEST(test_rows_of_tokens) {
    char rows[512] = "--trainable_token_indices ", words[1024], command[1200], many[32];
    const char *const kinds[] = {rows, "--lora_modules_to_save embed_tokens,lm_head"};
    if (skips) return;
    write_cut(f, 2);
    write_other_families(f, 512);
    write_data(f, "lines.txt", FORM_TEXT, EVAL_ROWS, 5);
    free(run_well(f, TRAIN DECODER "--config_name llama --max_steps 1 --output_dir base"));
    for (int id = 4; id < 40; id++) sprintf(rows + strlen(rows), "%d,", id); /* 36 rows of 512 */
    for (int kind = 0; kind < 2; kind++) {
        snprintf(words, sizeof words,
                 TRAIN DECODER "--model_name_or_path base --use_peft %s --save_steps 2 --max_steps 2", kinds[kind]);
        for (int stage = 0; stage <= STAGES; stage++) {
            char first[32];
            if (!has_stage(stage, 0, 3) && stage) continue;
            snprintf(first, sizeof first, "many%d_0", kind);
            snprintf(many, sizeof many, "many%d_%d", kind, stage);
            snprintf(command, sizeof command, "%s --zero_stage %d --output_dir %s", words, stage, many);
            run_ranks_well(f, 2, command);
            assert_same_in_both(f, first, many, "adapter_model.safetensors");
            assert_same_in_both(f, first, many, "checkpoint-2/optimizer.safetensors");
        }
    }
}

/* A checkpoint has no trace of the ranks that wrote it. */
FIXTURE_TEST(test_resumed_in_another_stage) {
    static const char words[] = TRAIN "--config_name cut --train_file train.csv --validation_file dev.csv --bf16 "
                                      "--num_train_epochs 2 --eval_strategy steps --eval_steps 2 --save_steps 2 ";
    char command[1024];
    if (skips) return;
    write_cut(f, 2);
    snprintf(command, sizeof command, "%s --gradient_accumulation_steps 4 --output_dir one --load_best_model_at_end",
             words);
    free(run_well(f, command));
    for (int stage = 1; stage <= STAGES; stage++) {
        if (!has_stage(stage, 1, STAGES - 1)) continue;
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

/* --fit on ranks: rank 0 searches for all, among others for the stage; the results are those of the run without it. */
FIXTURE_TEST(test_fit) {
    static const char *const words = TRAIN "--config_name cut --train_file train.csv --max_steps 1 --save_strategy no "
                                           "--gradient_accumulation_steps 1 --output_dir";
    char command[1024];
    double needed;
    if (skips || SANITIZED) return; /* a sanitizer's memory is not measured */
    write_model(f, "cut", 0.1, 384, 1, 3000);
    snprintf(command, sizeof command, "-n 3 " SNUG " %s refused --memory_budget 1MiB", words);
    assert_int_equal(run_ranks(f, command), 3);
    char *text = output_of(f, "stderr");
    const char *needs = strstr(text, "this run needs ");
    assert_non_null(needs);
    assert_int_equal(sscanf(needs, "this run needs %lf MiB", &needed), 1);
    free(text);
    snprintf(command, sizeof command, "%s fitted --fit --memory_budget %.0fMiB", words, needed - 8);
    run_ranks_well(f, 3, command);
    text = output_of(f, "stderr");
    assert_contains(text, "--fit: ");
    assert_contains(text, "--zero_stage ");
    free(text);
    snprintf(command, sizeof command, "%s fits --fit --memory_budget 20GiB", words);
    run_ranks_well(f, 3, command);
    text = output_of(f, "stderr");
    assert_contains(text, "--fit: the requested plan fits: ");
    free(text);
    assert_same_run(f, "fitted", "fits");
    snprintf(command, sizeof command, "-n 3 " SNUG " %s refused --fit --memory_budget 5MiB", words);
    assert_said(f, run_ranks(f, command), 3,
                (const char *const[]){"--memory_budget of 5.0 MiB", "no mix of methods fits ", NULL});
}

/* ---- what is refused, and what fails ----------------------------------------------------------------------------- */

#define PLAN "plan --use_cpu --config_name bert-base-uncased --num_processes 4 "

FIXTURE_TEST(test_refused) {
    static const struct {
        const char *words;
        int code;
        const char *says;
    } cases[] = {
        {PLAN "--zero_stage 4", 2, "--zero_stage 4"},
        {PLAN "--zero_stage 1 --optim adafactor", 1, "--zero_stage 1 does not support --optim adafactor yet"},
        {PLAN "--fit", 0, ""},
        {PLAN "--gpus 4", 2, "--gpus 4: this plan would be for CPUs"},
        {PLAN "--offload optimizer,activations", 0, ""},
        {PLAN "--offload optimizer,weights", 1,
         "--offload of other tensors than optimizer and activations is not supported on several ranks yet: leave it "
         "out, "
         "or --num_processes"},
        {PLAN "--bf16 --offload master_weights", 1, "--offload of other tensors than"},
        {PLAN "--update_in_backward", 1, "--update_in_backward is not supported on several ranks yet"},
        {TRAIN "--config_name model --train_file train.csv --num_processes 2", 2, "mpirun -n 2"},
        {PLAN, 0, ""},
        {PLAN "--zero_stage 1", 0, ""},
        {PLAN "--task mlm --bf16 --zero_stage 2", 0, ""},
        {"plan --gpu H200 --config_name huge --gpus 2 --zero_stage 3", 0, ""}, /* a table of 2.3 GiB */
        {"plan --gpu H200 --config_name huge --gpus 8 --zero_stage 1", 0, ""},
        {"plan --use_cpu --config_name bert-base-uncased --zero_stage 1", 0, ""},
    };
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

/* ---- DeepSpeed's configuration ----------------------------------------------------------------------------------- */

static snug_status read_deepspeed(const struct fixture *f, snug_args *args, const char *text) {
    write_text(f, "ds.json", text);
    assert_int_equal(snug_args_set(args, "config_name", "bert-base-uncased"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "num_processes", "4"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "deepspeed", path_of(f, "ds.json")), SNUG_OK);
    return snug_args_check(args, "plan");
}

FIXTURE_TEST(test_deepspeed_refused) {
    static const struct {
        const char *text, *says;
        snug_status status;
    } refused[] = {
        {"{\"zero_optimization\": {\"stage\": 4}}", "(zero_optimization.stage in --deepspeed ", SNUG_E_USAGE},
        {"{\"zero_optimization\": {\"stage\": [2]}}", "(zero_optimization.stage in --deepspeed ", SNUG_E_USAGE},
        {"{\"seed\": 1}", "ds.json: seed: not supported by snug", SNUG_E_UNSUPPORTED},
        {"{\"optimizer\": {\"type\": \"OneBitAdam\"}}",
         "ds.json: optimizer.type is OneBitAdam: snug takes AdamW and Adam", SNUG_E_UNSUPPORTED},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}",
         "optimizer.params.adam_w_mode is False: snug has True", SNUG_E_UNSUPPORTED},
        {"{\"optimizer\": {\"params\": {\"lr\": 1e-3}}}", "optimizer.params.lr is 0.001: but --learning_rate is 0.5",
         SNUG_E_USAGE},
        {"{\"optimizer\": {\"params\": {\"betas\": [0.9, 0.95]}}}",
         "optimizer.params.betas is 0.95: but --adam_beta2 is 0.5: give one of them, or \"auto\"", SNUG_E_USAGE},
        {"{\"optimizer\": {\"params\": {\"betas\": [0.9]}}}", "optimizer.params.betas: must be a list of two numbers",
         SNUG_E_USAGE},
        {"{\"optimizer\": {\"params\": {\"betas\": [[], 1]}}}", "optimizer.params.betas: must be a list of two numbers",
         SNUG_E_USAGE},
        {"{\"optimizer\": {\"params\": {\"amsgrad\": true}}}", "optimizer.params.amsgrad is True: snug has False",
         SNUG_E_UNSUPPORTED},
        {"{\"scheduler\": {\"type\": \"OneCycle\"}}",
         "scheduler.type is OneCycle: snug takes WarmupLR and WarmupDecayLR", SNUG_E_UNSUPPORTED},
        {"{\"gradient_clipping\": 0.333333333333333315}", "gradient_clipping is 0.33333333333333331: but",
         SNUG_E_USAGE},
        {"{\"scheduler\": {\"params\": {\"warmup_max_lr\": 0.1}}}",
         "scheduler.params.warmup_max_lr is 0.1: but --learning_rate is 0.5", SNUG_E_USAGE},
        {"{\"scheduler\": {\"params\": {\"warmup_min_lr\": 1e-6}}}", "warmup_min_lr is ", SNUG_E_UNSUPPORTED},
        {"{\"scheduler\": {\"params\": {\"warmup_type\": \"cubic\"}}}", "warmup_type is cubic: snug has linear|log",
         SNUG_E_UNSUPPORTED},
        {"{\"scheduler\": {\"params\": {\"total_num_steps\": 500}}}",
         "scheduler.params.total_num_steps is 500: but --max_steps is 400: use \"auto\"", SNUG_E_USAGE},
        {"{\"gradient_predivide_factor\": 2}", "gradient_predivide_factor is 2: snug has 1: leave it out",
         SNUG_E_UNSUPPORTED},
        {"{\"tensorboard\": {\"enabled\": true}}", "tensorboard.enabled: not supported by snug", SNUG_E_UNSUPPORTED},
        {"{\"zero_optimization\": {\"offload_param\": {\"device\": \"cpu\"}}}",
         "zero_optimization.offload_param.device is cpu: several ranks do not offload weights yet", SNUG_E_UNSUPPORTED},
        {"{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}}",
         "zero_optimization.offload_optimizer.device is nvme: use \"cpu\", or \"none\" and --offload optimizer",
         SNUG_E_UNSUPPORTED},
        {"{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}}",
         "offload_optimizer.device is cpu: but --offload is activations: give one of them", SNUG_E_USAGE},
        {"{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}}", "fp16.loss_scale is 128: snug has torch's",
         SNUG_E_UNSUPPORTED},
        {"{\"train_batch_size\": 64}", "train_batch_size is 64: a step has 8 x 1 sequences on 4 ranks", SNUG_E_USAGE},
        {"{\"train_batch_size\": \"64\"}", "train_batch_size is 64: a step has", SNUG_E_USAGE},
        {"{\"train_batch_size\": [32]}", "train_batch_size: a step has 8 x 1 sequences", SNUG_E_USAGE},
        {"{\"gradient_clipping\": 0.5}", "gradient_clipping is 0.5: but --max_grad_norm is 2", SNUG_E_USAGE},
        {"{\"gradient_clipping\": \"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
         "gradient_clipping in --deepspeed", SNUG_E_USAGE},
        {"{\"a123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
         "012345678901234567890123456789012345678901234567890123456789012345678901234567890\": 1}",
         "too long", SNUG_E_UNSUPPORTED},
        {"[]", "ds.json", SNUG_E_INPUT},
    };
    snug_args *args;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
        assert_int_equal(snug_args_set(args, "max_grad_norm", "2"), SNUG_OK);
        assert_int_equal(snug_args_set(args, "offload", "activations"), SNUG_OK);
        assert_int_equal(snug_args_set(args, "learning_rate", "0.5"), SNUG_OK);
        assert_int_equal(snug_args_set(args, "adam_beta2", "0.5"), SNUG_OK);
        assert_int_equal(snug_args_set(args, "max_steps", "400"), SNUG_OK);
        const snug_status status = read_deepspeed(f, args, refused[i].text);
        if (status != refused[i].status || !strstr(snug_error_message(f->ctx), refused[i].says))
            fail_msg("%s: status %d: %s", refused[i].text, (int)status, snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
}

FIXTURE_TEST(test_deepspeed) {
    snug_args *args;
    assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
    assert_int_equal(snug_args_set(args, "max_grad_norm", "0.5"), SNUG_OK);
    for (int again = 0; again < 2; again++) /* a run checks its arguments more than once */
        assert_int_equal(
            read_deepspeed(f, args,
                           "{\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true,"
                           " \"offload_optimizer\": {\"device\": \"none\"}}, \"gradient_clipping\": 0.5,"
                           " \"gradient_accumulation_steps\": 3, \"train_micro_batch_size_per_gpu\": \"auto\","
                           " \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": false, \"loss_scale\": 0},"
                           " \"train_batch_size\": 96, \"scheduler\": \"auto\"}"),
            SNUG_OK);
    assert_int_equal(args->zero_stage, 2);
    assert_int_equal(args->gradient_accumulation_steps, 3);
    assert_true(args->bf16 && !args->fp16 && args->max_grad_norm == 0.5);
    snug_args_destroy(args);
    assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
    assert_int_equal(read_deepspeed(f, args, "{\"train_batch_size\": \"auto\"}"), SNUG_OK);
    assert_int_equal(read_deepspeed(f, args, "{}"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "deepspeed", "none"), SNUG_OK);
    assert_int_equal(snug_args_check(args, "plan"), SNUG_OK);
    snug_args_destroy(args);
    for (int cpu = 0; cpu < 3; cpu++) { /* the host's memory is where a CPU has its states anyway */
        assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
        if (cpu) assert_int_equal(snug_args_set(args, cpu == 1 ? "use_cpu" : "device", cpu == 1 ? "True" : "cpu"), 0);
        assert_int_equal(
            read_deepspeed(f, args, "{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}}"),
            SNUG_OK);
        if (cpu)
            assert_null(args->offload);
        else
            assert_true(args->to_host && strcmp(args->offload, "optimizer") == 0);
        snug_args_destroy(args);
    }
}

/* ---- FSDP's configuration ---------------------------------------------------------------------------------------- */

/* --fsdp_config of transformers 4 and 5, given as text or as a file: what it means. */
FIXTURE_TEST(test_fsdp_config) {
    static const struct {
        const char *fsdp, *text;
        int stage;
        bool recomputes;
    } taken[] = {
        {"True", "{}", 3, false},
        {"True", "{\"version\": 2, \"reshard_after_forward\": true, \"cpu_offload\": false}", 3, false},
        {"True", "{\"reshard_after_forward\": false, \"activation_checkpointing\": true}", 2, true},
        {"full_shard auto_wrap",
         "{\"fsdp_transformer_layer_cls_to_wrap\": [\"BertLayer\"], \"fsdp_state_dict_type\": \"FULL_STATE_DICT\","
         " \"fsdp_version\": 1, \"fsdp_backward_prefetch\": \"backward_pre\", \"xla\": false, \"min_num_params\": 0}",
         3, false},
        {"shard_grad_op", "{\"reshard_after_forward\": false}", 2, false},
        {"True", "{\"fsdp_sharding_strategy\": \"SHARD_GRAD_OP\"}", 2, false},
        {"True", "{\"reshard_after_forward\": \"FULL_SHARD\", \"version\": 1}", 3, false},
        {"True", "{\"sharding_strategy\": 3}", 0, false},
        {"True", "{\"activation_checkpointing\": false}", 3, false},
        {"no_shard", "{\"reshard_after_forward\": true}", 0, false},
        {"False", "{\"reshard_after_forward\": false}", 0, false},
    };
    snug_args *args;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        for (int in_file = 0; in_file < 2; in_file++) {
            write_text(f, "fsdp.json", taken[i].text);
            assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
            assert_int_equal(snug_args_set(args, "config_name", "bert-base-uncased"), SNUG_OK);
            assert_int_equal(snug_args_set(args, "fsdp", taken[i].fsdp), SNUG_OK);
            assert_int_equal(snug_args_set(args, "fsdp_config", in_file ? path_of(f, "fsdp.json") : taken[i].text),
                             SNUG_OK);
            for (int again = 0; again < 2; again++) /* a run checks its arguments more than once */
                if (snug_args_check(args, "plan") != SNUG_OK)
                    fail_msg("%s: %s", taken[i].text, snug_error_message(f->ctx));
            assert_int_equal(args->zero_stage, taken[i].stage);
            assert_int_equal(args->gradient_checkpointing, taken[i].recomputes);
            snug_args_destroy(args);
        }
}

/* What has another meaning than snug's stages, or none. */
FIXTURE_TEST(test_fsdp_config_refused) {
    static const struct {
        const char *fsdp, *text, *says;
        snug_status status;
    } refused[] = {
        {NULL, "{}", "--fsdp_config has no effect without --fsdp", SNUG_E_USAGE},
        {"True", "{\"cpu_offload\": true}",
         "--fsdp_config: cpu_offload is True: several ranks do not offload weights yet", SNUG_E_UNSUPPORTED},
        {"True", "{\"fsdp_offload_params\": true}", "--fsdp_config: fsdp_offload_params is True: ", SNUG_E_UNSUPPORTED},
        {"True", "{\"state_dict_type\": \"SHARDED_STATE_DICT\"}", "state_dict_type is SHARDED_STATE_DICT: a checkpoint",
         SNUG_E_UNSUPPORTED},
        {"True", "{\"mixed_precision_policy\": {}}", "--fsdp_config: mixed_precision_policy: not supported by snug",
         SNUG_E_UNSUPPORTED},
        {"True", "{\"sharding_strategy\": \"HYBRID_SHARD\"}", "sharding_strategy is HYBRID_SHARD: snug has FULL_SHARD",
         SNUG_E_UNSUPPORTED},
        {"shard_grad_op", "{\"sharding_strategy\": \"FULL_SHARD\"}", "but --fsdp names another strategy", SNUG_E_USAGE},
        {"shard_grad_op", "{\"reshard_after_forward\": true}",
         "reshard_after_forward is True: but --fsdp shard_grad_op", SNUG_E_USAGE},
        {"True", "{\"reshard_after_forward\": 2.5}", "reshard_after_forward: must be true or false", SNUG_E_USAGE},
        {"True", "{\"activation_checkpointing\": 1}", "activation_checkpointing is 1: must be true", SNUG_E_USAGE},
        {"True", "{\"version\": 3}", "version is 3: FSDP has version 1 and 2", SNUG_E_UNSUPPORTED},
        {"True", "[]", "fsdp.json", SNUG_E_INPUT},
        {"True", NULL, "--fsdp_config:1: not valid JSON", SNUG_E_INPUT},
    };
    snug_args *args;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (refused[i].text) write_text(f, "fsdp.json", refused[i].text);
        assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
        assert_int_equal(snug_args_set(args, "config_name", "bert-base-uncased"), SNUG_OK);
        if (refused[i].fsdp) assert_int_equal(snug_args_set(args, "fsdp", refused[i].fsdp), SNUG_OK);
        assert_int_equal(snug_args_set(args, "fsdp_config", refused[i].text ? path_of(f, "fsdp.json") : "{"), SNUG_OK);
        const snug_status status = snug_args_check(args, "plan");
        if (status != refused[i].status || !strstr(snug_error_message(f->ctx), refused[i].says))
            fail_msg("case %zu: status %d: %s", i, (int)status, snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
    assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
    assert_int_equal(snug_args_set(args, "config_name", "bert-base-uncased"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "fsdp_config", "none"), SNUG_OK);
    assert_int_equal(snug_args_check(args, "plan"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "fsdp", "True"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "gradient_checkpointing", "False"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "fsdp_config", "{\"activation_checkpointing\": true}"), SNUG_OK);
    assert_int_equal(snug_args_check(args, "plan"), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--gradient_checkpointing says otherwise");
    snug_args_destroy(args);
}

/* --device auto without a GPU: nothing is offloaded to a disk. The flag that the user gave is kept. */
#define ADAMW                                                                                                          \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": \"auto\","      \
    " \"weight_decay\": \"auto\"}}"

/* Files as the documentation of transformers has them: "auto" says what the arguments say. */
FIXTURE_TEST(test_deepspeed_auto) {
    static const struct {
        const char *text, *set, *says, *keeps; /* says: in the log; NULL: nothing of DeepSpeed is. keeps: NAME VALUE */
    } cases[] = {
        {"{" ADAMW "}", "", NULL, "learning_rate 5e-05"},
        {"{" ADAMW "}", "optim=adamw_torch learning_rate=1e-3", NULL, "learning_rate 0.001"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": true, \"torch_adam\": true, \"lr\": 3e-5,"
         " \"betas\": [0.8, 0.99], \"eps\": 1e-7, \"weight_decay\": 0.1}}}",
         "", "without effect in snug: optimizer.params.torch_adam\n", "adam_beta2 0.99"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": \"auto\", \"warmup_max_lr\": "
         "\"auto\","
         " \"warmup_num_steps\": \"auto\"}}}",
         "", "WarmupLR stays constant after the warm-up; this run's schedule is --lr_scheduler_type linear",
         "lr_scheduler_type linear"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\"}}", "lr_scheduler_type=constant", NULL, "warmup_steps 0"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\"}}", "lr_scheduler_type=constant_with_warmup warmup_steps=5",
         "the warm-up of WarmupLR is logarithmic, unless warmup_type is \"linear\"", "warmup_steps 5"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"linear\"}}}",
         "lr_scheduler_type=constant_with_warmup warmup_steps=5", NULL, "warmup_steps 5"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\"}}", "lr_scheduler_type=constant warmup_steps=5",
         "WarmupLR stays constant", "warmup_steps 5"},
        {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_type\": \"log\"}}}",
         "lr_scheduler_type=constant", "WarmupDecayLR decreases linearly", "warmup_steps 0"},
        {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_type\": \"log\"}}}", "warmup_steps=5",
         "the warm-up of WarmupDecayLR is logarithmic", "warmup_steps 5"},
        {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_type\": \"linear\", \"warmup_min_lr\": 0,"
         " \"warmup_max_lr\": 1e-4, \"warmup_num_steps\": 10, \"total_num_steps\": 400, \"last_batch_iteration\": "
         "-1}}}",
         "max_steps=400", NULL, "learning_rate 0.0001"},
        {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": \"auto\"}}}",
         "lr_scheduler_type=cosine", "WarmupDecayLR decreases linearly to 0 after the warm-up", "max_steps -1"},
        {"{\"zero_optimization\": {\"stage\": 1, \"offload_param\": {\"device\": \"none\", \"pin_memory\": true},"
         " \"offload_optimizer\": {\"device\": \"none\", \"ratio\": 1.0, \"buffer_count\": 4}}}",
         "", "zero_optimization.offload_param.pin_memory, zero_optimization.offload_optimizer.buffer_count\n",
         "zero_stage 1"},
        {"{\"zero_optimization\": {\"stage\": 3, \"stage3_prefetch_bucket_size\": \"auto\"}, \"gradient_clipping\": "
         "\"auto\","
         " \"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0, \"hysteresis\": 2}, \"bf16\": {\"enabled\": \"auto\"}}",
         "max_grad_norm=2 bf16=True", NULL, "max_grad_norm 2"},
        {"{\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0, \"hysteresis\": 2}}", "fp16=True",
         "without effect in snug: fp16.hysteresis\n", "fp16 True"},
        {"{\"tensorboard\": {\"enabled\": false, \"job_name\": \"x\"}, \"gradient_clipping\": null, \"aio\": "
         "{\"threads\": 1},"
         " \"prescale_gradients\": false}",
         "", "without effect in snug: aio.threads\n", "max_grad_norm 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_args *args;
        char name[64], value[64], here[64];
        *f->log = '\0';
        assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
        set_args(f, args, cases[i].set);
        for (int again = 0; again < 2;
             again++) /* arguments are checked more than once, and what is said is said once */
            if (read_deepspeed(f, args, cases[i].text) != SNUG_OK)
                fail_msg("%s: %s", cases[i].text, snug_error_message(f->ctx));
        const char *said = strstr(f->log, "--deepspeed");
        if (!cases[i].says && said) fail_msg("%s: %s", cases[i].text, f->log);
        if (cases[i].says) {
            assert_contains(f->log, cases[i].says);
            assert_null(strstr(strstr(f->log, cases[i].says) + 1, cases[i].says));
        }
        assert_int_equal(sscanf(cases[i].keeps, "%63s %63s", name, value), 2);
        assert_int_equal(snug_args_get(args, name, here, sizeof here), SNUG_OK);
        if (strcmp(here, value) != 0) fail_msg("%s: --%s is %s", cases[i].text, name, here);
        snug_args_destroy(args);
    }
}

/* The object itself, as a dump of TrainingArguments has it; --optim and --max_steps that are missing or differ. */
FIXTURE_TEST(test_deepspeed_object) {
    static const struct {
        const char *set, *text, *says;
        snug_status status;
    } cases[] = {
        {"", " {\"gradient_clipping\": 0.5}", "", SNUG_OK},
        {"", "{\"seed\": 1}", "--deepspeed: seed: not supported by snug", SNUG_E_UNSUPPORTED},
        {"", "{\"zero_optimization\": {\"stage\": 4}}", "(zero_optimization.stage in --deepspeed)", SNUG_E_USAGE},
        {"", "{\"seed\"", "--deepspeed", SNUG_E_INPUT},
        {"optim=sgd", "{\"optimizer\": {\"type\": \"AdamW\"}}",
         "--deepspeed: optimizer.type is AdamW: but --optim is sgd: leave one of them out", SNUG_E_USAGE},
        {"optim=adamw_8bit", "{\"optimizer\": {\"type\": \"Adam\"}}", "but --optim is adamw_8bit", SNUG_E_USAGE},
        {"", "{\"scheduler\": {\"params\": {\"total_num_steps\": 500}}}", "use \"auto\", or give --max_steps",
         SNUG_E_USAGE},
        {"", "{\"zero_optimization\": {\"stage\": 2}}", "", SNUG_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_args *args;
        assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
        set_args(f, args, "config_name=bert-base-uncased train_file=dummy:8x8");
        set_args(f, args, cases[i].set);
        assert_int_equal(snug_args_set(args, "deepspeed", cases[i].text), SNUG_OK);
        *f->log = '\0';
        const snug_status status = snug_args_check(args, "train");
        if (status != cases[i].status || !strstr(snug_error_message(f->ctx), cases[i].says))
            fail_msg("%s: status %d: %s", cases[i].text, (int)status, snug_error_message(f->ctx));
        if (i + 1 == sizeof cases / sizeof *cases)
            assert_contains(f->log,
                            "--deepspeed: without effect in snug: zero_optimization.stage (this run has one rank)\n");
        snug_args_destroy(args);
    }
}

FIXTURE_TEST(test_deepspeed_without_gpu) {
    static const char *const words[] = {"", "--offload optimizer"};
    write_cut(f, 2);
    write_text(f, "ds.json", "{\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\"}}}");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    for (int given = 0; given < 2; given++) {
        char command[512];
        snprintf(command, sizeof command,
                 "plan --config_name cut --train_file dummy:32x16 --num_processes 2 --deepspeed ds.json --json %s",
                 words[given]);
        json_t *plan = run_json(f, command);
        assert_int_equal(json_is_object(json_object_get(plan, "offloaded")), given);
        json_decref(plan);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
}

/* Weights that an update made infinite are named, though no rank has all of them; if they are finite, the run goes on
   for some steps. */
FIXTURE_TEST(test_infinite_weights) {
    static const char *const kinds[][2] = {
        {"--weight_decay 1e38 --learning_rate 1e3", "the weight "},
        {"--learning_rate 1e38 --max_grad_norm 0", "the last 2 steps had no finite "}};
    if (skips) return;
    write_cut(f, 2);
    for (int kind = 0; kind < 2; kind++) {
        char words[512], command[1024];
        snprintf(words, sizeof words,
                 TRAIN "--config_name cut --train_file train.csv --bf16 --max_steps 3 --optim sgd --lr_scheduler_type "
                       "constant %s",
                 kinds[kind][0]);
        snprintf(command, sizeof command, "%s --gradient_accumulation_steps 2 --output_dir one%d", words, kind);
        assert_int_equal(run(f, command), 1);
        char *one = output_of(f, "stderr");
        snprintf(command, sizeof command, "-n 2 " SNUG " %s --zero_stage 3 --output_dir two%d", words, kind);
        assert_int_equal(run_ranks(f, command), 1);
        char *two = output_of(f, "stderr"), *said = strstr(one, kinds[kind][1]);
        if (!said) fail_msg("%s", one);
        *(said + strcspn(said, "\n")) = '\0';
        assert_contains(two, said);
        free(one);
        free(two);
    }
}

/* TEST: only that one. */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    find_mpirun();
    return run_registered(NULL, NULL);
}
