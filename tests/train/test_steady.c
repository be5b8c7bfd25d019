/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long run takes as much memory at its end as after its first steps. build/test_steady STEPS: the number of steps; by
 * hand 100,000. (The log is kept in memory, and grows by design: here nothing is logged.)
 */
#include <malloc.h>

#include "train/memory.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static int64_t steps = 3000;

struct sample {
    int64_t step, heap, resident, peak;
};

struct watch {
    struct sample first, last;
    int64_t saves;
};

/* Without the pages of files: the kernel maps 64 KiB of the program where a part of it runs for the first time. */
static int64_t anonymous_resident_bytes(void) {
    long long resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %lld %lld", &resident, &shared), 2);
    fclose(file);
    return (resident - shared) * sysconf(_SC_PAGESIZE);
}

static struct sample take_sample(int64_t step) {
    const struct mallinfo2 heap = mallinfo2();
    return (struct sample){step, (int64_t)(heap.uordblks + heap.hblkhd), anonymous_resident_bytes(),
                           snug_peak_resident_bytes()};
}

/* After some steps and the second checkpoint, and at the end. */
static void look(void *user, const snug_event *event) {
    struct watch *watch = user;
    watch->saves += event->kind == SNUG_EVENT_SAVE;
    if (event->kind != SNUG_EVENT_STEP) return;
    if (!watch->first.step && watch->saves == 2) watch->first = take_sample(event->step);
    if (event->step == event->max_steps - 1) watch->last = take_sample(event->step);
}

FIXTURE_TEST(test_memory_is_steady) {
    static const char *const ways[] = {"",
                                       "config_name=@wide tokenizer_name=@wide threads=2 optim=adamw_8bit bf16=True",
                                       "offload=optimizer,gradients,weights update_in_backward=True"};
    if (SANITIZED) skip(); /* its allocator does not report to mallinfo2() */
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char words[1024];
        struct watch watch = {.saves = 0};
        const snug_callbacks callbacks = {.user = &watch, .on_event = look};
        const int64_t count = i == 0 ? steps : steps / 10; /* the others are slower */
        snprintf(words, sizeof words,
                 "per_device_train_batch_size=1 max_seq_length=8 threads=1 max_steps=%lld logging_strategy=no "
                 "save_strategy=steps save_steps=%lld "
                 "save_total_limit=2 dataloader_num_workers=2 output_dir=@out overwrite_output_dir=True device=cpu %s",
                 (long long)count, (long long)count / 10, ways[i]);
        snug_args *args = training_args(f, words);
        if (snug_train(args, &callbacks, NULL) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        snug_args_destroy(args);
        const struct sample *a = &watch.first, *b = &watch.last;
        print_message("steps %lld to %lld%s%s: heap %lld to %lld bytes, resident %lld to %lld, peak %lld to %lld\n",
                      (long long)a->step, (long long)b->step, *ways[i] ? ", " : "", ways[i], (long long)a->heap,
                      (long long)b->heap, (long long)a->resident, (long long)b->resident, (long long)a->peak,
                      (long long)b->peak);
        assert_true(a->step > 0 && b->step > 5 * a->step / 2);
        assert_int_equal(a->heap, b->heap);
        assert_true(b->resident <= a->resident);
    }
}

int main(int argc, char **argv) {
    /* Without the allocator's caches, which count as used, heap figures are exact; it reads this variable when it
       starts. */
    if (!getenv("GLIBC_TUNABLES")) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
        execv("/proc/self/exe", argv);
    }
    if (argc > 1) steps = atoll(argv[1]);
    return run_registered(NULL, NULL);
}
