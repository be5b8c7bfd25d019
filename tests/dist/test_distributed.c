/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings on several ranks: the same bits as on one, failures, and what ranks must have in common. */
#include <dlfcn.h>
#include <math.h>
#include <sys/stat.h>

#include "collectives.h"
#include "mpirun.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static char own_path[PATH_MAX]; /* of this test */

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

/* The result on stdout and train_results.json name all ranks, and what each allocated; so does the summary. */
static void assert_summary(const struct fixture *f, const char *output, int count) {
    char host[65], *printed = output_of(f, "stdout"), *text = output_of(f, "stderr");
    gethostname(host, sizeof host);
    json_t *results[] = {json_loads(printed, 0, NULL), read_json(f, path_of(f, "%s/train_results.json", output))};
    for (int i = 0; i < 2; i++) {
        const json_t *ranks = json_object_get(results[i], "ranks");
        assert_int_equal(json_array_size(ranks), count);
        for (int r = 0; r < count; r++) {
            const json_t *rank = json_array_get(ranks, (size_t)r), *memory = json_object_get(rank, "memory");
            assert_string_equal(json_string_value(json_object_get(rank, "host")), host);
            assert_true(json_is_null(json_object_get(rank, "device")));
            assert_true(json_integer_value(json_object_get(memory, "planned")) > 1 << 20);
        }
        json_decref(results[i]);
    }
    assert_contains(text, "  rank  host                 device                           planned    measured");
    for (int r = 0; r < count; r++) {
        char line[128];
        snprintf(line, sizeof line, "\n  %4d  %-20s CPU ", r, host);
        assert_contains(text, line);
    }
    free(printed);
    free(text);
}

/* N ranks with a micro-batch each = one rank with N: model, losses, norms and metrics. 76 rows are 10 micro-batches: at
   3 and 4 ranks some have none in an epoch's last step. "wide" updates rows lazily on one rank. More numbers of ranks:
   test_zero. */
