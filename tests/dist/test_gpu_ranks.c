/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on GPUs, started by --gpus: every number of ranks and every ZeRO stage has the bits of one GPU with as many
 * micro-batches. Where the plug-in was built by tools/cuda-emulate the GPUs and NCCL are emulated; else the machine
 * needs as many GPUs. SNUG_TEST_GPUS: how many GPUs there are, or to emulate (4), and how many ranks are killed (2).
 * tests/dist/rank_kills.h has the other variables of the kills.
 */
#include "rank_kills.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define TRAIN                                                                                                          \
    "train --device cuda --tokenizer_name model --per_device_train_batch_size 4 --learning_rate 1e-3 --threads 1 "     \
    "--logging_steps 1 --train_file train.csv "

static int gpus, killed = 2; /* killed: ranks of the run whose ranks are killed at random */

/* How many GPUs there are, of the emulator or of this machine. */
static void find_gpus(void) {
    const char *given = getenv("SNUG_TEST_GPUS");
    if (given) gpus = killed = atoi(given);
    if (access(SNUG_BINARY_DIR "/libnccl.so.2", R_OK) == 0) {
        char number[16];
        if (!given) gpus = 4;
        snprintf(number, sizeof number, "%d", gpus);
        setenv("SNUG_EMULATED_GPUS", number, 1);
    }
    if (killed > RANKS_MOST) killed = RANKS_MOST;
    if (gpus < 2)
        print_message(
            "skipped: ranks on GPUs need tools/cuda-emulate, or a machine with two GPUs and SNUG_TEST_GPUS=2\n");
}

static void write_inputs(struct fixture *f) {
    write_cut(f, 1);
    write_data(f, "pairs.csv", FORM_PAIRS, 38, 6);
    write_data(f, "train.csv", FORM_SINGLE, 38, 1); /* 10 micro-batches: an epoch's last step has fewer than ranks */
    write_data(f, "dev.csv", FORM_SINGLE, 19, 2);
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_stages_have_the_same_bits) {
    static const struct {
        const char *words;
        int ranks;
        bool apart; /* the GPUs do not reach each other's memory */
    } kinds[] = {
        {"--validation_file dev.csv --eval_strategy epoch --num_train_epochs 1 --bf16 --save_steps 2 ", 2, false},
        {"--max_steps 3 --bf16 --optim adamw_8bit --save_steps 2 --validation_file dev.csv ", 4, false},
        {"--max_steps 4 --fp16 --freeze embeddings --save_steps 2 ", 3, false},
        {"--max_steps 2 --dtype bfloat16 --save_steps 2 ", 2, false},
        {"--max_steps 2 --bf16 --freeze embeddings,layer.0 --validation_file dev.csv --save_steps 2 ", 2, true},
        {"--max_steps 2 --bf16 --save_steps 2 ", 2, true},
        {"--task embedding --train_file pairs.csv --num_train_epochs 1 --bf16 --save_steps 2 ", 3, false},
        {"--task embedding --train_file pairs.csv --max_steps 2 --save_steps 2 ", 2, true},
    };
    if (gpus < 2) return;
    write_inputs(f);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        char words[1024], one[32], many[32];
        const int ranks = kinds[kind].ranks;
        if (ranks > gpus || (kinds[kind].apart && !getenv("SNUG_EMULATED_GPUS"))) continue;
        if (kinds[kind].apart) setenv("SNUG_EMULATED_IPC", "none", 1);
        snprintf(one, sizeof one, "one%zu", kind);
        snprintf(words, sizeof words, TRAIN "%s --config_name cut --gradient_accumulation_steps %d --output_dir %s",
                 kinds[kind].words, ranks, one);
        free(run_well(f, words));
        for (int stage = 0; stage <= 3; stage++) {
            snprintf(many, sizeof many, "many%zu_%d", kind, stage);
            snprintf(words, sizeof words, TRAIN "%s --config_name cut --gpus %d --zero_stage %d --output_dir %s",
                     kinds[kind].words, ranks, stage, many);
            free(run_well(f, words));
            char *text = output_of(f, "stderr");
            assert_contains(text, kinds[kind].apart ? "NCCL exchanges gradients and weights"
                                                    : "the GPUs write to each other's memory");
            assert_null(strstr(text, "not laid out alike"));
            free(text);
            assert_same_run(f, one, many);
            assert_same_in_both(f, one, many, "checkpoint-2/model.safetensors");
            assert_same_in_both(f, one, many, "checkpoint-2/optimizer.safetensors");
        }
        unsetenv("SNUG_EMULATED_IPC");
    }
}

