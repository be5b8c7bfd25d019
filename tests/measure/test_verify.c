/* SPDX-License-Identifier: Apache-2.0 */
/* snug verify passes where all invariants hold, and fails at one that is broken: wrappers of three functions (--wrap,
   see CMakeLists.txt) break one invariant at a time; others replace the figures of free disk space and of the process's
   memory. */
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* Adapters beside a frozen model, with dropout. */
#define ADAPTERS                                                                                                       \
    "config_name= tokenizer_name= model_name_or_path=" SNUG_SOURCE_DIR                                                 \
    "/tests/golden/families/llama/clm task=clm use_peft=True max_seq_length=20"

/* ---- breaking --------------------------------------------------------------------------------------------------- */

enum breakage { BREAK_NOTHING, BREAK_SEED, BREAK_PLAN, BREAK_RUN, FAIL_PLAN, FAIL_RUN };

/* What is broken, and in which trainings: those whose argument name is value; for BREAK_SEED, the second one that is
   created. */
static struct {
    enum breakage kind;
    const char *name, *value;
    int made;
} broken;

static bool is_concerned(const struct snug_args *args) {
    char text[256];
    if (!broken.name) return ++broken.made == 2;
    assert_int_equal(snug_args_get(args, broken.name, text, sizeof text), SNUG_OK);
    return strncmp(text, broken.value, strlen(broken.value)) == 0;
}

/* Other dropout than requested, or none. */
static snug_status spoil(struct snug_args *args, struct snug_session **session) {
    /* Set, not changed: lld also wraps the call of snug_session_open() within session.c. */
    if ((broken.kind == BREAK_RUN || broken.kind == BREAK_SEED) && is_concerned(args)) (*session)->train_run.seed = 1;
    if (broken.kind != FAIL_RUN || !is_concerned(args)) return SNUG_OK;
    snug_session_destroy(*session);
    *session = NULL;
    return snug_fail(args->ctx, SNUG_E_INTERNAL, "made to fail");
}

snug_status __real_snug_session_open(struct snug_args *, enum snug_command, const snug_callbacks *,
                                     struct snug_session **);
snug_status __wrap_snug_session_open(struct snug_args *, enum snug_command, const snug_callbacks *,
                                     struct snug_session **);
snug_status __wrap_snug_session_open(struct snug_args *args, enum snug_command command, const snug_callbacks *callbacks,
                                     struct snug_session **out) {
    const snug_status status = __real_snug_session_open(args, command, callbacks, out);
    return status == SNUG_OK ? spoil(args, out) : status;
}

snug_status __real_snug_session_create(snug_args *, snug_session **);
snug_status __wrap_snug_session_create(snug_args *, snug_session **);
snug_status __wrap_snug_session_create(snug_args *args, snug_session **out) {
    const snug_status status = __real_snug_session_create(args, out);
    return status == SNUG_OK ? spoil(args, out) : status;
}

snug_status __real_snug_job_open(struct snug_args *, enum snug_command, struct snug_job *);
snug_status __wrap_snug_job_open(struct snug_args *, enum snug_command, struct snug_job *);
snug_status __wrap_snug_job_open(struct snug_args *args, enum snug_command command, struct snug_job *job) {
    const snug_status status = __real_snug_job_open(args, command, job);
    if (broken.kind == BREAK_PLAN && command == SNUG_COMMAND_PLAN) job->plan.bytes[SNUG_MEMORY_GRADIENTS] += 64;
    if (broken.kind == FAIL_PLAN && command == SNUG_COMMAND_PLAN)
        return snug_fail(args->ctx, SNUG_E_INTERNAL, "made to fail");
    return status;
}

/* Free bytes, after this many calls; -1: those of the disk. */
static struct {
    int64_t bytes;
    int looks;
} disk = {.bytes = -1};

snug_status __real_snug_disk_free(snug_context *, const char *, int64_t *);
snug_status __wrap_snug_disk_free(snug_context *, const char *, int64_t *);
snug_status __wrap_snug_disk_free(snug_context *ctx, const char *path, int64_t *bytes) {
    const snug_status status = __real_snug_disk_free(ctx, path, bytes);
    if (disk.bytes >= 0 && disk.looks-- <= 0) *bytes = disk.bytes;
    return status;
}