FIXTURE_TEST(test_ranks_are_micro_batches) {
    static const char *const kinds[] = {
        TINY "--num_train_epochs 2 --save_strategy no --json ",
        TRAIN "--config_name wide --train_file train.csv --max_steps 4 --save_strategy no --optim adafactor ",
        TRAIN "--config_name modern --train_file train.csv --max_steps 3 --save_strategy no --recompute layer ",
        TRAIN "--config_name wide --train_file pairs.jsonl --max_steps 4 --save_strategy no --do_regression "
              "--train_sampling_strategy group_by_length --dataloader_num_workers 2 ",
    };
    if (skips) return;
    write_other_families(f, 32);
    FILE *file = fopen(path_of(f, "pairs.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 50; i++)
        fprintf(file, "{\"sentence1\": \"w%d good w%d\", \"sentence2\": \"w%d%s\", \"label\": %d}\n", i, i * 2, i * 3,
                i % 3 ? " bad w1 w2 w1" : "", i % 5);
    assert_int_equal(fclose(file), 0);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            if (!is_long() && ranks != (kind % 2 ? 2 : 3)) continue;
            char words[1024], one[32], many[32];
            snprintf(one, sizeof one, "one%zu_%d", kind, ranks);
            snprintf(many, sizeof many, "many%zu_%d", kind, ranks);
            snprintf(words, sizeof words, "%s --gradient_accumulation_steps %d --output_dir %s", kinds[kind], ranks,
                     one);
            free(run_well(f, words));
            snprintf(words, sizeof words, "%s --output_dir %s", kinds[kind], many);
            run_ranks_well(f, ranks, words);
            assert_same_run(f, one, many);
            if (kind) continue;
            assert_summary(f, many, ranks);
            json_t *results = read_json(f, path_of(f, "%s/train_results.json", one));
            assert_null(json_object_get(results, "ranks"));
            json_decref(results);
        }
}

/* Runs snug verify on two ranks; each check has this result and this part in its line: name, result, part. */
static void verify_on_ranks(const struct fixture *f, const char *words, const char *const expected[][3]) {
    char command[1024], line[256];
    snprintf(command, sizeof command, "-n 2 " SNUG " verify --use_cpu --threads 1 --max_steps 2 %s", words);
    const int code = run_ranks(f, command);
    char *text = output_of(f, "stdout");
    if (code != 0) fail_msg("%s: exit code %d: %s%s", words, code, text, output_of(f, "stderr"));
    for (; (*expected)[0]; expected++) {
        snprintf(line, sizeof line, "\n%s ", (*expected)[0]);
        char *at = strstr(text, line), *end = at ? strchr(at + 1, '\n') : NULL;
        if (!end) fail_msg("%s: no check %s: %s", words, (*expected)[0], text);
        char saved = *end;
        *end = '\0';
        if (!strstr(at, (*expected)[1]) || !strstr(at, (*expected)[2])) fail_msg("%s: %s", words, at);
        *end = saved;
    }
    assert_int_equal(count_of(text, "same seed, same bits"), 1); /* of rank 0 alone */
    free(text);
}

/* snug verify on ranks: they train together, and rank 0 alone has the same results; where docs/distributed.md promises
   no bits, up to the order of sums. No files remain. */
FIXTURE_TEST(test_verify) {
    if (skips) return;
    verify_on_ranks(f, "--config_name model --tokenizer_name model --train_file train.csv --output_dir work",
                    (const char *const[][3]){
                        {"recomputed = stored", "passed", "same bits: none, elementwise, ffn, attention, layer"},
                        {"offloaded = in memory", "passed", "same bits: optimizer, activations"},
                        {"resumed = uninterrupted", "passed", "same bits"},
                        {"resumed on 1 rank = uninterrupted", "passed", "same bits"},
                        {"2 ranks = 1 rank, ZeRO 0 and 1", "passed", "same bits: stage 0, 1"},
                        {"2 ranks = 1 rank, ZeRO 2 and 3", "passed", "same bits: stage 2, 3"},
                        {NULL}});
    assert_false(exists(path_of(f, "work")));
    verify_on_ranks(
        f, "--config_name model --max_seq_length 16 --per_device_train_batch_size 2 --gradient_accumulation_steps 2",
        (const char *const[][3]){{"resumed on 1 rank = uninterrupted", "skipped", "up to the order of sums"},
                                 {"2 ranks = 1 rank, ZeRO 0 and 1", "passed", "mean loss differs by "},
                                 {"2 ranks = 1 rank, ZeRO 2 and 3", "passed", "same bits: stage 2, 3"},
                                 {NULL}});
    verify_on_ranks(
        f, "--config_name model --max_seq_length 16 --per_device_train_batch_size 2 --task mlm --optim adafactor",
        (const char *const[][3]){{"resumed on 1 rank = uninterrupted", "skipped", "up to the order of sums"},
                                 {"2 ranks = 1 rank, ZeRO 0 and 1", "passed", "stage 0"},
                                 {"2 ranks = 1 rank, ZeRO 2 and 3", "skipped", "does not support --optim adafactor"},
                                 {NULL}});
}

/* snug doctor on ranks: rank 0 prints what all would use; what is refused is refused before they are connected. */
FIXTURE_TEST(test_doctor) {
    char part[160], host[65];
    if (skips) return;
    gethostname(host, sizeof host);
    run_ranks_well(f, 2, "doctor --use_cpu --threads 1");
    char *text = output_of(f, "stdout");
    assert_contains(text, "Ranks      2, started by ");
    for (int r = 0; r < 2; r++) {
        snprintf(part, sizeof part, "           %d on %s: the CPU, 1 threads: requested by --use_cpu\n", r, host);
        assert_contains(text, part);
    }
    assert_int_equal(count_of(text, "\nUsed "), 1);
    free(text);
    run_ranks_well(f, 3, "doctor --use_cpu --json");
    text = output_of(f, "stdout");
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    const json_t *ranks = json_object_get(json, "ranks");
    assert_int_equal(json_array_size(ranks), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(ranks, 2), "host")), host);
    assert_true(json_is_null(json_object_get(json_array_get(ranks, 2), "refused")));
    json_decref(json);
    free(text);
    assert_int_equal(run_ranks(f, "-n 2 " SNUG " doctor --use_cpu --update_in_backward"), 1);
    text = output_of(f, "stdout");
    assert_contains(text, "Refused    --update_in_backward is not supported on several ranks yet");
    free(text);
    assert_int_not_equal(run_ranks(f, "-n 2 " SNUG " doctor --use_cpu --fp16"), 0); /* by every rank */
    text = output_of(f, "stdout");
    assert_contains(text, "           1 on ");
    assert_contains(text, ": --fp16: fp16 needs a GPU");
    free(text);
}

