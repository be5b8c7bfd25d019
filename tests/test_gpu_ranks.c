/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on GPUs, started by --gpus: every number of ranks and every ZeRO stage has the bits of one GPU with as many
 * micro-batches. Where the plug-in was built by tools/cuda-emulate the GPUs and NCCL are emulated; else the machine
 * needs as many GPUs (SNUG_TEST_GPUS=2).
 */
#include "program.h"

#define TRAIN                                                                                                          \
    "train --device cuda --tokenizer_name model --per_device_train_batch_size 4 --learning_rate 1e-3 --threads 1 "     \
    "--logging_steps 1 --train_file train.csv "

static int gpus;

/* How many GPUs there are, of the emulator or of this machine. */
static void find_gpus(void) {
    const char *given = getenv("SNUG_TEST_GPUS");
    if (access(SNUG_BINARY_DIR "/libnccl.so.2", R_OK) == 0) {
        gpus = 4;
        setenv("SNUG_EMULATED_GPUS", "4", 1);
    } else if (given) {
        gpus = atoi(given);
    }
    if (gpus < 2)
        print_message("skipped: ranks on GPUs need tools/cuda-emulate, or a machine with two GPUs and SNUG_TEST_GPUS=2\n");
}

static void write_inputs(struct fixture *f) {
    write_model(f, "cut", 0.1, 160, 1, VOCABULARY);
    write_data(f, "train.csv", FORM_SINGLE, 38, 1); /* 10 micro-batches: an epoch's last step has fewer than ranks */
    write_data(f, "dev.csv", FORM_SINGLE, 19, 2);
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static void test_stages_have_the_same_bits(void **state) {
    static const struct {
        const char *words;
        int ranks;
    } kinds[] = {
        {"--validation_file dev.csv --eval_strategy epoch --num_train_epochs 1 --bf16 --save_steps 2 ", 2},
        {"--max_steps 4 --bf16 --optim adamw_8bit --save_steps 2 --validation_file dev.csv ", 4},
        {"--max_steps 4 --fp16 --freeze embeddings --save_steps 2 ", 3},
    };
    struct fixture *f = *state;
    if (gpus < 2) return;
    write_inputs(f);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        char words[1024], one[32], many[32];
        const int ranks = kinds[kind].ranks;
        if (ranks > gpus) continue;
        snprintf(one, sizeof one, "one%zu", kind);
        snprintf(words, sizeof words, TRAIN "%s --config_name cut --gradient_accumulation_steps %d --output_dir %s",
                 kinds[kind].words, ranks, one);
        free(run_well(f, words));
        for (int stage = 0; stage <= 3; stage++) {
            snprintf(many, sizeof many, "many%zu_%d", kind, stage);
            snprintf(words, sizeof words, TRAIN "%s --config_name cut --gpus %d --zero_stage %d --output_dir %s",
                     kinds[kind].words, ranks, stage, many);
            free(run_well(f, words));
            assert_same_run(f, one, many);
            assert_same_in_both(f, one, many, "checkpoint-2/model.safetensors");
            assert_same_in_both(f, one, many, "checkpoint-2/optimizer.safetensors");
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stages_have_the_same_bits, set_up, tear_down),
    };
    find_gpus();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
