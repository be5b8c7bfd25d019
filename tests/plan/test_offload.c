/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading: the offload file, the order of copies, the same bits, the arena's size, and disk errors. */
#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect/plan.h"
#include "io/offload_file.h"
#include "model/family.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* ---- the offload file ---------------------------------------------------------------------------------------- */

static int files_in(const char *folder) {
    DIR *open = opendir(folder);
    int count = 0;
    if (!open) return 0;
    for (struct dirent *entry; (entry = readdir(open));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open);
    return count;
}

/* More copies than may be in flight, each region read back before and after it is written, all without a wait in
   between. */
FIXTURE_TEST(test_offload_file_copies_in_order) {
    enum { COPIES = 1000, WORDS_EACH = 3000, SIZE = WORDS_EACH * 4 };
    struct snug_offload_file *file;
    uint32_t(*out)[WORDS_EACH] = calloc(COPIES, SIZE), (*before)[WORDS_EACH] = malloc((size_t)COPIES * SIZE),
    (*back)[WORDS_EACH] = malloc((size_t)COPIES * SIZE);
    uint64_t last = 0;
    assert_true(out && before && back);
    assert_int_equal(snug_offload_file_open(f->ctx, path_of(f, "offload"), (int64_t)COPIES * SIZE, &file), SNUG_OK);
    for (uint32_t i = 0; i < COPIES; i++)
        for (uint32_t k = 0; k < WORDS_EACH; k++) out[i][k] = i * WORDS_EACH + k + 1;
    for (int i = 0; i < COPIES; i++) {
        snug_offload_file_fetch(file, before[i], (int64_t)i * SIZE, SIZE);
        snug_offload_file_store(file, out[i], (int64_t)i * SIZE, SIZE);
        const uint64_t number = snug_offload_file_fetch(file, back[i], (int64_t)i * SIZE, SIZE);
        assert_true(number > last);
        last = number;
    }
    assert_int_equal(snug_offload_file_wait(f->ctx, file, last), SNUG_OK);
    assert_memory_equal(out, back, (size_t)COPIES * SIZE);
    for (int i = 0; i < COPIES; i++)
        for (int k = 0; k < WORDS_EACH; k++) assert_int_equal(before[i][k], 0);
    snug_offload_file_close(file);
    assert_int_equal(files_in(path_of(f, "offload")), 0);
    free(out);
    free(before);
    free(back);
}

FIXTURE_TEST(test_offload_file_refuses_before_it_is_used) {
    struct snug_offload_file *file;
    struct rlimit limit, before;
    write_text(f, "file", "in the way");
    assert_int_equal(snug_offload_file_open(f->ctx, path_of(f, "file/below"), 1 << 20, &file), SNUG_E_IO);
    assert_null(file);
    snug_clear_error(f->ctx);
    assert_int_equal(snug_offload_file_open(f->ctx, "/proc/self", 1 << 20, &file),
                     SNUG_E_IO); /* a folder in which no file can be created */
    assert_contains(snug_error_message(f->ctx), "/proc/self cannot hold the 1.0 MiB");
    assert_contains(snug_error_message(f->ctx), "--offload_dir");
    snug_clear_error(f->ctx);
    assert_int_equal(snug_offload_file_open(f->ctx, path_of(f, "full"), (int64_t)1 << 56, &file), SNUG_E_IO);
    assert_contains(snug_error_message(f->ctx), "full cannot hold");
    assert_false(exists(path_of(f, "full"))); /* no file remains */
    snug_clear_error(f->ctx);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const snug_status status = snug_offload_file_open(f->ctx, path_of(f, "full"), 2 << 20, &file);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, SNUG_E_IO);
    assert_contains(snug_error_message(f->ctx), strerror(EFBIG));
    assert_false(exists(path_of(f, "full")));
}

/* The disk fails in the middle: the next wait returns the status, and so does every later one. */
FIXTURE_TEST(test_failed_copy_is_reported) {
    struct snug_offload_file *file;
    struct rlimit limit, before;
    char data[8192] = "data", back[8192] = "old";
    assert_int_equal(snug_offload_file_open(f->ctx, path_of(f, "offload"), 1 << 20, &file), SNUG_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const uint64_t number = snug_offload_file_store(file, data, 65536, sizeof data);
    const snug_status status = snug_offload_file_wait(f->ctx, file, number);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, SNUG_E_IO);
    assert_contains(snug_error_message(f->ctx), "offload cannot be written: ");
    assert_contains(snug_error_message(f->ctx), strerror(EFBIG));
    snug_offload_file_fetch(file, back, 0, sizeof back);
    assert_int_equal(snug_offload_file_drain(f->ctx, file), SNUG_E_IO);
    for (size_t i = 0; i < sizeof back; i++) assert_int_equal(back[i], 0);
    snug_offload_file_close(file);
}

/* ---- the order of copies -------------------------------------------------------------------------------------- */

/* The state of each staging buffer while the test walks the program in execution order. */
enum buffer_state { ABSENT, FETCHING, PRESENT, STORING };