/* snug bench anatomy on ranks: what rank 0 sends is what the plan says, in each stage, also where ranks have no rows in
   the last step; on CPUs all of it is waited for. */
FIXTURE_TEST(test_anatomy) {
    if (skips) return;
    write_cut(f, 1);
    for (int stage = is_long() ? 0 : 3; stage <= 3; stage++) {
        char words[512], command[640];
        snprintf(words, sizeof words,
                 "--use_cpu --threads 1 --tokenizer_name model --config_name cut --train_file dummy:80x16 "
                 "--per_device_train_batch_size 8 --zero_stage %d",
                 stage);
        snprintf(command, sizeof command, "bench anatomy %s --num_train_epochs 1 --json", words);
        run_ranks_well(f, 3, command);
        char *text = output_of(f, "stdout");
        json_t *json = json_loads(text, 0, NULL);
        if (!json) fail_msg("%s: %s", command, text);
        snprintf(command, sizeof command, "plan %s --num_processes 3 --json", words);
        json_t *plan = run_json(f, command);
        const json_t *ranks = json_object_get(json, "ranks"), *run = json_object_get(json, "run");
        const double sent = json_number_value(json_object_get(ranks, "sent_bytes")),
                     planned = json_number_value(json_object_get(json_object_get(plan, "ranks"), "sent_bytes"));
        assert_int_equal(json_integer_value(json_object_get(ranks, "count")), 3);
        assert_int_equal(json_integer_value(json_object_get(ranks, "zero_stage")), stage);
        assert_int_equal(json_integer_value(json_object_get(run, "samples")), 80);
        assert_int_equal(json_integer_value(json_object_get(run, "steps")), 4);
        if (fabs(sent - planned) >= 1) fail_msg("stage %d sends %.0f bytes, planned %.0f", stage, sent, planned);
        assert_true(json_number_value(json_object_get(ranks, "communication_seconds")) > 0);
        assert_true(json_number_value(json_object_get(ranks, "hidden")) == 0);
        json_decref(plan);
        json_decref(json);
        free(text);
    }
    run_ranks_well(f, 2,
                   "bench anatomy --use_cpu --threads 1 --tokenizer_name model --config_name model --train_file "
                   "dummy:32x16 --max_steps 2");
    char *text = output_of(f, "stdout");
    assert_contains(text, "\n2 ranks, ZeRO stage 0; memory and times are those of rank 0\n");
    assert_contains(text, "\nCommunication of rank 0 ");
    assert_contains(text, "\nsum_ranks ");
    assert_contains(text, "\ngather_ranks "); /* of the squares of gradients */
    assert_int_equal(count_of(text, "\nTime "), 1);
    free(text);
    assert_said(f, run_ranks(f, "-n 2 " SNUG " bench anatomy --use_cpu --config_name none"), 1,
                (const char *const[]){"rank 0 of 2 on ", "none", NULL});
}

/* Several micro-batches for each rank: another order of the additions, so close but not equal. */
FIXTURE_TEST(test_accumulation_on_ranks) {
    if (skips) return;
    free(run_well(f, TINY "--max_steps 2 --save_strategy no --gradient_accumulation_steps 4 --output_dir one"));
    run_ranks_well(f, 2, TINY "--max_steps 2 --save_strategy no --gradient_accumulation_steps 2 --output_dir two");
    json_t *one = history_of(f, "one"), *two = history_of(f, "two");
    assert_int_equal(json_array_size(one), json_array_size(two));
    for (size_t i = 0; i < json_array_size(one); i++) {
        const json_t *norm = json_object_get(json_array_get(one, i), "grad_norm");
        const double a = json_number_value(norm);
        const double b = json_number_value(json_object_get(json_array_get(two, i), "grad_norm"));
        if (!(fabs(a - b) <= 1e-3 * a)) fail_msg("entry %zu: norms %g and %g", i, a, b);
    }
    json_decref(one);
    json_decref(two);
}

/* ---- resuming ---------------------------------------------------------------------------------------------------- */

