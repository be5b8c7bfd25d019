/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are killed, stopped or cut off: all ranks end within 10 s, one message names the rank, and the run can be
 * resumed to the bits of an uninterrupted one.
 *
 * SNUG_RANK_KILLS=50 build/test_ranks_failure: so many kills at random moments, with each number of ranks.
 * SNUG_RANKS_MOST=8: also 8 ranks.
 */
#include <sys/stat.h>

#include "mpirun.h"
#include "rank_kills.h"

#define FIXTURE struct fixture *f, set_up_ranks, tear_down
static int tear_down_hosts(void **state);

#define TRAIN_FROM(config)                                                                                             \
    "train --use_cpu --config_name " config " --tokenizer_name model --per_device_train_batch_size 8 "                 \
    "--learning_rate 1e-3 --threads 1 --logging_steps 1 --train_file train.csv --lr_scheduler_type constant "
#define TRAIN_MODEL TRAIN_FROM("model")
#define LONG TRAIN_MODEL "--max_steps 20000 --save_steps 2 --save_total_limit 2 "

/* ---- ranks whose processes are known ------------------------------------------------------------------------------
 */

static int set_up_ranks(void **state) {
    find_mpirun();
    if (set_up(state)) return -1;
    const struct fixture *f = *state;
    write_text(f, "rank", "#!/bin/sh\necho $$ > pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nexec " SNUG " \"$@\"\n");
    return chmod(path_of(f, "rank"), 0700);
}

static pid_t start_known(const struct fixture *f, int ranks, const char *words) {
    char command[2048];
    for (int r = 0; r < ranks; r++) unlink(path_of(f, "pid.%d", r));
    snprintf(command, sizeof command, "-n %d ./rank %s", ranks, words);
    return start_ranks(f, command);
}

static pid_t process_of(const struct fixture *f, int rank) {
    char name[16];
    snprintf(name, sizeof name, "pid.%d", rank);
    wait_for_text(f, name, "\n");
    char *text = output_of(f, name);
    const pid_t process = (pid_t)strtol(text, NULL, 10);
    free(text);
    assert_true(process > 1);
    return process;
}

static void assert_reported(const struct fixture *f, const char *const *parts) {
    char *text = output_of(f, "stderr");
    assert_one_message("train", text);
    for (; *parts; parts++) assert_contains(text, *parts);
    free(text);
}

/* ---- one failure --------------------------------------------------------------------------------------------------
 */

enum { TIMEOUT = 4 };
#define LATE LONG "--ddp_timeout 4 "

/* Sends the signal to a rank of three in the middle of a training, and returns when all have ended: of a rank that is
   stopped the others know after --ddp_timeout. */
static void strike(const struct fixture *f, int rank, int number, const char *words, const char *const *parts) {
    pid_t processes[3];
    const pid_t launcher = start_known(f, 3, words);
    for (int r = 0; r < 3; r++) processes[r] = process_of(f, r);
    wait_for_text(f, "stderr", "'epoch': 1.");
    const double begin = now() + (number == SIGSTOP ? TIMEOUT : 0);
    assert_int_equal(kill(processes[rank], number), 0);
    assert_gone(f, processes, 3, begin);
    assert_int_not_equal(end_of(launcher), 0);
    assert_reported(f, parts);
}

FIXTURE_TEST(test_killed_rank) {
    if (skips) return;
    /* Open MPI's mpirun kills the others a second later, which may be too soon for a message on a busy machine. */
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "3", 1);
    strike(f, 1, SIGKILL, LONG "--output_dir out",
           (const char *const[]){"rank 1 of 3 on ", ", step ", "has ended without a message", NULL});
    strike(f, 0, SIGKILL, LONG "--output_dir other",
           (const char *const[]){"rank 0 of 3 on ", ", step ", "has ended without a message", NULL});
    unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
}

FIXTURE_TEST(test_late_rank) {
    if (skips) return;
    strike(f, 2, SIGSTOP, LATE "--output_dir out",
           (const char *const[]){"warning: rank 2 of 3 on ", "; the run ends after --ddp_timeout 4",
                                 "snug: rank 2 of 3 on ", ", step ", " MPI_I", ": more than --ddp_timeout 4",
                                 "has not run for ", NULL});
    strike(f, 0, SIGSTOP, LATE "--output_dir other",
           (const char *const[]){"rank 0 of 3 on ", " MPI_I", "has not run for ", NULL});
}