struct walk {
    const struct snug_program *program;
    enum buffer_state *buffers;
    bool *dirty;   /* changed since it was fetched */
    bool *crosses; /* its copies are in other phases than the operations that use it */
    int64_t fetched, stored;
    struct snug_crossing crossing;
    /* The number of the operation that last wrote each transient tensor, and of the last one that wrote its bytes
       through another tensor. NULL: not checked. */
    int64_t *written, *overwritten, now;
};

/* A transient tensor gets new contents. */
static void write_tensor(struct walk *w, int32_t tensor) {
    const struct snug_tensor *tensors = w->program->tensors, *t = &tensors[tensor];
    if (!w->written || t->persistent || t->offloaded) return;
    w->written[tensor] = w->now;
    for (size_t i = 1; i < w->program->tensor_count; i++) {
        const struct snug_tensor *o = &tensors[i];
        if ((int32_t)i == tensor || o->persistent || o->offloaded || o->view || o->first < 0) continue;
        if (o->offset < t->offset + t->bytes && t->offset < o->offset + o->bytes) w->overwritten[i] = w->now;
    }
}

static void read_tensor(const struct walk *w, int32_t tensor) {
    const struct snug_tensor *t = &w->program->tensors[tensor];
    if (!w->written || t->persistent || t->offloaded || !w->written[tensor]) return;
    if (w->overwritten[tensor] > w->written[tensor]) fail_msg("%s was overwritten before it was read", t->name);
}

static bool is_being_stored(const struct walk *w, const struct snug_op *fetch) {
    const struct snug_tensor *tensors = w->program->tensors;
    for (size_t i = 0; i < w->program->op_count; i++) {
        const struct snug_op *op = &w->program->ops[i];
        if (op->kind == SNUG_OP_STORE && op->store.backing == fetch->fetch.backing &&
            w->buffers[op->store.x] == STORING &&
            op->element < fetch->element + tensors[fetch->fetch.x].rows * tensors[fetch->fetch.x].cols &&
            fetch->element < op->element + tensors[op->store.x].rows * tensors[op->store.x].cols)
            return true;
    }
    return false;
}

static bool is_offloaded(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].offloaded;
}

static void walk_op(struct walk *w, const struct snug_op *op) {
    const struct snug_tensor *tensors = w->program->tensors;
    w->now++;
    switch (op->kind) {
    case SNUG_OP_FETCH:
        assert_true(is_offloaded(w->program, op->fetch.backing));
        if (w->buffers[op->fetch.x] != ABSENT)
            fail_msg("%s of phase %d is fetched into a buffer in use, now %d, crosses %d",
                     tensors[op->fetch.backing].name, (int)op->phase, (int)w->now, op->crosses);
        if (w->written && is_being_stored(w, op))
            fail_msg("%s of phase %d is fetched while it is being stored, now %d, crosses %d",
                     tensors[op->fetch.backing].name, (int)op->phase, (int)w->now, op->crosses);
        write_tensor(w, op->fetch.x);
        w->buffers[op->fetch.x] = FETCHING;
        w->fetched += tensors[op->fetch.x].bytes;
        return;
    case SNUG_OP_STORE:
        assert_true(is_offloaded(w->program, op->store.backing) && w->buffers[op->store.x] == PRESENT &&
                    w->dirty[op->store.x]);
        read_tensor(w, op->store.x);
        w->buffers[op->store.x] = STORING;
        w->dirty[op->store.x] = false;
        w->stored += tensors[op->store.x].bytes;
        return;
    case SNUG_OP_WAIT: /* of a copy that was left out: nothing to do */
        if (w->buffers[op->wait.x] == ABSENT || w->buffers[op->wait.x] == PRESENT) return;
        read_tensor(w, op->wait.x);
        w->buffers[op->wait.x] = w->buffers[op->wait.x] == STORING ? ABSENT : PRESENT;
        return;
    default: break;
    }
    for (int k = 0; k < snug_op_operands(op); k++) {
        const bool out = !snug_op_reads(op, k);
        int32_t t = op->operands[k];
        if (!t) continue;
        if (tensors[t].view) t = tensors[t].base;
        out ? write_tensor(w, t) : read_tensor(w, t);
        if (is_offloaded(w->program, t)) fail_msg("operation %s works on an offloaded tensor", snug_op_name(op->kind));
        if (strncmp(tensors[t].name, "staging.", 8) != 0 && strncmp(tensors[t].name, "part.", 5) != 0) continue;
        /* While it is being stored it may be read, but not changed. */
        if (w->buffers[t] == FETCHING || (out && w->buffers[t] == STORING) || (!out && w->buffers[t] == ABSENT))
            fail_msg("%s uses %s while it is %s", snug_op_name(op->kind), tensors[t].name,
                     w->buffers[t] == FETCHING  ? "being fetched"
                     : w->buffers[t] == STORING ? "being stored"
                                                : "absent");
        if (out) {
            w->buffers[t] = PRESENT;
            w->dirty[t] = true;
        }
    }
}