#define SAVING TINY "--num_train_epochs 2 --save_steps 2 --eval_strategy steps --eval_steps 2 "
#define BEST SAVING "--load_best_model_at_end "

/* From 1 rank to 4, and back, in the middle of an epoch. test_killed_while_writing resumes the last checkpoint of a
   folder. */
FIXTURE_TEST(test_resumed_on_another_number) {
    if (skips) return;
    free(run_well(f, BEST "--gradient_accumulation_steps 4 --output_dir one"));
    run_ranks_well(f, 4, BEST "--output_dir four");
    assert_same_run(f, "one", "four");
    assert_same_in_both(f, "one", "four", "checkpoint-4/model.safetensors");
    assert_same_in_both(f, "one", "four", "checkpoint-4/optimizer.safetensors");
    free(run_well(f, SAVING "--gradient_accumulation_steps 4 --output_dir down --resume_from_checkpoint "
                            "four/checkpoint-2"));
    assert_same_in_both(f, "one", "down", "checkpoint-6/model.safetensors");
    run_ranks_well(f, 4, SAVING "--output_dir up --resume_from_checkpoint one/checkpoint-2");
    assert_same_in_both(f, "one", "up", "checkpoint-6/model.safetensors");
    assert_same_in_both(f, "one", "up", "checkpoint-6/optimizer.safetensors");
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Rank 0, and rank 1 in a shell that writes its number to a file before it becomes the program. */
static pid_t start_pair(const struct fixture *f, const char *words) {
    char command[2048];
    snprintf(command, sizeof command, "-n 1 " SNUG " %s : -n 1 ./second %s", words, words);
    write_text(f, "second", "#!/bin/sh\necho $$ > number\nexec " SNUG " \"$@\"\n");
    assert_int_equal(chmod(path_of(f, "second"), 0700), 0);
    return start_ranks(f, command);
}

static pid_t second_of(const struct fixture *f) {
    char *text = read_text(f, path_of(f, "number"), NULL);
    const pid_t number = (pid_t)strtol(text, NULL, 10);
    free(text);
    assert_true(number > 1);
    return number;
}

#define APART                                                                                                          \
    TRAIN "--config_name cut --train_file train.csv --validation_file dev.csv --eval_strategy steps --eval_steps 2 "   \
          "--save_steps 2 --max_steps 4 "

#define AGAIN APART "--resume_from_checkpoint apart/checkpoint-2 --output_dir refused"

/* Ranks with file systems of their own: rank 1 runs in the folder "other", which has the model and the data alone. Only
   rank 0 has checkpoints; it sends the one to resume from, and the best one at the end. No copy remains. */
FIXTURE_TEST(test_separate_file_systems) {
    static const char *const names[] = {"model", "cut", "train.csv", "dev.csv"};
    static const struct {
        const char *words, *output, *same;
    } runs[] = {
        {"--load_best_model_at_end", "apart", "shared"},
        {"--resume_from_checkpoint apart/checkpoint-2 --zero_stage 3", "three", "shared/checkpoint-4"},
        {"--load_best_model_at_end --zero_stage 3", "best3", "shared"},
    };
    static const char sent[] = "to the ranks whose file system does not have it";
    if (skips || !is_open_mpi) return; /* -wdir is Open MPI's */
    write_cut(f, 1);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "other")), SNUG_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *from = strdup(path_of(f, "%s", names[i]));
        assert_int_equal(symlink(from, path_of(f, "other/%s", names[i])), 0);
        free(from);
    }
    run_ranks_well(f, 3, APART "--load_best_model_at_end --output_dir shared");
    char *shared = output_of(f, "stderr");
    assert_int_equal(count_of(shared, sent), 0);
    free(shared);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[512], command[2048];
        snprintf(words, sizeof words, APART "%s --output_dir %s", runs[i].words, runs[i].output);
        snprintf(command, sizeof command, "-n 1 " SNUG " %s : -n 2 -wdir %s " SNUG " %s", words, path_of(f, "other"),
                 words);
        const int code = run_ranks(f, command);
        char *text = output_of(f, "stderr");
        if (code != 0) fail_msg("%s: exit code %d: %s", command, code, text);
        assert_same_in_both(f, runs[i].same, runs[i].output, "model.safetensors");
        /* The others have sent rank 0 what is divided. */
        assert_same_in_both(f, "shared", runs[i].output, "checkpoint-4/optimizer.safetensors");
        assert_same_in_both(f, "shared", runs[i].output, "checkpoint-4/model.safetensors");
        assert_int_equal(count_of(text, sent), 1);
        for (int rank = 0; rank < 3; rank++)
            assert_false(exists(path_of(f, "other/%s/checkpoint-copy-%d", runs[i].output, rank)));
        free(text);
    }
    /* A rank that cannot write the copy: all ranks end, with its message. */
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "other/refused")), SNUG_OK);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "other/refused/checkpoint-copy-1")), SNUG_OK);
    write_text(f, "other/refused/checkpoint-copy-1/mine", "kept\n");
    char refused[2048];
    snprintf(refused, sizeof refused, "-n 1 " SNUG " %s : -n 2 -wdir %s " SNUG " %s", AGAIN, path_of(f, "other"),
             AGAIN);
    assert_said(f, run_ranks(f, refused), 1,
                (const char *const[]){"snug: rank ", "of 3 on ", ": rank 1 on ", "checkpoint-copy-1", NULL});
    assert_true(exists(path_of(f, "other/refused/checkpoint-copy-1/mine")));
    /* "auto" starts where rank 0 has none, and then takes the last one of the folder, which the other rank does not
       have. */
    for (int again = 0; again < 2; again++) {
        static const char words[] =
            TRAIN "--config_name model --train_file train.csv --lr_scheduler_type constant "
                  "--max_steps 4 --save_steps 2 --output_dir last --resume_from_checkpoint auto";
        char command[2048];
        snprintf(command, sizeof command, "-n 1 " SNUG " %s : -n 1 -wdir %s " SNUG " %s", words, path_of(f, "other"),
                 words);
        assert_int_equal(run_ranks(f, command), 0);
        char *text = output_of(f, "stderr");
        assert_int_equal(count_of(text, sent), again);
        free(text);
    }
}