/* States and activations in host memory or in a file; in the epoch's last step two ranks have no micro-batch. */
FIXTURE_TEST(test_offload) {
    static const char words[] = TRAIN "--config_name large --max_steps 3 --bf16 --save_steps 2 ";
    static const struct {
        const char *words;
        int stage;
    } kinds[] = {{"--offload optimizer", 0},
                 {"--offload optimizer --offload_dir .", 1},
                 {"--offload optimizer,activations", 2},
                 {"--offload optimizer", 3}};
    char command[1024], many[32];
    if (gpus < 4) return;
    write_inputs(f);
    write_model(f, "large", 0.1, 256, 1, VOCABULARY); /* of which a quarter of a matrix is offloaded */
    snprintf(command, sizeof command, "%s --gradient_accumulation_steps 4 --output_dir one", words);
    free(run_well(f, command));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(many, sizeof many, "many%zu", i);
        snprintf(command, sizeof command, "%s --gpus 4 --zero_stage %d %s --output_dir %s", words, kinds[i].stage,
                 kinds[i].words, many);
        free(run_well(f, command));
        assert_same_run(f, "one", many);
        assert_same_in_both(f, "one", many, "checkpoint-2/optimizer.safetensors");
    }
}

/* A weight that is read in fp32, and as a 16-bit copy: both are updated before the next forward, or a checkpoint, reads
   them. Every stage = stage 0. */
FIXTURE_TEST(test_shared_weight) {
    if (gpus < 2) return;
    write_cut(f, 1);
    write_data(f, "lines.txt", FORM_TEXT, 14, 5);
    for (int stage = 0; stage <= 3; stage++) {
        char words[1024], many[32];
        snprintf(many, sizeof many, "many%d", stage);
        snprintf(words, sizeof words,
                 "train --device cuda --tokenizer_name model --per_device_train_batch_size 4 --learning_rate 1e-3 "
                 "--threads 1 --logging_steps 1 --task mlm --config_name cut --train_file lines.txt --line_by_line "
                 "--max_steps 3 --bf16 --gpus 2 --save_steps 2 --zero_stage %d --output_dir %s",
                 stage, many);
        free(run_well(f, words));
        if (!stage) continue;
        assert_same_run(f, "many0", many);
        assert_same_in_both(f, "many0", many, "checkpoint-2/model.safetensors");
    }
}