/* Micro-batches count from 0 to 1. */
static void walk_phase(struct walk *w, enum snug_phase phase, int micro) {
    const struct snug_moment moment = {
        .first = micro == 0, .last = micro == 1, .fetched = w->crossing.fetched, .pending = w->crossing.pending};
    for (size_t i = 0; i < w->program->op_count; i++) {
        const struct snug_op *op = &w->program->ops[i];
        /* A gradient that is not cleared again was fetched: it is stored as if it were. */
        const bool idle = snug_op_is_idle(op, &moment) && !snug_op_is(op, SNUG_OP_CLEARS);
        if (op->phase == phase && !idle) walk_op(w, op);
    }
}

/* As snug_run_pending(). */
static void walk_pending(struct walk *w) {
    const struct snug_moment moment = {.fetched = w->crossing.fetched, .pending = true};
    for (size_t i = 0; i < w->program->op_count; i++) {
        const struct snug_op *op = &w->program->ops[i];
        const bool rest = op->phase == SNUG_PHASE_FORWARD && (op->crosses || op->flushed);
        if (rest && !snug_op_is_idle(op, &moment)) walk_op(w, op);
    }
    for (size_t i = 1; i < w->program->tensor_count; i++) {
        assert_false(w->dirty[i]);
        w->buffers[i] = ABSENT;
    }
}

/* No copy is in flight, and every changed buffer has been stored, except activations after backward. */
static void assert_at_rest(struct walk *w) {
    for (size_t i = 1; i < w->program->tensor_count; i++) {
        if (w->crosses[i]) continue;
        assert_true(w->buffers[i] == ABSENT || w->buffers[i] == PRESENT);
        assert_true(!w->dirty[i] || w->program->tensors[i].extent != SNUG_EXTENT_FIXED);
        w->buffers[i] = ABSENT;
        w->dirty[i] = false;
    }
}

/* Variants: the methods that are combined with offloading. */
enum { BF16 = 1, LAYER = 2, IN_BACKWARD = 4, CLIPS = 8, ACCUMULATES = 16, TRAINS = 32, VARIANTS = 64 };

/* Notes which buffers have copies in other phases; returns the number of such copies. */
static int64_t mark_crossing(struct walk *w) {
    int64_t moved = 0;
    for (size_t i = 0; i < w->program->op_count; i++) {
        const struct snug_op *op = &w->program->ops[i];
        if (op->crosses && op->kind == SNUG_OP_FETCH) w->crosses[op->fetch.x] = true;
        if (op->crosses && op->kind == SNUG_OP_STORE) w->crosses[op->store.x] = true;
        moved += op->crosses;
    }
    for (size_t i = 0; i < w->program->op_count; i++) { /* stored in the same phase */
        const struct snug_op *op = &w->program->ops[i];
        if (op->kind == SNUG_OP_FETCH && op->phase == SNUG_PHASE_FORWARD && !op->crosses)
            w->crosses[op->fetch.x] = false;
    }
    return moved;
}

/* Buffers that were only read hold nothing for later; none may have changes that are not stored. */
static void forget(struct walk *w) {
    for (size_t i = 1; i < w->program->tensor_count; i++) {
        assert_true(!w->dirty[i] || !w->crosses[i]);
        if (w->crosses[i]) w->buffers[i] = ABSENT;
    }
}

/* One step, or four with overlapping copies, whose bytes are then checked, too. */
static void walk_steps(struct walk *w, bool overlaps) {
    if (overlaps) {
        w->written = calloc(w->program->tensor_count, sizeof *w->written);
        w->overwritten = calloc(w->program->tensor_count, sizeof *w->overwritten);
        assert_true(w->written && w->overwritten);
    }
    walk_phase(w, SNUG_PHASE_PREPARE, 0);
    assert_at_rest(w);
    /* In the second step an evaluation used the arena between BACKWARD and UPDATE; and a flush follows it. */
    for (int step = 0; step < (overlaps ? 4 : 1); step++) {
        for (int micro = 0; micro < 2; micro++) {
            walk_phase(w, SNUG_PHASE_FORWARD, micro);
            if (w->crossing.pending) forget(w);
            w->crossing = (struct snug_crossing){0};
            for (int chunk = 0; chunk < 3; chunk++) walk_phase(w, SNUG_PHASE_HEAD, micro);
            walk_phase(w, SNUG_PHASE_BACKWARD, micro);
            w->crossing.fetched = micro == 1;
            assert_at_rest(w);
        }
        if (step == 1) {
            w->crossing.fetched = false;
            forget(w);
        }
        walk_phase(w, SNUG_PHASE_CLIP, 1);
        assert_at_rest(w);
        walk_phase(w, SNUG_PHASE_UPDATE, 1);
        assert_at_rest(w);
        w->crossing.pending = overlaps;
        if (step != 1) continue;
        walk_pending(w);
        w->crossing = (struct snug_crossing){0};
    }
}

