/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks whose processes are known, and kills of random ranks at random moments of a training: each time all ranks end
 * in time with one message at most, and the resumed run ends with the bits of one rank with as many micro-batches.
 *
 * SNUG_RANK_KILLS: how many kills; SNUG_RANK_SEED: another series of moments and ranks.
 */
#ifndef SNUG_TESTS_RANK_KILLS_H
#define SNUG_TESTS_RANK_KILLS_H

#include "core/philox.h"
#include "io/folder_write.h"
#include "program.h"

#define LIMIT 10.0 /* seconds in which all ranks must have ended */
enum { RANKS_MOST = 8 };

/* A zombie, which no process has waited for, has ended too. */
static inline bool is_there(pid_t process) {
    char name[32], text[256] = "";
    snprintf(name, sizeof name, "/proc/%d/stat", (int)process);
    FILE *file = fopen(name, "r");
    if (!file) return false;
    if (!fgets(text, sizeof text, file)) *text = '\0';
    fclose(file);
    const char *state = strrchr(text, ')');
    return state && state[2] != 'Z' && state[2] != 'X';
}

/* The seconds until they had ended. */
static inline double assert_gone(const struct fixture *f, const pid_t *processes, int count, double begin) {
    for (int i = 0; i < count; i++)
        while (is_there(processes[i])) {
            if (now() - begin > LIMIT)
                fail_msg("rank %d is still there after %g s: %s", i, LIMIT, output_of(f, "stderr"));
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        }
    return now() - begin;
}

/* Failures: a rank's own end with "snug: ", and its watch's end of it with "error: ". */
static inline int messages_in(const char *text) { return count_of(text, "snug: ") + count_of(text, "error: "); }

/* words: of the command. The end of the text is shown, since messages are there. */
static inline void assert_one_message(const char *words, const char *text) {
    enum { SHOWN = 800 };
    const size_t length = strlen(text);
    if (messages_in(text) != 1)
        fail_msg("%s: not one message: … %s", words, text + (length > SHOWN ? length - SHOWN : 0));
}

static inline int end_of(pid_t launcher) {
    int status;
    while (waitpid(launcher, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return status;
}

/* ---- kills at random moments -------------------------------------------------------------------------------------
 */

/* A training that is killed again and again. */
struct kills {
    int ranks, wanted;
    const char *words; /* of snug train, without --output_dir and what sets the ranks */
    /* Starts snug with these words on several ranks; the launcher's process. */
    pid_t (*start)(const struct fixture *f, int ranks, const char *words);
    /* The processes of the ranks, when all have begun. */
    void (*find)(const struct fixture *f, pid_t launcher, int ranks, pid_t *processes);
    uint32_t seed;
    double seconds[2]; /* of the whole training: on one rank, on several */
    double longest;    /* until all ranks had ended after a kill */
};

static inline void set_kills(struct kills *k, int wanted) {
    const char *given = getenv("SNUG_RANK_KILLS"), *seed = getenv("SNUG_RANK_SEED");
    k->wanted = given ? atoi(given) : wanted;
    k->seed = seed ? (uint32_t)strtoul(seed, NULL, 10) : 17;
}

/* Attempt after attempt in the next ZeRO stage, on a number of ranks that divides the micro-batches of a step: a run
   may be resumed in any of them. The number of its ranks. */
static inline int start_attempt(const struct fixture *f, const struct kills *k, uint32_t attempt,
                                const struct snug_philox_block *random, pid_t *launcher, pid_t *processes) {
    char words[2048];
    uint32_t count = 1;
    int numbers[RANKS_MOST] = {1};
    const uint32_t stage = attempt % 4;
    /* Below stage 2 ranks round their sums of several micro-batches before they are added. */
    for (int n = 2; n <= k->ranks; n++)
        if (k->ranks % n == 0 && (n == k->ranks || stage >= 2)) numbers[count++] = n;
    const int ranks = numbers[random->word[2] % count];
    snprintf(words, sizeof words,
             "%s --output_dir out --zero_stage %u --resume_from_checkpoint auto --gradient_accumulation_steps %d",
             k->words, stage, k->ranks / ranks);
    *launcher = k->start(f, ranks, words);
    k->find(f, *launcher, ranks, processes);
    return ranks;
}

/* Whether the run ended by itself before the kill, or had nothing left to do. */
static inline bool kill_at(struct fixture *f, struct kills *k, uint32_t attempt,
                           const struct snug_philox_block *random) {
    pid_t launcher, processes[RANKS_MOST];
    const int ranks = start_attempt(f, k, attempt, random, &launcher, processes);
    const double after = snug_philox_uniform(random->word[0]) * k->seconds[ranks > 1];
    const int rank = (int)(random->word[1] % (uint32_t)ranks);
    nanosleep(&(struct timespec){(time_t)after, (long)(1e9 * (after - (double)(time_t)after))}, NULL);
    int status;
    if (waitpid(launcher, &status, WNOHANG) == launcher) {
        if (status) fail_msg("a run that was not killed failed: %s", output_of(f, "stderr"));
        return true;
    }
    const double begin = now();
    kill(processes[rank], SIGKILL);
    const double took = assert_gone(f, processes, ranks, begin);
    if (took > k->longest) k->longest = took;
    status = end_of(launcher);
    char *text = output_of(f, "stderr");
    /* A rank that dies before the ranks are connected is reported by the launcher. */
    if (messages_in(text) > 1)
        fail_msg("rank %d was killed after %.3f s, and this is not one message: %s", rank, after, text);
    free(text);
    return status == 0;
}

static inline void kill_at_random(struct fixture *f, struct kills *k) {
    char words[2048];
    pid_t launcher, processes[RANKS_MOST];
    uint32_t runs = 0;
    int kills = 0, whole = 0;
    snprintf(words, sizeof words, "%s --gradient_accumulation_steps %d --output_dir whole", k->words, k->ranks);
    double begin = now();
    free(run_well(f, words));
    k->seconds[0] = now() - begin;
    begin = now();
    snprintf(words, sizeof words, "%s --output_dir measured", k->words);
    if (end_of(k->start(f, k->ranks, words))) fail_msg("%s: %s", words, output_of(f, "stderr"));
    k->seconds[1] = now() - begin;
    begin = now();
    for (; kills < k->wanted; runs++) {
        const struct snug_philox_block random = snug_philox(runs, 0, 0, 0, k->seed, 0);
        if (!kill_at(f, k, runs, &random)) {
            kills++;
            continue;
        }
        assert_same_run(f, "whole", "out");
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        whole++;
    }
    const struct snug_philox_block random = snug_philox(runs, 0, 0, 0, k->seed, 0);
    start_attempt(f, k, runs, &random, &launcher, processes);
    if (end_of(launcher)) fail_msg("the last run failed: %s", output_of(f, "stderr"));
    assert_same_run(f, "whole", "out");
    print_message("%d kills in %u runs on %d ranks, %.0f s; all ranks had ended %.1f s after a kill at the latest; "
                  "trainings that were resumed to their end, with the same bits: %d\n",
                  kills, runs + 1, k->ranks, now() - begin, k->longest, whole + 1);
}

#endif