/* torchrun's variables, and those of srun --mpi=pmi2. */
static const char *const launchers[][8][2] = {
    {{"RANK", ""},
     {"LOCAL_RANK", ""},
     {"WORLD_SIZE", "2"},
     {"LOCAL_WORLD_SIZE", "2"},
     {"MASTER_ADDR", "127.0.0.1"},
     {"MASTER_PORT", "29511"},
     {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
    {{"SLURM_PROCID", ""},
     {"SLURM_LOCALID", ""},
     {"PMI_RANK", ""},
     {"PMI_SIZE", "2"},
     {"SLURM_STEP_NUM_TASKS", "2"},
     {"SLURM_STEP_NODELIST", "127.0.0.1"},
     {"SLURM_JOB_ID", "17"}},
};

/* Two ranks with a launcher's variables, of which those with an empty value get the number of the rank. */
static void start_by(const struct fixture *f, const char *const (*variables)[2], pid_t ranks[2], const char *words) {
    for (int r = 0; r < 2; r++) {
        for (int i = 0; variables[i][0]; i++)
            setenv(variables[i][0], *variables[i][1] ? variables[i][1] : r ? "1" : "0", 1);
        ranks[r] = start(f, words);
    }
    for (int i = 0; variables[i][0]; i++) unsetenv(variables[i][0]);
}

/* Evaluations and predictions are those of one GPU. */
FIXTURE_TEST(test_started_by_variables) {
    if (gpus < 2) return;
    write_inputs(f);
    free(run_well(f, TRAIN "--config_name cut --max_steps 2 --gradient_accumulation_steps 2 --output_dir one"));
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        char command[512], folder[32];
        pid_t ranks[2];
        snprintf(folder, sizeof folder, "two%zu", i);
        snprintf(command, sizeof command, TRAIN "--config_name cut --max_steps 2 --output_dir %s", folder);
        start_by(f, launchers[i], ranks, command);
        for (int r = 0; r < 2; r++) assert_int_equal(wait_for(ranks[r]), 0);
        assert_same_in_both(f, "one", folder, "model.safetensors");
    }
    char *printed[2][2];
    for (int many = 0; many < 2; many++) {
        static const char words[] = "--device cuda --threads 1 --model_name_or_path one --per_device_eval_batch_size 3";
        char command[512];
        snprintf(command, sizeof command, "eval %s --validation_file dev.csv %s", words, many ? "--gpus 2" : "");
        printed[many][0] = run_well(f, command);
        *strstr(printed[many][0], "eval_runtime") = '\0'; /* seconds differ */
        snprintf(command, sizeof command, "predict %s --test_file dev.csv %s", words, many ? "--gpus 2" : "");
        printed[many][1] = run_well(f, command);
    }
    for (int i = 0; i < 2; i++) {
        assert_string_equal(printed[0][i], printed[1][i]);
        for (int many = 0; many < 2; many++) free(printed[many][i]);
    }
}

/* snug doctor and bench anatomy on two GPUs. */
FIXTURE_TEST(test_commands) {
    pid_t ranks[2];
    if (gpus < 2) return;
    write_inputs(f);
    start_by(f, launchers[0], ranks, "doctor --device cuda --threads 1");
    for (int r = 0; r < 2; r++) assert_int_equal(wait_for(ranks[r]), 0);
    char *text = output_of(f, "stdout");
    assert_contains(text, "Ranks      2, started by torchrun");
    assert_contains(text, "           1 on ");
    free(text);
    json_t *json = run_json(f, "bench anatomy --device cuda --threads 1 --config_name cut --tokenizer_name model "
                               "--train_file train.csv --per_device_train_batch_size 4 --max_steps 2 --gpus 2 "
                               "--zero_stage 3 --json");
    const json_t *found = json_object_get(json, "ranks");
    assert_int_equal(json_integer_value(json_object_get(found, "count")), 2);
    assert_true(json_number_value(json_object_get(found, "communication_seconds")) > 0);
    json_decref(json);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

#define LONG TRAIN "--config_name cut --num_train_epochs 500 "

/* The ranks that a launcher starts, in their order. */
static void find_ranks(const struct fixture *f, pid_t launcher, int count, pid_t *out) {
    char path[64];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    const double begin = now();
    while (found < count) {
        FILE *file = fopen(path, "r");
        if (!file || now() - begin > LIMIT) fail_msg("the ranks have not begun: %s", output_of(f, "stderr"));
        found = 0;
        for (int number; found < count && fscanf(file, "%d", &number) == 1;) out[found++] = number;
        fclose(file);
    }
}

/* A rank that is killed is named, in one message of all ranks, and all are gone in time: while they wait for each
   other's GPUs, in the call of another library, and while they read data. If rank 0 is killed, all others notice it. */
FIXTURE_TEST(test_killed_rank) {
    static const char in_steps[] = "'loss': ", at_start[] = "write to each other's memory";
    static const struct {
        int ranks, killed;
        const char *after;
    } cases[] = {{2, 0, in_steps}, {2, 1, in_steps}, {4, 0, in_steps},
                 {4, 2, in_steps}, {4, 0, at_start}, {4, 3, at_start}};
    write_inputs(f);
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const int count = cases[i].ranks;
        char command[512], name[32];
        pid_t ranks[4] = {0};
        if (gpus < count) continue;
        snprintf(command, sizeof command, LONG "--gpus %d --zero_stage %d --output_dir out%d", count, i % 4, i);
        const pid_t launcher = start(f, command);
        wait_for_text(f, "stderr", cases[i].after);
        find_ranks(f, launcher, count, ranks);
        const double begin = now();
        assert_int_equal(kill(ranks[cases[i].killed], SIGKILL), 0);
        assert_int_equal(wait_for(launcher), 1);
        assert_true(now() - begin < LIMIT);
        for (int r = 0; r < count; r++) assert_int_equal(kill(ranks[r], 0), -1);
        char *text = output_of(f, "stderr");
        snprintf(name, sizeof name, "rank %d of %d on ", cases[i].killed, count);
        assert_contains(text, name);
        assert_contains(text, "has ended without a message");
        assert_one_message("train", text);
        free(text);
    }
}

/* A process that is stopped is named, also where another one waits for its GPU and not in an operation of their hosts.
 */
FIXTURE_TEST(test_stopped_rank) {
    enum { TIMEOUT = 10 }; /* on a busy machine ranks wait for each other for some seconds when they start */
    pid_t ranks[2];
    char command[512];
    if (gpus < 2) return;
    write_inputs(f);
    snprintf(command, sizeof command, LONG "--gpus 2 --ddp_timeout %d --output_dir out", TIMEOUT);
    const pid_t launcher = start(f, command);
    wait_for_text(f, "stderr", "'loss': ");
    find_ranks(f, launcher, 2, ranks);
    const double begin = now();
    assert_int_equal(kill(ranks[0], SIGSTOP), 0);
    assert_int_equal(wait_for(launcher), 1);
    assert_true(now() - begin < TIMEOUT + LIMIT);
    char *text = output_of(f, "stderr");
    assert_contains(text, "rank 0 of 2 on ");
    assert_contains(text, "was it stopped, or does its host swap?");
    assert_one_message("train", text);
    free(text);
}

/* The ranks then have the kernel's SIGTERM: they save, and end without a launcher. */
FIXTURE_TEST(test_lost_launcher) {
    pid_t ranks[2];
    if (gpus < 2) return;
    write_inputs(f);
    const pid_t launcher = start(f, LONG "--gpus 2 --output_dir out");
    wait_for_text(f, "stderr", "'loss': ");
    find_ranks(f, launcher, 2, ranks);
    const double begin = now();
    assert_int_equal(kill(launcher, SIGKILL), 0);
    end_of(launcher);
    assert_gone(f, ranks, 2, begin);
    char *text = output_of(f, "stderr");
    assert_contains(text, "interrupted at step ");
    assert_one_message("train", text);
    free(text);
}

/* An error that all ranks find, and one that a rank finds for all, are reported once. */
FIXTURE_TEST(test_one_message) {
    static const struct {
        const char *words, *says;
        int code;
    } cases[] = {
        {"--train_file nothing.csv", "rank 0 of 3 on ", 1},
        {"--memory_budget 1MB", "rank 0 of 3 on ", 3},
        {"--use_cpu", "--gpus and --use_cpu contradict each other", 2},
    };
    if (gpus < 3) return;
    write_inputs(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        snprintf(command, sizeof command, TRAIN "--config_name cut --gpus 3 --output_dir out %s", cases[i].words);
        assert_int_equal(run(f, command), cases[i].code);
        char *text = output_of(f, "stderr");
        assert_contains(text, cases[i].says);
        assert_one_message(cases[i].words, text);
        free(text);
    }
}

static pid_t start_gpus(const struct fixture *f, int ranks, const char *words) {
    char command[2048];
    snprintf(command, sizeof command, "%s --gpus %d", words, ranks);
    return start(f, command);
}

/* Emulated GPUs take about as long for a step as those of a machine take for twenty. */
FIXTURE_TEST(test_kills_at_random) {
    const bool emulated = getenv("SNUG_EMULATED_GPUS");
    struct kills k = {.ranks = killed, .start = start_gpus, .find = find_ranks};
    if (gpus < 2) return;
    write_inputs(f);
    k.words = emulated ? TRAIN "--config_name cut --bf16 --max_steps 12 --save_steps 4 --save_total_limit 2"
                       : TRAIN "--config_name cut --bf16 --max_steps 2000 --save_steps 100 --save_total_limit 2";
    set_kills(&k, emulated ? 1 : 50);
    kill_at_random(f, &k);
}

/* A signal to the launcher: all save once, and end with 130; resumed on another number of GPUs the bits are the same.
 */
FIXTURE_TEST(test_interrupted) {
    static const char words[] = TRAIN "--config_name cut --max_steps 12 --bf16 --save_steps 100 --output_dir ";
    char command[512];
    if (gpus < 2) return;
    write_inputs(f);
    snprintf(command, sizeof command, "%s one --gradient_accumulation_steps 2", words);
    free(run_well(f, command));
    snprintf(command, sizeof command, "%s two --gpus 2 --zero_stage 3", words);
    const pid_t launcher = start(f, command);
    wait_for_text(f, "stderr", "'loss': ");
    assert_int_equal(kill(launcher, SIGTERM), 0);
    assert_int_equal(wait_for(launcher), 130);
    char *text = output_of(f, "stderr");
    assert_contains(text, "interrupted at step ");
    free(text);
    snprintf(command, sizeof command, "%s two --gradient_accumulation_steps 2 --resume_from_checkpoint True", words);
    free(run_well(f, command));
    assert_same_in_both(f, "one", "two", "model.safetensors");
}

/* In the emulator alone: too few GPUs, one GPU twice, another NCCL, a failure of NCCL. */
FIXTURE_TEST(test_refused_by_ranks) {
    static const struct {
        const char *variables[2][2], *says;
    } cases[] = {
        {{{"SNUG_EMULATED_GPUS", "2"}}, "this is local rank 2, and CUDA can use 2 GPUs here"},
        {{{"SNUG_EMULATED_GPUS", "1"}}, "ranks 0 and 1 have the same GPU, emulated"},
        {{{"SNUG_EMULATED_NCCL", "differs"}}, "NCCL 22809, and rank 1 has a driver for CUDA "},
        {{{"SNUG_EMULATED_NCCL", "fails"}}, "NCCL: connecting the GPUs: unhandled system error"},
    };
    const char *given = getenv("SNUG_EMULATED_GPUS");
    char many[16];
    if (!given || gpus < 3) return;
    snprintf(many, sizeof many, "%s", given);
    write_inputs(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 2 && cases[i].variables[k][0]; k++)
            setenv(cases[i].variables[k][0], cases[i].variables[k][1], 1);
        const double begin = now();
        assert_int_equal(run(f, TRAIN "--config_name cut --gpus 3 --output_dir out"), 1);
        assert_true(now() - begin < LIMIT);
        char *text = output_of(f, "stderr");
        assert_contains(text, cases[i].says);
        assert_contains(text, "rank ");
        assert_one_message("train", text);
        free(text);
        setenv("SNUG_EMULATED_GPUS", many, 1);
        unsetenv("SNUG_EMULATED_NCCL");
    }
}