/* The updates that FORWARD does for the step before. */
static int count_deferred(const struct snug_program *program) {
    int count = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        count += op->phase == SNUG_PHASE_FORWARD && snug_op_is(op, SNUG_OP_UPDATES);
        assert_true(!snug_op_is(op, SNUG_OP_UPDATES) || op->crosses == (op->phase == SNUG_PHASE_FORWARD));
    }
    return count;
}

static double check_order(const struct fixture *f, const struct snug_config *config, const struct snug_offload *offload,
                          int variant, int *deferred) {
    struct snug_program program;
    struct snug_layout layout;
    const bool trains = variant & TRAINS;
    const struct snug_optimizer adam = {.info = &snug_optimizer_adam, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999};
    const enum snug_recompute level = variant & LAYER ? SNUG_RECOMPUTE_LAYER : SNUG_RECOMPUTE_NONE;
    const enum snug_recompute levels[] = {level, level};
    const struct snug_methods methods = {.optimizer = trains ? &adam : NULL,
                                         .recompute = levels,
                                         .update_in_backward = variant & IN_BACKWARD,
                                         .clips = variant & CLIPS,
                                         .accumulates = variant & ACCUMULATES,
                                         .offload = *offload};
    snug_program_init(&program, f->ctx);
    program.compute = variant & BF16 ? SNUG_BF16 : SNUG_F32;
    program.longest = 60;
    program.capacity[SNUG_EXTENT_TOKENS] = 400;
    program.capacity[SNUG_EXTENT_SEQUENCES] = program.capacity[SNUG_EXTENT_ROWS] = 8;
    assert_int_equal(snug_build_model(&program, config, trains, 0), SNUG_OK);
    assert_int_equal(snug_stages(&program, &methods), SNUG_OK);
    struct snug_program *programs[] = {&program};
    assert_int_equal(snug_stage_place(f->ctx, programs, 1, snug_backend_reference(), 1, 0, 0, &layout), SNUG_OK);
    struct walk w = {.program = &program,
                     .buffers = calloc(program.tensor_count, sizeof *w.buffers),
                     .dirty = calloc(program.tensor_count, 1),
                     .crosses = calloc(program.tensor_count, 1)};
    assert_true(w.buffers && w.dirty && w.crosses);
    const int64_t moved = mark_crossing(&w);
    assert_true(offload->overlaps || moved == 0);
    if (offload->overlaps && trains && offload->classes & 1 << SNUG_MEMORY_OPTIMIZER && !(variant & IN_BACKWARD))
        assert_true(moved > 0);
    walk_steps(&w, offload->overlaps);
    *deferred += count_deferred(&program);
    /* Each offloaded tensor has its own bytes in the backing store. */
    int64_t backing_bytes = 0;
    for (size_t i = 1; i < program.tensor_count; i++) {
        const struct snug_tensor *t = &program.tensors[i];
        if (!t->offloaded) continue;
        assert_true(t->offset >= 0 && t->offset % 4096 == 0 && t->offset + t->bytes <= layout.offload_bytes);
        const bool master = offload->classes & SNUG_OFFLOAD_MASTERS && t->master;
        if (!(offload->classes >> t->memory_class & 1) && !master)
            fail_msg("%s of class %d is offloaded, %x was asked for, variant %x", t->name, (int)t->memory_class,
                     offload->classes, (unsigned)variant);
        backing_bytes += (t->bytes + 4095) / 4096 * 4096;
    }
    assert_int_equal(backing_bytes, layout.offload_bytes);
    /* Activations by themselves may all be needed again too soon, and gradients that are not kept need no backing
       store. */
    const bool masters = offload->classes & SNUG_OFFLOAD_MASTERS;
    const unsigned used = masters | (offload->classes & (!trains ? 1 : variant & IN_BACKWARD ? 5 : 7));
    assert_true(w.fetched > 0 || !used);
    assert_true(w.stored > 0 || !used || !trains);
    const struct snug_load load = {.tokens = 400, .sequences = 8, .rows = 8, .micro_batches = 2};
    struct snug_step_estimate step;
    assert_int_equal(snug_estimate_parts(NULL, &program, &load, &step), SNUG_OK);
    const double bytes = step.total.bytes;
    free(w.buffers);
    free(w.dirty);
    free(w.crosses);
    free(w.written);
    free(w.overwritten);
    snug_program_free(&program);
    return bytes;
}