/* Under sanitizers the figure is theirs, and grows from run to run: the check is skipped. */
int64_t __real_snug_peak_resident_bytes(void);
int64_t __wrap_snug_peak_resident_bytes(void);
int64_t __wrap_snug_peak_resident_bytes(void) { return SANITIZED ? -1 : __real_snug_peak_resident_bytes(); }

/* ---- events ----------------------------------------------------------------------------------------------------- */

struct heard {
    int kept, skipped, broken;
    char name[64], text[4096]; /* the last one that was broken; all, for a failure's message */
};

static snug_status hear(void *user, const snug_check *check) {
    struct heard *heard = user;
    const size_t used = strlen(heard->text);
    snprintf(heard->text + used, sizeof heard->text - used, "%s: %d, %s\n", check->name, check->result, check->detail);
    heard->kept += check->result == SNUG_CHECK_PASSED;
    heard->skipped += check->result == SNUG_CHECK_SKIPPED;
    heard->broken += check->result == SNUG_CHECK_FAILED;
    if (check->result == SNUG_CHECK_FAILED) snprintf(heard->name, sizeof heard->name, "%s", check->name);
    return SNUG_OK;
}

static snug_status verify(struct fixture *f, const char *words, struct heard *heard) {
    snug_args *args = plain_args(f, "config_name=@model tokenizer_name=@model threads=2 device=cpu output_dir=@work");
    set_args(f, args, words);
    *heard = (struct heard){0};
    const snug_status status = snug_verify(args, NULL, hear, heard);
    snug_args_destroy(args);
    return status;
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

enum { CHECKS = 10, MEASURED = !SANITIZED };

FIXTURE_TEST(test_all_invariants_hold) {
    static const char adapters[] = ADAPTERS;
    static const char *const cases[] = {
        "train_file=@train.csv max_train_samples=40 threads=1",
        "max_seq_length=64 gradient_checkpointing=True optim=adamw_8bit device=auto",
        "train_file=@train.txt task=mlm line_by_line=True dtype=bfloat16 gradient_accumulation_steps=2",
        "max_seq_length=64 bf16=True update_in_backward=True recompute=ffn dataloader_num_workers=2",
        adapters,
        "task=embedding max_seq_length=64 mini_batch_size=4",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct heard heard;
        if (verify(f, cases[i], &heard) != SNUG_OK)
            fail_msg("%s: %s\n%s", cases[i], snug_error_message(f->ctx), heard.text);
        assert_int_equal(heard.kept, CHECKS - !MEASURED);
    }
    assert_false(exists(path_of(f, "work"))); /* no files remain */
}

FIXTURE_TEST(test_broken_invariant_fails) {
    static const struct {
        enum breakage kind;
        const char *name, *value, *check;
    } cases[] = {
        {BREAK_PLAN, NULL, NULL, "planned = allocated = measured"},
        {FAIL_PLAN, NULL, NULL, "planned = allocated = measured"},
        {FAIL_RUN, "threads", "1", "independent of threads"},
        {FAIL_RUN, "resume_from_checkpoint", "/", "resumed = uninterrupted"},
        {FAIL_RUN, "per_device_train_batch_size", "4", "independent of accumulation"},
        {BREAK_RUN, "save_strategy", "steps", "resumed = uninterrupted"},
        {BREAK_SEED, NULL, NULL, "same seed, same bits"},
        {BREAK_RUN, "recompute", "attention", "recomputed = stored"},
        {BREAK_RUN, "update_in_backward", "True", "independent of when weights are updated"},
        {BREAK_RUN, "offload", "optimizer", "offloaded = in memory"},
        {BREAK_RUN, "threads", "1", "independent of threads"},
        {BREAK_RUN, "dataloader_num_workers", "3", "independent of the loader"},
        {BREAK_RUN, "resume_from_checkpoint", "/", "resumed = uninterrupted"},
        {BREAK_RUN, "per_device_train_batch_size", "4", "independent of accumulation"},
        {BREAK_RUN, "per_device_train_batch_size", "1", "independent of packing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct heard heard;
        broken.kind = cases[i].kind;
        broken.name = cases[i].name;
        broken.value = cases[i].value;
        broken.made = 0;
        const bool adapters = i % 5 == 1; /* whose files are compared, too */
        const snug_status status =
            verify(f, adapters ? ADAPTERS " max_steps=2" : "train_file=@train.csv max_steps=2", &heard);
        broken.kind = BREAK_NOTHING;
        if (status != SNUG_E_INTERNAL || heard.broken != 1 || strcmp(heard.name, cases[i].check) != 0)
            fail_msg("%s did not fail: status %d\n%s", cases[i].check, status, heard.text);
        assert_contains(snug_error_message(f->ctx), " invariants do not hold here");
        assert_int_equal(heard.kept + heard.skipped, CHECKS - 1);
    }
}

FIXTURE_TEST(test_unavailable_checks_are_skipped) {
    struct heard heard;
    assert_int_equal(verify(f, "train_file=@train.csv max_steps=1 per_device_train_batch_size=1 use_cpu=True", &heard),
                     SNUG_OK);
    assert_int_equal(heard.skipped, 3 + !MEASURED); /* nothing to resume, split or pack */
    assert_int_equal(heard.kept, CHECKS - heard.skipped);
    assert_int_equal(verify(f, "train_file=@train.csv max_steps=1 per_device_train_tokens=100 use_cpu=True", &heard),
                     SNUG_OK);
    assert_contains(heard.text, "needs micro-batches of rows, without --per_device_train_tokens");
    assert_int_equal(verify(f, "train_file=@train.csv max_steps=2 per_device_train_batch_size=3", &heard), SNUG_OK);
    assert_int_equal(heard.skipped, 1 + !MEASURED);
}

FIXTURE_TEST(test_failed_start_is_no_verdict) {
    struct heard heard;
    assert_int_equal(verify(f, "train_file=@nothing.csv", &heard), SNUG_E_IO);
    assert_contains(snug_error_message(f->ctx), "nothing.csv");
    assert_int_equal(heard.kept + heard.broken + heard.skipped, 0);
    assert_int_equal(verify(f, "config_name=", &heard), SNUG_E_USAGE);
    assert_int_equal(verify(f, "config_name=@none", &heard), SNUG_E_INPUT);
    /* The work folder: one that existed before is kept, and one in which nothing can be created is named. */
    assert_int_equal(verify(f, "output_dir=/proc", &heard), SNUG_E_IO);
    assert_contains(snug_error_message(f->ctx), "--output_dir /proc: cannot make a folder there");
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "work")), SNUG_OK);
    assert_int_equal(verify(f, "train_file=@nothing.csv", &heard), SNUG_E_IO);
    assert_true(exists(path_of(f, "work")));
    const char *before = getenv("TMPDIR");
    char *own = before ? strdup(before) : NULL;
    for (int set = 0; set < 2; set++) {
        set ? setenv("TMPDIR", "", 1) : unsetenv("TMPDIR"); /* both are /tmp */
        assert_int_equal(verify(f, "train_file=@nothing.csv output_dir=", &heard), SNUG_E_IO);
    }
    own ? setenv("TMPDIR", own, 1) : unsetenv("TMPDIR");
    free(own);
}