/* On any machine: what the launcher refuses before it starts a rank. */
FIXTURE_TEST(test_refused_by_launcher) {
    static const struct {
        const char *words, *says;
        const char *variable, *value;
    } cases[] = {
        {"--gpus 0", "--gpus: 0 is neither all nor a whole number from 1 to 64", NULL, NULL},
        {"--gpus 2x", "--gpus: 2x is neither all nor", NULL, NULL},
        {"--gpus 65", "--gpus: 65 is neither all nor", NULL, NULL},
        {"--gpus 2", "the environment has WORLD_SIZE: a launcher has started this rank already", "WORLD_SIZE", "2"},
        {"--gpus 2", "the environment has OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "2"},
        {"--gpus 2", "the environment has SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS", "2"},
        {"--gpus 0", "--gpus: 0 is neither all nor", "SLURM_STEP_NUM_TASKS", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        if (cases[i].variable) setenv(cases[i].variable, cases[i].value, 1);
        snprintf(command, sizeof command, TRAIN "--config_name model --output_dir out %s", cases[i].words);
        const int code = run(f, command);
        if (cases[i].variable) unsetenv(cases[i].variable);
        char *text = output_of(f, "stderr");
        if (code != 2 || !strstr(text, cases[i].says)) fail_msg("%s: exit code %d: %s", cases[i].words, code, text);
        free(text);
    }
}

/* Ranks on CPUs, or where there is no GPU, are refused before any is started, or by one message of all ranks. */
FIXTURE_TEST(test_no_gpu) {
    static const struct {
        const char *words, *says;
        int code;
    } cases[] = {
        {"train --tokenizer_name model --config_name model --train_file train.csv --output_dir out --gpus 2 --use_cpu",
         "--gpus and --use_cpu contradict each other; start ranks on CPUs with mpirun -n 2", 2},
        {"eval --model_name_or_path model --validation_file train.csv --gpus 2 --device cpu",
         "--gpus and --device cpu contradict each other", 2},
        {"predict --model_name_or_path model --test_file train.csv --gpus 2 --use_cpu",
         "--gpus and --use_cpu contradict each other", 2},
        {"tokenize --model_name_or_path model --train_file train.csv --gpus 2", "--gpus starts the ranks of snug train",
         2},
        {"plan --config_name model --train_file dummy:8x16 --gpus 2", "--gpus 2: this plan would be for CPUs", 2},
        {"train --tokenizer_name model --config_name model --train_file train.csv --output_dir out --gpus 2",
         "--gpus: CUDA finds no GPU here; snug doctor says why", 2},
        {"bench anatomy --config_name model --train_file dummy:8x16 --gpus 2", "--gpus: CUDA finds no GPU here", 2},
        {"embed --model_name_or_path model --text a --gpus 2", "--gpus: CUDA finds no GPU here", 2},
        {"train --tokenizer_name model --config_name model --train_file train.csv --output_dir out --gpus all",
         "--gpus: CUDA finds no GPU here", 2},
        {"train --tokenizer_name model --config_name model --train_file train.csv --output_dir out --gpus 2 --device "
         "cuda",
         "rank 0 of 2 on ", 1},
        {"eval --model_name_or_path model --validation_file train.csv --gpus 2 --device cuda", "rank 0 of 2 on ", 1},
        {"predict --model_name_or_path model --test_file train.csv --gpus 2 --device cuda", "rank 0 of 2 on ", 1},
    };
    snug_args *args = training_args(f, "gpus=2");
    assert_int_equal(snug_args_set(args, "output_dir", path_of(f, "out")), SNUG_OK);
    assert_int_equal(snug_train(args, NULL, NULL), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--gpus is for the program snug");
    snug_args_destroy(args);
    const int count = sizeof cases / sizeof *cases;
    const int most = gpus < 2 ? count : 4; /* the last ones on a machine without a GPU alone */
    for (int i = 0; i < most; i++) {
        const int code = run(f, cases[i].words);
        char *text = output_of(f, "stderr");
        if (code != cases[i].code || !strstr(text, cases[i].says) || messages_in(text) != 1)
            fail_msg("%s: exit code %d: %s", cases[i].words, code, text);
        free(text);
    }
}

/* TEST: only that one. */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    find_gpus();
    return run_registered(NULL, NULL);
}