/* A signal to one rank stops all in the middle of an evaluation or a prediction, which would take minutes. */
FIXTURE_TEST(test_interrupted_between_steps) {
    if (skips) return;
    write_data(f, "long.csv", FORM_SINGLE, 100000, 3);
    pid_t launcher =
        start_known(f, 2,
                    TRAIN_MODEL "--validation_file long.csv --per_device_eval_batch_size 1 --eval_strategy epoch "
                                "--save_strategy no --logging_steps 1 --max_steps 10 --output_dir out");
    pid_t second = process_of(f, 1);
    wait_for_text(f, "stderr", "'epoch': 1.00");
    assert_int_equal(kill(second, SIGTERM), 0);
    assert_said(f, wait_for(launcher), 130, (const char *const[]){"interrupted at step 5 of 10", NULL});
    launcher = start_known(f, 2,
                           "predict --use_cpu --threads 1 --model_name_or_path out/checkpoint-5 --test_file long.csv "
                           "--per_device_eval_batch_size 1");
    second = process_of(f, 1);
    wait_for_text(f, "stdout", "\n1,");
    assert_int_equal(kill(second, SIGTERM), 0);
    assert_said(f, wait_for(launcher), 130, (const char *const[]){"interrupted after ", " of 100000 batches", NULL});
}

/* ---- kills at random moments --------------------------------------------------------------------------------------
 */

static void find_known(const struct fixture *f, pid_t launcher, int ranks, pid_t *processes) {
    (void)launcher;
    for (int r = 0; r < ranks; r++) processes[r] = process_of(f, r);
}

/* SNUG_RANKS_MOST=8: also 8 ranks. */
FIXTURE_TEST(test_kills_at_random) {
    static const int numbers[] = {3, 4, 8};
    static const char *const folders[] = {"whole", "measured", "out"};
    const char *given = getenv("SNUG_RANKS_MOST");
    const int most = given ? atoi(given) : is_long() ? 4 : 3;
    struct kills k = {.start = start_known,
                      .find = find_known,
                      .words = TRAIN_FROM("cut") "--validation_file dev.csv --eval_strategy steps --eval_steps 20 "
                                                 "--max_steps 40 --save_steps 4"};
    if (skips) return;
    write_cut(f, 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && numbers[i] <= most; i++) {
        k.ranks = numbers[i];
        set_kills(&k, 2);
        kill_at_random(f, &k);
        for (size_t j = 0; j < sizeof folders / sizeof *folders; j++)
            assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "%s", folders[j])), SNUG_OK);
    }
}

/* Kills a rank while all write a checkpoint: the one before is whole, and the run continues from it in another stage.
 */
FIXTURE_TEST(test_killed_while_writing) {
    static const struct { int rank, milliseconds, stage; } cases[] = {{1, 0, 0}, {0, 10, 3}, {2, 25, 1}, {1, 40, 3}};
    static const char words[] = TRAIN_FROM("tall") "--max_steps 3 --save_steps 1 --zero_stage ";
    char command[1024];
    if (skips) return;
    write_model(f, "tall", 0.1, 256, 1, 16384);
    snprintf(command, sizeof command, "%s3 --output_dir whole", words);
    run_ranks_well(f, 3, command);
    for (size_t i = !SANITIZED && !is_long(); i < sizeof cases / sizeof *cases; i += is_long() ? 1 : 4) {
        pid_t processes[3];
        snprintf(command, sizeof command, "%s%d --output_dir out", words, cases[i].stage);
        const pid_t launcher = start_known(f, 3, command);
        for (int r = 0; r < 3; r++) processes[r] = process_of(f, r);
        while (!has_unfinished(f, "out", ".checkpoint-2.") && is_there(processes[0])) usleep(200);
        usleep((useconds_t)cases[i].milliseconds * 1000);
        const double begin = now();
        assert_int_equal(kill(processes[cases[i].rank], SIGKILL), 0);
        assert_gone(f, processes, 3, begin);
        end_of(launcher);
        assert_true(exists(path_of(f, "out/checkpoint-1/manifest.json")));
        snprintf(command, sizeof command, "%s%d --output_dir out --resume_from_checkpoint True", words,
                 3 - cases[i].stage);
        run_ranks_well(f, 3, command);
        assert_false(has_unfinished(f, "out", ".checkpoint"));
        assert_same_in_both(f, "whole", "out", "model.safetensors");
        assert_same_in_both(f, "whole", "out", "checkpoint-2/optimizer.safetensors");
        assert_same_in_both(f, "whole", "out", "checkpoint-3/optimizer.safetensors");
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
    }
}

/* ---- two hosts ----------------------------------------------------------------------------------------------------
 */