/* Neither a broken invariant nor an error of saving flags; in the first training, and in the one that saves. */
FIXTURE_TEST(test_full_disk_is_no_verdict) {
    for (int looks = 0; looks < 13; looks += 12) {
        struct heard heard;
        disk.bytes = 1000;
        disk.looks = looks;
        const snug_status status = verify(f, "max_steps=2 max_seq_length=6", &heard);
        disk.bytes = -1;
        if (status != SNUG_E_IO || heard.broken) fail_msg("status %d\n%s", status, heard.text);
        assert_contains(snug_error_message(f->ctx), "let snug verify write elsewhere: --output_dir or TMPDIR");
        assert_null(strstr(snug_error_message(f->ctx), "--save"));
        assert_false(exists(path_of(f, "work")));
    }
}

/* The logs may be on another disk. */
FIXTURE_TEST(test_full_disk_of_logs) {
    disk.bytes = 10;
    disk.looks = 1;
    assert_int_equal(try_train(f, "out", "max_steps=2 report_to=tensorboard logging_dir=@logs", 0, NULL), SNUG_E_IO);
    disk.bytes = -1;
    assert_contains(snug_error_message(f->ctx), "logs: the run's event logs take ");
}

int main(void) {
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1); /* auto is the CPU */
    return run_registered(NULL, NULL);
}