/* The other rank's folder: links to the same files. */
static void make_other(const struct fixture *f) {
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "other")), SNUG_OK);
    assert_int_equal(symlink(path_of(f, "model"), path_of(f, "other/model")), 0);
}

#define PARTS TRAIN "--config_name cut --train_file train.csv --max_steps 3 --save_steps 1 "

/* A rank that cannot write its part of a checkpoint, in files of that size: all ranks end, with its message. Nothing of
   the checkpoint remains, and the run continues from the one before. */
FIXTURE_TEST(test_unwritten_part) {
    if (skips || !is_open_mpi) return; /* MPI's shared memory would be limited, too */
    write_cut(f, 1);
    write_text(f, "limited", "#!/bin/sh\nulimit -f 64\nexec " SNUG " \"$@\"\n");
    assert_int_equal(chmod(path_of(f, "limited"), 0700), 0);
    run_ranks_well(f, 3, PARTS "--output_dir whole");
    run_ranks_well(f, 3, PARTS "--output_dir cut_off");
    for (int stage = 0; stage <= 3; stage += 3) {
        char words[512], command[2048];
        for (int step = 2; step <= 3; step++)
            assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "cut_off/checkpoint-%d", step)), SNUG_OK);
        snprintf(words, sizeof words, PARTS "--resume_from_checkpoint True --zero_stage %d --output_dir cut_off",
                 stage);
        snprintf(command, sizeof command, "--mca btl tcp,self -n 2 " SNUG " %s : -n 1 ./limited %s", words, words);
        assert_said(f, run_ranks(f, command), 1,
                    (const char *const[]){"snug: rank ", "of 3 on ", ", step 3: rank 2 on ", ": cannot write ",
                                          "/model.safetensors: File too large", NULL});
        assert_false(has_unfinished(f, "cut_off", ".checkpoint"));
        assert_false(exists(path_of(f, "cut_off/checkpoint-2")));
        run_ranks_well(f, 3, words);
        assert_same_in_both(f, "whole", "cut_off", "model.safetensors");
        assert_same_in_both(f, "whole", "cut_off", "checkpoint-2/optimizer.safetensors");
    }
}