FIXTURE_TEST(test_copies_are_waited_for) {
    static const int32_t distances[] = {1, 2, 7, 40};
    struct snug_config config;
    int deferred = 0;
    write_model(f, "wide", 0.1, 64, 2, 1200);
    assert_int_equal(snug_config_read(f->ctx, path_of(f, "wide"), &config), SNUG_OK);
    for (int task = 0; task < 2; task++) {
        assert_int_equal(snug_config_set_task(f->ctx, &config, task ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION,
                                              task ? NULL : &config.labels),
                         SNUG_OK);
        for (unsigned classes = 1; classes < 16; classes++)
            for (size_t i = 0; i < sizeof distances / sizeof *distances; i++)
                for (int variant = (int)i; variant < VARIANTS;
                     variant += 3) { /* every third, others for each distance */
                    struct snug_offload offload = {.classes = classes,
                                                   .ahead = distances[i],
                                                   .part = variant & 1 ? 1 << 14 : 1 << 16,
                                                   .least = 16 << 10};
                    const double bytes = check_order(f, &config, &offload, variant, &deferred);
                    offload.overlaps = true;
                    if (variant % 5 == 0) assert_true(check_order(f, &config, &offload, variant, &deferred) <= bytes);
                    offload.resident = 0.1 * (variant % 7);
                    if (variant % 5 == 1) assert_true(check_order(f, &config, &offload, variant, &deferred) <= bytes);
                }
        for (int variant = BF16; variant < VARIANTS; variant += 2) {
            const unsigned optimizer = variant & CLIPS ? 1u << SNUG_MEMORY_OPTIMIZER : 0;
            const unsigned weights = variant & IN_BACKWARD ? 1u << SNUG_MEMORY_WEIGHTS : 0; /* includes them */
            struct snug_offload offload = {.classes = SNUG_OFFLOAD_MASTERS | optimizer | weights,
                                           .ahead = 4,
                                           .part = 1 << 14,
                                           .least = 16 << 10,
                                           .overlaps = variant & ACCUMULATES};
            check_order(f, &config, &offload, variant, &deferred);
        }
    }
    assert_true(deferred > 0);
    snug_config_free(&config);
}

/* Programs of a run that keep different weights in the arena would use each other's bytes. */
FIXTURE_TEST(test_programs_must_agree) {
    struct snug_config config;
    struct snug_program programs[2];
    struct snug_layout layout;
    const struct snug_optimizer adam = {.info = &snug_optimizer_adam, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999};
    write_model(f, "wide", 0.1, 64, 2, 1200);
    assert_int_equal(snug_config_read(f->ctx, path_of(f, "wide"), &config), SNUG_OK);
    for (int agree = 0; agree < 2; agree++) {
        for (int i = 0; i < 2; i++) {
            const struct snug_methods methods = {.optimizer = i ? NULL : &adam,
                                                 .offload = {.classes = 1u << SNUG_MEMORY_WEIGHTS,
                                                             .ahead = 1,
                                                             .part = 1 << 14,
                                                             .least = 16 << 10,
                                                             .resident = agree ? 0.4 : 0.4 * i}};
            snug_program_init(&programs[i], f->ctx);
            programs[i].longest = 60;
            programs[i].capacity[SNUG_EXTENT_TOKENS] = 400;
            programs[i].capacity[SNUG_EXTENT_SEQUENCES] = programs[i].capacity[SNUG_EXTENT_ROWS] = 8;
            assert_int_equal(snug_build_model(&programs[i], &config, i == 0, 0), SNUG_OK);
            assert_int_equal(snug_stages(&programs[i], &methods), SNUG_OK);
        }
        struct snug_program *both[] = {&programs[0], &programs[1]};
        assert_int_equal(snug_stage_place(f->ctx, both, 2, snug_backend_reference(), 1, 0, 0, &layout),
                         agree ? SNUG_OK : SNUG_E_INTERNAL);
        for (int i = 0; i < 2; i++) snug_program_free(&programs[i]);
    }
    snug_config_free(&config);
}

/* ---- the same bits -------------------------------------------------------------------------------------------- */

static void assert_same(const struct fixture *f, const char *a, const char *b, const char *file) {
    assert_same_file(f, path_of(f, "%s/%s", a, file), path_of(f, "%s/%s", b, file));
}

/* The tiny model's matrices of 16 KiB are staged whole; the wide model's table of 1.9 M elements is staged in pieces.
 */