/* Runs a shell command in the test's folder; whether it succeeded. */
static bool shell(const struct fixture *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool shell(const struct fixture *f, const char *format, ...) {
    char command[2048];
    va_list values;
    const int used = snprintf(command, sizeof command, "cd %s && { ", f->folder);
    va_start(values, format);
    const int more = vsnprintf(command + used, sizeof command - (size_t)used, format, values);
    va_end(values);
    snprintf(command + used + more, sizeof command - (size_t)(used + more), "; } > shell.out 2>&1");
    return system(command) == 0;
}

/* Two network namespaces with a name for the test's process, connected by a pair of virtual interfaces. */
static bool make_hosts(const struct fixture *f, int id) {
    return shell(f, "ip netns add snug_a%d && ip netns add snug_b%d", id, id) &&
           shell(f, "ip link add va%d type veth peer name vb%d", id, id) &&
           shell(f, "ip link set va%d netns snug_a%d && ip link set vb%d netns snug_b%d", id, id, id, id) &&
           shell(f, "ip -n snug_a%d addr add 10.213.7.1/24 dev va%d", id, id) &&
           shell(f, "ip -n snug_b%d addr add 10.213.7.2/24 dev vb%d", id, id) &&
           shell(f, "ip -n snug_a%d link set lo up && ip -n snug_b%d link set lo up", id, id) &&
           shell(f, "ip -n snug_a%d link set va%d up && ip -n snug_b%d link set vb%d up", id, id, id, id);
}

static void remove_hosts(const struct fixture *f, int id) {
    for (int i = 0; i < 2; i++) {
        shell(f, "for p in $(ip netns pids snug_%c%d); do kill -KILL $p; done", 'a' + i, id);
        shell(f, "ip netns del snug_%c%d", 'a' + i, id);
    }
    shell(f, "ip link del va%d", id);
}

static int tear_down_hosts(void **state) {
    remove_hosts(*state, (int)(getpid() % 100000));
    return tear_down(state);
}

/* mpirun on host A starts a daemon on host B through its agent, which for machines is ssh. */
static pid_t start_hosts(const struct fixture *f, int id) {
    char text[1024];
    snprintf(text, sizeof text,
             "#!/bin/sh\nshift\nexec ip netns exec snug_b%d unshare -u sh -c \"hostname snug-b; $*\"\n", id);
    write_text(f, "agent", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\nhostname snug-a\nexec %s --allow-run-as-root --oversubscribe --bind-to none "
             "--mca plm_rsh_agent ./agent --mca btl tcp,self --host 10.213.7.1,10.213.7.2 -n 2 ./rank %s\n",
             mpirun, LONG "--output_dir cut");
    write_text(f, "begin", text);
    assert_int_equal(chmod(path_of(f, "agent"), 0700) | chmod(path_of(f, "begin"), 0700), 0);
    snprintf(text, sizeof text, "snug_a%d", id);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    if (chdir(f->folder) != 0 || !freopen("/dev/null", "r", stdin) || !freopen("stdout", "w", stdout) ||
        !freopen("stderr", "w", stderr))
        _exit(125);
    execlp("ip", "ip", "netns", "exec", text, "unshare", "-u", "./begin", (char *)NULL);
    _exit(127);
}

/* The step of the last checkpoint in a folder. */
static int last_checkpoint(const struct fixture *f, const char *folder) {
    DIR *entries = opendir(path_of(f, "%s", folder));
    int last = 0, step;
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (sscanf(entry->d_name, "checkpoint-%d", &step) == 1 && step > last) last = step;
    closedir(entries);
    assert_true(last > 0);
    return last;
}

/* The link is cut in the middle of a step. mpirun itself waits for its daemon on the other host for longer; the ranks
   do not. */
TEST_IN(test_cut_off, struct fixture *f, set_up_ranks, tear_down_hosts) {
    const int id = (int)(getpid() % 100000);
    pid_t processes[2];
    if (skips || !is_open_mpi) return;
    if (!make_hosts(f, id)) {
        char *text = output_of(f, "shell.out");
        if (getenv("CI")) fail_msg("this needs root, network namespaces and iproute2: %s", text);
        print_message("skipped: network namespaces are not permitted here: %s", text);
        free(text);
        return;
    }
    const pid_t launcher = start_hosts(f, id);
    for (int r = 0; r < 2; r++) processes[r] = process_of(f, r);
    wait_for_text(f, "stderr", "'epoch': 1.");
    assert_true(shell(f, "ip -n snug_a%d link set va%d down", id, id));
    const double begin = now();
    assert_gone(f, processes, 2, begin);
    const double seconds = now() - begin;
    kill(launcher, SIGKILL);
    remove_hosts(f, id);
    end_of(launcher);
    assert_reported(f, (const char *const[]){"snug: rank 1 of 2 on snug-b, step ", "its host does not answer", NULL});
    print_message("both hosts' ranks have ended %.1f s after the cut\n", seconds);
    char words[512];
    const int steps = last_checkpoint(f, "cut") + 2;
    snprintf(words, sizeof words,
             TRAIN_MODEL "--max_steps %d --save_strategy no --output_dir cut --resume_from_checkpoint True", steps);
    run_ranks_well(f, 2, words);
    snprintf(words, sizeof words,
             TRAIN_MODEL "--max_steps %d --save_strategy no --gradient_accumulation_steps 2 --output_dir whole", steps);
    free(run_well(f, words));
    assert_same_in_both(f, "whole", "cut", "model.safetensors");
}

/* TEST: only that one. */
TEST_MAIN(NULL, NULL)