/* One rank's memory is limited to half of what the plan needs. */
FIXTURE_TEST(test_rank_without_memory) {
    static const char words[] = "train --use_cpu --config_name model --tokenizer_name model --threads 1 --train_file "
                                "dummy:16384x16 --per_device_train_batch_size 16384 --max_steps 1 --output_dir out";
    char command[1024];
    if (skips || !is_open_mpi || SANITIZED) return; /* sanitizers reserve address space */
    write_text(f, "limited", "#!/bin/sh\nulimit -v 600000\nexec " SNUG " \"$@\"\n");
    assert_int_equal(chmod(path_of(f, "limited"), 0700), 0);
    snprintf(command, sizeof command, "--mca btl tcp,self -n 1 " SNUG " %s : -n 1 ./limited %s", words, words);
    assert_said(f, run_ranks(f, command), 1,
                (const char *const[]){"snug: rank 1 of 2 on ", ": the allocation of ", " bytes failed: ", NULL});
    assert_false(exists(path_of(f, "out/model.safetensors")));
}

/* A rank that finds something else in the place of the folder. */
FIXTURE_TEST(test_unopened_file) {
    char command[2048];
    if (skips || !is_open_mpi) return; /* -wdir is Open MPI's */
    make_other(f);
    assert_int_equal(symlink(path_of(f, "train.csv"), path_of(f, "other/train.csv")), 0);
    static const char words[] = TRAIN "--config_name model --train_file train.csv --max_steps 20000 --save_steps 20 "
                                      "--save_total_limit 1 --output_dir out";
    snprintf(command, sizeof command, "-n 1 " SNUG " %s : -n 1 -wdir %s " SNUG " %s", words, path_of(f, "other"),
             words);
    const pid_t launcher = start_ranks(f, command);
    wait_for_text(f, "stderr", "'epoch': 5.");
    write_text(f, "other/out", "mine\n");
    assert_said(f, wait_for(launcher), 1,
                (const char *const[]){"snug: rank ", "of 2 on ", ": rank 1 on ", ": cannot write ",
                                      "/model.safetensors: Not a directory", NULL});
    assert_false(has_unfinished(f, "out", ".checkpoint"));
}

/* A signal to one rank: all stop at the same step, one checkpoint is saved, and the exit code is 130. */
FIXTURE_TEST(test_interrupted_rank) {
    static const char *const said[] = {"interrupted at step ", "--resume_from_checkpoint True", NULL};
    if (skips) return;
    const pid_t launcher = start_pair(f, TINY "--num_train_epochs 1000 --save_strategy no --output_dir stopped");
    wait_for_text(f, "stderr", "'epoch': 1.");
    assert_int_equal(kill(second_of(f), SIGTERM), 0);
    assert_said(f, wait_for(launcher), 130, said);
    char *text = output_of(f, "stderr");
    long long step;
    assert_int_equal(sscanf(strstr(text, said[0]) + strlen(said[0]), "%lld", &step), 1);
    free(text);
    assert_true(exists(path_of(f, "stopped/checkpoint-%lld/optimizer.safetensors", step)));
}

/* ---- differences between ranks, and arguments that ranks do not support ------------------------------------------ */

#define SHORT TRAIN "--config_name model --train_file train.csv --max_steps 2 --save_strategy no --output_dir out "

/* Two ranks, of which the second runs in the folder "other", with its own arguments. */
static int run_unlike(const struct fixture *f, const char *first, const char *second) {
    char command[2048];
    snprintf(command, sizeof command, "-n 1 " SNUG " %s : -n 1 -wdir %s " SNUG " %s", first, path_of(f, "other"),
             second);
    return run_ranks(f, command);
}