FIXTURE_TEST(test_same_bits) {
    static const char *const ways[] = {"optimizer",
                                       "gradients",
                                       "weights",
                                       "activations",
                                       "optimizer,gradients,weights,activations",
                                       "optimizer,master_weights"};
    enum { ALL_CLASSES = 4, MASTERS };
    static const char *const runs[] = {
        "gradient_accumulation_steps=2 save_strategy=steps save_steps=5 max_steps=10",
        "gradient_accumulation_steps=2 task=mlm line_by_line=True train_file=@train.txt save_strategy=steps "
        "save_steps=5 max_steps=10",
        "bf16=True save_strategy=steps save_steps=5 max_steps=10 validation_file=@dev.csv eval_strategy=steps "
        "eval_steps=3",
        "bf16=True recompute=layer save_strategy=steps save_steps=5 max_steps=10",
        "dtype=bfloat16 update_in_backward=True recompute=layer save_strategy=steps save_steps=5 max_steps=10",
        "update_in_backward=True max_grad_norm=0 gradient_accumulation_steps=2 save_strategy=steps save_steps=5 "
        "max_steps=10",
        "config_name=@wide max_steps=5 gradient_accumulation_steps=2 save_strategy=steps save_steps=5 "
        "validation_file=@dev.csv eval_strategy=steps eval_steps=2",
        "config_name=@wide max_steps=5 save_strategy=steps save_steps=5 task=mlm line_by_line=True "
        "train_file=@train.txt validation_file=@dev.txt eval_strategy=steps eval_steps=2",
        "config_name=@wide max_steps=5 save_strategy=steps save_steps=5 dtype=bfloat16 update_in_backward=True",
        "config_name=@wide max_steps=5 save_strategy=steps save_steps=5 gradient_accumulation_steps=2 "
        "max_grad_norm=0 update_in_backward=True task=mlm line_by_line=True train_file=@train.txt",
    };
    write_model(f, "wide", 0.1, 64, 2, 30522);
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        const bool wide = strstr(runs[run], "wide");
        train(f, "plain", runs[run]);
        for (size_t i = wide ? ALL_CLASSES : 0; i < sizeof ways / sizeof *ways; i++) {
            char words[512], name[] = "offloaded";
            if (i == MASTERS && !strstr(runs[run], "bf16=True")) continue;
            snprintf(words, sizeof words, "%s offload=%s offload_dir=@offload offload_ratio=%s", runs[run], ways[i],
                     run % 2 ? "0.6" : "1");
            train(f, name, words);
            assert_same(f, "plain", name, "model.safetensors");
            assert_same(f, "plain", name,
                        wide ? "checkpoint-5/optimizer.safetensors" : "checkpoint-10/optimizer.safetensors");
            assert_int_equal(files_in(path_of(f, "offload")), 0);
        }
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "plain")), SNUG_OK);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "offloaded")), SNUG_OK);
    }
}

#define ALL "offload=optimizer,gradients,weights,activations"

/* A frozen word table: on a CPU it is copied, on a GPU its rows are read where they are, and it takes no memory there.
 */
FIXTURE_TEST(test_frozen_tables) {
    static const char words[] = "config_name=@wide freeze=embeddings max_steps=4 save_strategy=steps save_steps=2 "
                                "validation_file=@dev.csv eval_strategy=steps eval_steps=2";
    enum { ROWS = 4096, H = 64 };
    write_model(f, "wide", 0.1, H, 2, ROWS);
    train(f, "plain", words);
    static const char *const ways[] = {"offload=embeddings", "offload=embeddings,weights offload_ratio=0.5",
                                       "offload=weights offload_ratio=0.5"};
    for (int i = 0; i < 3; i++) {
        char more[512];
        snprintf(more, sizeof more, "%s %s offload_dir=@offload", words, ways[i]);
        train(f, "offloaded", more);
        assert_same(f, "plain", "offloaded", "model.safetensors");
        assert_same(f, "plain", "offloaded", "checkpoint-4/optimizer.safetensors");
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "offloaded")), SNUG_OK);
    }
    static const char *const gpus[] = {"", "offload=embeddings", "offload=embeddings,optimizer",
                                       "offload=weights offload_ratio=0.01"};
    int64_t weights[4], temporary[4];
    double seconds[4];
    for (int i = 0; i < 4; i++) {
        snug_plan *plan;
        char more[512];
        snprintf(more, sizeof more, "config_name=@wide freeze=embeddings bf16=True gpu=H100 train_file=dummy:64x16 %s",
                 gpus[i]);
        snug_args *args = plain_args(f, more);
        if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s: %s", more, snug_error_message(f->ctx));
        weights[i] = plan->bytes[SNUG_MEMORY_WEIGHTS];
        temporary[i] = plan->bytes[SNUG_MEMORY_TEMPORARY];
        seconds[i] = plan->methods[0].work.seconds;
        assert_int_equal(plan->offloaded[SNUG_MEMORY_WEIGHTS], i ? ROWS * H * 2 : 0);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
    for (int i = 1; i < 4; i++) assert_int_equal(weights[i], weights[0] - ROWS * H * 2);
    for (int i = 1; i < 4; i++) assert_int_equal(temporary[i], temporary[0]);
    assert_true(seconds[1] > seconds[0]);
    snug_plan *refused; /* copies of less than 256 KiB do not pay on a GPU */
    snug_args *small =
        plain_args(f, "config_name=@model freeze=embeddings gpu=H100 train_file=dummy:64x16 offload=embeddings");
    assert_int_equal(snug_plan_create(small, &refused), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "or too small");
    snug_args_destroy(small);
    train(f, "whole", "config_name=@wide max_steps=1");
    static const char adapter[] = "config_name= model_name_or_path=@whole use_peft=True max_steps=4";
    train(f, "adapter", adapter);
    char more[512];
    snprintf(more, sizeof more, "%s offload=embeddings,activations offload_dir=@offload", adapter);
    train(f, "offloaded", more);
    assert_same(f, "adapter", "offloaded", "adapter_model.safetensors");
}