/* A copy of the program in the test's folder, whose build id differs in one byte, with one plug-in. */
static void write_other_build(const struct fixture *f, const char *plugin) {
    static const char name[] = "\x14\0\0\0\x03\0\0\0GNU"; /* of 20 bytes, a build id */
    size_t size;
    char *program = read_text(f, SNUG, &size);
    char *note = memmem(program, size, name, sizeof name);
    assert_non_null(note);
    note[sizeof name] ^= 1;
    FILE *file = fopen(path_of(f, "snug"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(program, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path_of(f, "snug"), 0700), 0);
    snprintf(program, size, SNUG_BINARY_DIR "/%s", plugin);
    assert_int_equal(symlink(program, path_of(f, "%s", plugin)), 0);
    free(program);
}

FIXTURE_TEST(test_unlike_builds) {
    if (skips) return;
    write_other_build(f, is_open_mpi ? SNUG_MPI_OPENMPI : SNUG_MPI_MPICH);
    assert_said(f, run_ranks(f, "-n 1 " SNUG " " SHORT " : -n 1 ./snug " SHORT), 2,
                (const char *const[]){"rank 1 on ", "has another version or build of snug than rank 0", NULL});
}

/* Where both are installed: one build runs with each, and a plug-in of the other MPI alone is refused. */
FIXTURE_TEST(test_mpich) {
    static const char launch[] = "/usr/bin/mpirun.mpich -n 2 ";
    static const char words[] = TRAIN "--config_name model --train_file train.csv --max_steps 3 --save_strategy no ";
    char command[1024];
    /* MPICH's UCX replaces functions of the allocator, as sanitizers do. */
    if (skips || !is_open_mpi || SANITIZED || access("/usr/bin/mpirun.mpich", X_OK) != 0) return;
    snprintf(command, sizeof command, "%s" SNUG " %s --output_dir two", launch, words);
    if (wait_for(start_words(f, command))) fail_msg("%s: %s", command, output_of(f, "stderr"));
    snprintf(command, sizeof command, "%s --gradient_accumulation_steps 2 --output_dir one", words);
    free(run_well(f, command));
    assert_same_in_both(f, "one", "two", "model.safetensors");
    write_other_build(f, SNUG_MPI_MPICH);
    snprintf(command, sizeof command, "-n 2 ./snug %s --output_dir none", words);
    assert_int_equal(run_ranks(f, command), 1);
    char *text = output_of(f, "stderr");
    assert_contains(text, " of 2 by the variables of Open MPI, but rank 0 of 1 in MPICH Version:");
    assert_null(strchr(text, '\t'));
    free(text);
    assert_false(exists(path_of(f, "none")));
}

FIXTURE_TEST(test_unlike_ranks) {
    if (skips || !is_open_mpi) return; /* -wdir is Open MPI's */
    make_other(f);
    assert_int_equal(symlink(path_of(f, "train.csv"), path_of(f, "other/train.csv")), 0);
    assert_said(f, run_unlike(f, SHORT, SHORT "--seed 1"), 2,
                (const char *const[]){"rank 0 of 2 on ", "rank 1 on ", "has other arguments than rank 0", NULL});
    assert_said(f, run_unlike(f, SHORT, SHORT "--per_device_train_batch_size 4"), 2,
                (const char *const[]){"other arguments", NULL});
    unlink(path_of(f, "other/train.csv"));
    write_data(f, "other/train.csv", FORM_SINGLE, TRAIN_ROWS, 3);
    assert_said(f, run_unlike(f, SHORT, SHORT), 2,
                (const char *const[]){"has other data or another model configuration than rank 0", NULL});
    assert_false(exists(path_of(f, "out")));
    /* One rank's bad data ends both. */
    write_text(f, "other/train.csv", "sentence,label\nw1,good\nw2,bad,more\n");
    const double begin = now();
    assert_said(f, run_unlike(f, SHORT, SHORT), 1,
                (const char *const[]){"rank 1 of 2 on ", "train.csv:3: row has 3 fields", NULL});
    assert_true(now() - begin < 10);
    /* All ranks have the same error: it is reported once. */
    assert_said(f, run_ranks(f, "-n 2 " SNUG " " SHORT "--train_file none.csv"), 1,
                (const char *const[]){"rank 0 of 2 on ", "none.csv", NULL});
    assert_said(f, run_ranks(f, "-n 3 " SNUG " " SHORT "--memory_budget 1MiB"), 3,
                (const char *const[]){"rank 0 of 3 on ", "--memory_budget", NULL});
}

/* Without MPI's launcher nothing is trained, and no command takes several ranks for one. */
FIXTURE_TEST(test_refused) {
    static const struct {
        const char *variables[3], *words;
        int code;
        const char *says;
    } cases[] = {
        {{"WORLD_SIZE=2"}, SHORT, 2, "RANK is not set"},
        {{"WORLD_SIZE=2", "RANK=2"}, SHORT, 2, "ranks are numbered from 0 to 1"},
        {{"WORLD_SIZE=2", "RANK=0"},
         SHORT "--offload gradients",
         1,
         "--offload of other tensors than optimizer and activations is not supported on several ranks"},
        {{"WORLD_SIZE=2", "RANK=0"}, SHORT "--update_in_backward", 1, "--update_in_backward is not supported"},
        {{"WORLD_SIZE=2", "RANK=1"}, SHORT "--local_rank 1", 2, "this is rank 1 of 2, with local rank 0"},
        {{"WORLD_SIZE=2", "RANK=1"}, SHORT, 1, "2"},
        {{"WORLD_SIZE=2", "RANK=1"}, "plan --config_name model", 1, "snug plan runs in a single process"},
        {{"WORLD_SIZE=2", "RANK=1"}, "verify --config_name model", 1, "2"},
        {{"WORLD_SIZE=1", "RANK=0", "LOCAL_RANK=0"}, SHORT "--local_rank 0", 0, "loss"},
        {{"WORLD_SIZE=2", "RANK=1"}, SHORT "--local_rank -1", 1, "2"},
        {{"WORLD_SIZE=2", "RANK=1", "LOCAL_RANK=1"}, SHORT "--local_rank 1", 1, "2"},
        {{NULL}, SHORT "--local_rank two", 2, "--local_rank two: must be a whole number"},
        {{NULL}, SHORT "--local_rank -2", 2, "--local_rank -2: must be a whole number"},
        {{NULL}, SHORT "--local_rank None", 0, "loss"},
        {{NULL}, SHORT "--local_rank 1 --output_dir local", 2, "--local_rank 1: "},
        {{NULL}, SHORT "--local_rank -1 --output_dir local", 0, "loss"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int v = 0; v < 3 && cases[i].variables[v]; v++) putenv((char *)(uintptr_t)cases[i].variables[v]);
        const int code = run(f, cases[i].words);
        for (const char *const *name = (const char *const[]){"WORLD_SIZE", "RANK", "LOCAL_RANK", NULL}; *name; name++)
            unsetenv(*name);
        char *text = output_of(f, "stderr");
        if (code != cases[i].code || !strstr(text, cases[i].says))
            fail_msg("case %zu: exit code %d: %s", i, code, text);
        free(text);
    }
}

/* TEST: only that one. */
/* MPI counts with 32 bits: what is larger is cut. Here pieces are small, of all operations alike. */
TEST_IN(test_pieces, void *fixture, set_up, tear_down) {
    if (skips) skip();
    char command[600];
    snprintf(command, sizeof command, "-n 3 %.500s operations", own_path);
    char *policy = strdup(getenv("OMP_WAIT_POLICY"));
    setenv("OMP_WAIT_POLICY", "active", 1); /* these ranks do not sleep while they wait; others of this test do */
    const int code = run_ranks(fixture, command);
    setenv("OMP_WAIT_POLICY", policy, 1);
    free(policy);
    if (code != 0) fail_msg("exit code %d: %s", code, output_of(fixture, "stderr"));
}

/* A rank of it. */
static int run_operations(void) {
    static const int64_t pieces[] = {INT32_MAX, 1000000, 65537};
    snug_context *ctx;
    const struct snug_collectives *c = &(struct snug_collectives){.rank = -1}, *opened;
    void *plugin = dlopen(is_open_mpi ? SNUG_BINARY_DIR "/" SNUG_MPI_OPENMPI : SNUG_BINARY_DIR "/" SNUG_MPI_MPICH,
                          RTLD_NOW | RTLD_GLOBAL);
    snug_mpi_plugin_fn *entry;
    CHECK(plugin && snug_context_create(&ctx) == SNUG_OK);
    *(void **)&entry = dlsym(plugin, SNUG_MPI_PLUGIN_SYMBOL);
    CHECK(entry()->open(ctx, &opened) == SNUG_OK);
    c = opened;
    CHECK(c->size == 3 && c->piece == pieces[0]);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        ((struct snug_collectives *)(uintptr_t)c)->piece = pieces[i];
        check_operations(ctx, c);
    }
    c->close();
    snug_context_destroy(ctx);
    return 0;
}

int main(int argc, char **argv) {
    find_mpirun();
    assert_non_null(realpath(argv[0], own_path));
    if (argc > 1 && strcmp(argv[1], "operations") == 0) return run_operations();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return run_registered(NULL, NULL);
}