/* What all of it takes is in a plan of adapters, whatever of it is offloaded. */
FIXTURE_TEST(test_all_trained_beside_an_offloaded_table) {
    static const char *const lists[] = {"embeddings", "embeddings,optimizer", "optimizer,embeddings",
                                        "optimizer,embeddings,gradients"};
    write_model(f, "wide", 0.1, 64, 2, 4096);
    for (int i = 0; i < 4; i++) {
        snug_plan *plan;
        char words[256];
        snprintf(words, sizeof words,
                 "config_name=@wide use_peft=True bf16=True gpu=H100 train_file=dummy:64x16 offload=%s", lists[i]);
        snug_args *args = plain_args(f, words);
        if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
        assert_true(plan->frozen.bytes[SNUG_MEMORY_WEIGHTS] > plan->bytes[SNUG_MEMORY_WEIGHTS]);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
}

/* A run resumes from another's checkpoint, with or without offloading in either, and best models are loaded. */
FIXTURE_TEST(test_resumed_is_uninterrupted) {
    static const char *const words = "save_strategy=steps save_steps=4 max_steps=12";
    snug_train_result result;
    train(f, "plain", words);
    for (int i = 0; i < 2; i++) {
        char first[256], second[256];
        snprintf(first, sizeof first, "%s %s", words, i ? "" : ALL);
        snprintf(second, sizeof second, "%s resume_from_checkpoint=True %s", words, i ? ALL : "");
        assert_int_equal(try_train(f, "again", first, 6, &result), SNUG_E_INTERRUPTED);
        train(f, "again", second);
        assert_same(f, "plain", "again", "model.safetensors");
        assert_same(f, "plain", "again", "checkpoint-12/optimizer.safetensors");
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "again")), SNUG_OK);
    }
    static const char *const best = "save_strategy=epoch eval_strategy=epoch validation_file=@dev.csv "
                                    "load_best_model_at_end=True num_train_epochs=3 learning_rate=1e-2";
    char offloaded[256];
    snprintf(offloaded, sizeof offloaded, "%s %s", best, ALL);
    train(f, "best", best);
    train(f, "best_offloaded", offloaded);
    assert_same(f, "best", "best_offloaded", "model.safetensors");
    /* The trained model evaluates and predicts the same with an offload file. */
    snug_metrics metrics[2];
    for (int i = 0; i < 2; i++) {
        snug_args *args = plain_args(f, "model_name_or_path=@best validation_file=@dev.csv threads=2");
        if (i) set_args(f, args, "offload=weights offload_dir=@offload");
        if (evaluate_args(f, args, NULL, &metrics[i]) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
    assert_true(metric_of(&metrics[0], "eval_loss") == metric_of(&metrics[1], "eval_loss"));
}

/* Callers see the same parameters and gradients; a step that is skipped has no side effect. */
FIXTURE_TEST(test_own_loop) {
    float *values[2][64];
    size_t counts[64], parameters = 0;
    for (int i = 0; i < 2; i++) {
        snug_session *s;
        snug_args *args = training_args(f, i ? ALL " offload_dir=@offload" : "");
        if (snug_session_create(args, &s) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        assert_int_equal(snug_session_begin_epoch(s, 0), SNUG_OK);
        for (int step = 0; step < 3; step++) {
            double loss, norm;
            assert_int_equal(snug_next_batch(s, NULL), SNUG_OK);
            assert_int_equal(snug_forward(s), SNUG_OK);
            assert_int_equal(snug_loss(s, &loss), SNUG_OK);
            if (step == 1) continue; /* forward and loss only: copies for backward may be in flight */
            assert_int_equal(snug_backward(s), SNUG_OK);
            assert_int_equal(snug_clip_grad_norm(s, 1, &norm), SNUG_OK);
            if (step == 2) break;
            assert_int_equal(snug_optimizer_step(s), SNUG_OK);
            assert_int_equal(snug_zero_grad(s), SNUG_OK);
        }
        const char *name;
        for (parameters = 0; (name = snug_parameter_name(s, parameters, &counts[parameters])); parameters++) {
            assert_true(parameters < 63);
            const size_t count = counts[parameters];
            float *both = values[i][parameters] = malloc(2 * count * sizeof(float));
            assert_non_null(both);
            assert_int_equal(snug_get_parameter(s, name, both, count), SNUG_OK);
            assert_int_equal(snug_get_gradient(s, name, both + count, count), SNUG_OK);
        }
        snug_session_destroy(s);
        snug_args_destroy(args);
    }
    assert_true(parameters > 20);
    for (size_t p = 0; p < parameters; p++) {
        assert_memory_equal(values[0][p], values[1][p], 2 * counts[p] * sizeof(float));
        free(values[0][p]);
        free(values[1][p]);
    }
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* 16 bytes a parameter of weights, gradients and states are four times the budget. Where activations are not offloaded,
   the total is larger than the variation of the system's figure (3 MiB), so that it can be compared with the plan,
   except for oneDNN's memory, which is planned at its maximum: with AVX2 its matmuls pack almost nothing. */
FIXTURE_TEST(test_four_times_the_budget) {
    static const char *const budget[] = {
        "--offload", "optimizer,gradients,weights,activations", "--memory_budget", "110MiB", "--max_steps", "2", NULL};
    static const char *const precise[] = {"--offload=optimizer,gradients,weights",
                                          "--recompute=none",
                                          "--per_device_train_batch_size",
                                          "76",
                                          "--threads",
                                          "2",
                                          "--max_steps",
                                          "2",
                                          NULL};
    const int64_t states = 16 * (int64_t)28.9e6, limit = (int64_t)110 << 20, products = 2 * ((int64_t)3 << 20);
    if (SANITIZED) skip(); /* its shadow memory is counted as the process's */
    write_medium(f);
    const struct trained small = train_medium(f, budget);
    assert_true(states >= 4 * limit && small.planned <= limit && small.peak <= limit);
    const struct trained large = train_medium(f, precise);
    assert_true((large.peak - large.planned) * 50 <= large.planned);
    assert_true((large.planned - products - large.peak) * 50 <= large.planned);
}

static int64_t arena_of(struct fixture *f, const char *words, int64_t *offloaded) {
    struct snug_job job;
    snug_args *args = training_args(f, words);
    assert_int_equal(snug_job_open(args, SNUG_COMMAND_TRAIN, &job), SNUG_OK);
    const int64_t total = job.plan.layout.total;
    *offloaded = job.plan.layout.offload_bytes;
    snug_job_close(&job);
    snug_args_destroy(args);
    return total;
}

/* Each offloaded class saves memory, and the offload file has the bytes that are no longer in the arena. */
FIXTURE_TEST(test_each_class_saves) {
    static const char *const ways[] = {"", "optimizer", "optimizer,gradients", "optimizer,gradients,weights",
                                       "optimizer,gradients,weights,activations"};
    int64_t before = 0, offloaded_before = -1;
    write_model(f, "wide", 0.1, 64, 6, 30522);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char words[256];
        int64_t offloaded;
        snprintf(words, sizeof words, "config_name=@wide per_device_train_batch_size=76%s%s", i ? " offload=" : "",
                 ways[i]);
        const int64_t arena = arena_of(f, words, &offloaded);
        if (i && arena >= before) fail_msg("%s: %lld, without %lld", ways[i], (long long)arena, (long long)before);
        assert_true(offloaded > offloaded_before);
        assert_true(i == 0 ? offloaded == 0 : true);
        before = arena;
        offloaded_before = offloaded;
    }
}

/* ---- refusals ------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_refusals) {
    static const struct {
        const char *words, *message;
        snug_status status;
    } cases[] = {
        {"offload=optimiser", "is not one of optimizer, gradients, weights, master_weights, embeddings, activations",
         SNUG_E_USAGE},
        {"offload=embeddings", "no frozen word table that the embeddings alone read", SNUG_E_USAGE},
        {"offload=embeddings freeze=embeddings task=mlm line_by_line=True train_file=@train.txt",
         "no frozen word table that the embeddings alone read", SNUG_E_USAGE},
        {"offload=optimizer,", "\"\" is not one of", SNUG_E_USAGE},
        {"offload=master_weights", "this run has none: use --bf16", SNUG_E_USAGE},
        {"offload=master_weights bf16=True dtype=bfloat16", "this run has none", SNUG_E_USAGE},
        {"offload_dir=@offload", "needs --offload", SNUG_E_USAGE},
        {"offload_ratio=0.5", "--offload_ratio 0.5 needs --offload", SNUG_E_USAGE},
        {"offload_update=0.5", "use --offload optimizer,gradients,weights", SNUG_E_USAGE},
        {"offload_update=1 offload=optimizer,gradients", "use --offload optimizer,gradients,weights", SNUG_E_USAGE},
        {"offload_update=1 offload=gradients,weights", "use --offload optimizer,gradients,weights", SNUG_E_USAGE},
        {"offload_update=1 offload=optimizer,gradients,weights", "needs a GPU", SNUG_E_USAGE},
        {"offload_update=1 offload=optimizer,gradients,weights offload_dir=@offload", "leave --offload_dir out",
         SNUG_E_USAGE},
        {"offload_update=1 offload=optimizer,gradients,weights update_in_backward=True", "leave one of them out",
         SNUG_E_USAGE},
        {"offload=optimizer offload_dir=@train.csv", "train.csv", SNUG_E_IO},
        {"offload=optimizer offload_dir=/proc/self", "/proc/self cannot hold the", SNUG_E_IO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_train_result result;
        const snug_status status = try_train(f, "refused", cases[i].words, 0, &result);
        if (status != cases[i].status) fail_msg("%s: status %d", cases[i].words, (int)status);
        assert_contains(snug_error_message(f->ctx), cases[i].message);
        assert_false(exists(path_of(f, "refused")));
    }
}

TEST_MAIN(NULL, NULL)
