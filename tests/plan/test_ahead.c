/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives beside operations: nothing uses their tensors' bytes before they are done, operations run beside them,
 * two layers' weights are in the arena at most, and all ranks have the same collectives in the same order. */
#include "model/family.h"
#include "plan/estimate.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { LAYERS = 4, RANKS = 3 };
/* Variants of a program. */
enum { BF16 = 1, LAYER = 2, MLM = 4, ACCUMULATES = 8, TRAINS = 16, VARIANTS = 32 };

static const struct snug_optimizer adam = {
    .info = &snug_optimizer_adam, .decoupled = true, .beta1 = 0.9, .beta2 = 0.999};

static void build(struct fixture *f, const struct snug_config *config, int variant, int stage, int rank,
                  const struct snug_offload *offload, struct snug_program *out) {
    const enum snug_recompute level = variant & LAYER ? SNUG_RECOMPUTE_LAYER : SNUG_RECOMPUTE_NONE;
    const enum snug_recompute levels[LAYERS] = {level, level, level, level};
    const struct snug_methods methods = {.optimizer = variant & TRAINS ? &adam : NULL,
                                         .recompute = levels,
                                         .clips = true,
                                         .accumulates = variant & ACCUMULATES,
                                         .ranks = RANKS,
                                         .rank = rank,
                                         .zero_stage = stage,
                                         .offload = *offload};
    struct snug_layout layout;
    snug_program_init(out, f->ctx);
    out->compute = variant & BF16 ? SNUG_BF16 : SNUG_F32;
    out->longest = 60;
    out->capacity[SNUG_EXTENT_TOKENS] = 400;
    out->capacity[SNUG_EXTENT_SEQUENCES] = out->capacity[SNUG_EXTENT_ROWS] = 8;
    assert_int_equal(snug_build_model(out, config, variant & TRAINS, 0), SNUG_OK);
    assert_int_equal(snug_stages(out, &methods), SNUG_OK);
    struct snug_program *programs[] = {out};
    assert_int_equal(snug_stage_place(f->ctx, programs, 1, snug_backend_reference(), 1, 0, 0, &layout), SNUG_OK);
}

/* ---- the order of operations ------------------------------------------------------------------------------------- */

/* While the test walks a program in the order of execution. By tensor. */
struct walk {
    const struct snug_program *program;
    struct flight {
        int32_t reads, writes; /* of a collective that is not waited for; 0: none */
        bool worked;           /* a matmul has run beside it */
    } * flights;
    bool *stale;            /* an updated weight or its copy, of which not all shards are here */
    bool *whole;            /* a staging buffer that was gathered, and whose bytes nothing else has written since */
    int64_t beside, hidden; /* collectives; those beside which a matmul has run */
    bool pending;
};

static int32_t base_of(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].view ? program->tensors[tensor].base : tensor;
}

static bool share_bytes(const struct snug_program *program, int32_t a, int32_t b) {
    const struct snug_tensor *x = &program->tensors[a], *y = &program->tensors[b];
    return a && b && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static bool is_staging(const struct snug_program *program, int32_t tensor) {
    return strncmp(program->tensors[tensor].name, "gathered.", 9) == 0;
}

/* An operation uses a tensor while collectives are in flight. */
static void use(struct walk *w, const struct snug_op *op, int32_t tensor, bool writes) {
    const struct snug_program *program = w->program;
    for (size_t i = 1; i < program->tensor_count && tensor; i++) {
        const struct flight *flight = &w->flights[i];
        if (op->beside) break; /* collectives follow each other in their stream */
        if (share_bytes(program, tensor, flight->writes) || (writes && share_bytes(program, tensor, flight->reads)))
            fail_msg("%s of phase %d uses %s while a collective of %s is in flight", snug_op_name(op->kind),
                     (int)op->phase, program->tensors[tensor].name, program->tensors[i].name);
    }
    const bool forward = op->phase >= SNUG_PHASE_FORWARD && op->phase <= SNUG_PHASE_BACKWARD;
    if (!writes && tensor && forward && w->stale[tensor] && op->kind != SNUG_OP_GATHER_RANKS)
        fail_msg("%s of phase %d reads %s before its shards are gathered", snug_op_name(op->kind), (int)op->phase,
                 program->tensors[tensor].name);
    if (!writes && is_staging(program, tensor) && !w->whole[tensor])
        fail_msg("%s of phase %d reads %s, which is not there", snug_op_name(op->kind), (int)op->phase,
                 program->tensors[tensor].name);
    for (size_t i = 1; i < program->tensor_count && writes && tensor; i++)
        if ((int32_t)i != tensor && is_staging(program, (int32_t)i) && share_bytes(program, tensor, (int32_t)i))
            w->whole[i] = false;
}

static void land(struct walk *w, int32_t tensor) {
    struct flight *flight = &w->flights[tensor];
    if (!flight->reads && !flight->writes) return;
    w->hidden += flight->worked;
    if (flight->writes == tensor) w->whole[tensor] = true;
    if (flight->writes == tensor) w->stale[tensor] = false;
    *flight = (struct flight){0};
}

static void begin_flight(struct walk *w, const struct snug_op *op) {
    const bool sums = op->kind == SNUG_OP_SUM_RANKS;
    const int32_t tensor = sums ? op->sum_ranks.g : op->gather_ranks.x;
    if (w->flights[tensor].reads || w->flights[tensor].writes)
        fail_msg("%s is in flight twice", w->program->tensors[tensor].name);
    w->flights[tensor] = sums ? (struct flight){.reads = tensor, .writes = op->sum_ranks.sum}
                              : (struct flight){.reads = op->gather_ranks.shard, .writes = tensor};
    w->beside++;
}

static void walk_op(struct walk *w, const struct snug_op *op) {
    if (op->kind == SNUG_OP_WAIT) {
        land(w, op->wait.x);
        return;
    }
    for (int k = 0; k < snug_op_operands(op); k++)
        use(w, op, base_of(w->program, op->operands[k]), !snug_op_reads(op, k));
    if (op->beside) begin_flight(w, op);
    if (op->kind == SNUG_OP_GATHER_RANKS && !op->beside) w->stale[op->gather_ranks.x] = false;
    if (op->kind == SNUG_OP_GATHER_RANKS && !op->beside) w->whole[op->gather_ranks.x] = true;
    if (op->kind == SNUG_OP_CAST) w->stale[op->cast.q] = false;
    if (snug_op_info(op->kind)->group == SNUG_GROUP_CONTRACTION)
        for (size_t i = 1; i < w->program->tensor_count; i++) w->flights[i].worked = true;
}

static void walk_phase(struct walk *w, enum snug_phase phase, int micro) {
    const struct snug_moment moment = {.first = micro == 0, .last = micro == 1, .pending = w->pending};
    for (size_t i = 0; i < w->program->op_count; i++) {
        const struct snug_op *op = &w->program->ops[i];
        if (op->phase == phase && !snug_op_is_idle(op, &moment)) walk_op(w, op);
    }
    for (size_t i = 1; i < w->program->tensor_count; i++) land(w, (int32_t)i); /* a phase ends with its collectives */
    if (phase == SNUG_PHASE_FORWARD) w->pending = false;
}

/* Until FORWARD has gathered them, updated weights have only this rank's shards, and copies of them are old. */
static void age_weights(struct walk *w) {
    const struct snug_program *program = w->program;
    w->pending = program->crosses;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->crosses && op->kind == SNUG_OP_GATHER_RANKS) w->stale[op->gather_ranks.x] = true;
    }
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_CAST && w->stale[op->cast.p] && program->tensors[op->cast.q].persistent)
            w->stale[op->cast.q] = true;
    }
}

static void walk_steps(struct walk *w, bool trains) {
    walk_phase(w, SNUG_PHASE_PREPARE, 0);
    for (int step = 0; step < 2; step++) {
        for (int micro = 0; micro < 2; micro++) {
            walk_phase(w, SNUG_PHASE_FORWARD, micro);
            for (int chunk = 0; chunk < 2; chunk++) walk_phase(w, SNUG_PHASE_HEAD, micro);
            if (trains) walk_phase(w, SNUG_PHASE_BACKWARD, micro);
        }
        if (!trains) continue;
        walk_phase(w, SNUG_PHASE_CLIP, 1);
        walk_phase(w, SNUG_PHASE_UPDATE, 1);
        age_weights(w);
    }
}

/* ---- what the programs must have --------------------------------------------------------------------------------- */

/* Gathered weights that are in the arena together: at most those of the two largest groups. */
static void check_bytes(const struct snug_program *program) {
    int64_t groups[SNUG_PHASE_COUNT][LAYERS + 2] = {{0}}, largest[2] = {0};
    for (size_t i = 1; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!is_staging(program, (int32_t)i)) continue;
        const int group = t->part == SNUG_PART_LAYER ? t->layer : t->part == SNUG_PART_HEAD ? LAYERS : LAYERS + 1;
        groups[program->ops[t->first].phase][group] += t->bytes;
    }
    for (int phase = 0; phase < SNUG_PHASE_COUNT; phase++)
        for (int group = 0; group < LAYERS + 2; group++)
            if (groups[phase][group] > largest[0]) {
                largest[1] = largest[0];
                largest[0] = groups[phase][group];
            } else if (groups[phase][group] > largest[1]) {
                largest[1] = groups[phase][group];
            }
    for (int32_t at = 0; at < (int32_t)program->op_count; at++) {
        int64_t bytes = 0;
        for (size_t i = 1; i < program->tensor_count; i++)
            if (is_staging(program, (int32_t)i) && program->tensors[i].first <= at && program->tensors[i].last >= at)
                bytes += program->tensors[i].bytes;
        assert_true(bytes <= largest[0] + largest[1]);
    }
}

/* Of a step, in this order; idle: of a rank without a micro-batch. */
static size_t list_collectives(const struct snug_program *program, bool idle, const struct snug_op **out) {
    size_t count = 0;
    for (int phase = SNUG_PHASE_FORWARD; phase < SNUG_PHASE_COUNT; phase++) {
        const struct snug_moment moment = {.first = true, .last = true, .pending = true, .idle = idle};
        for (size_t i = 0; i < program->op_count; i++) {
            const struct snug_op *op = &program->ops[i];
            const bool after = op->phase >= SNUG_PHASE_CLIP; /* which an idle rank runs as the others do */
            const bool counts = snug_op_is(op, SNUG_OP_COLLECTIVE) || (op->crosses && op->kind == SNUG_OP_CAST);
            if ((int)op->phase != phase || !counts || (!after && snug_op_is_idle(op, &moment))) continue;
            out[count++] = op;
        }
    }
    return count;
}

static void check_ranks(struct fixture *f, const struct snug_config *config, int variant, int stage,
                        const struct snug_offload *offload, const struct snug_program *first) {
    const struct snug_op **ours = calloc(first->op_count, sizeof *ours);
    for (int rank = 0; rank < RANKS; rank++) {
        struct snug_program other;
        build(f, config, variant, stage, rank, offload, &other);
        const struct snug_op **theirs = calloc(other.op_count, sizeof *theirs);
        assert_true(ours && theirs);
        const size_t count = list_collectives(first, false, ours);
        assert_int_equal(list_collectives(&other, rank > 0, theirs), count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(ours[i]->kind, theirs[i]->kind);
            assert_int_equal(ours[i]->phase, theirs[i]->phase);
            assert_int_equal(ours[i]->crosses, theirs[i]->crosses);
            assert_int_equal(ours[i]->beside, theirs[i]->beside);
            if (ours[i]->kind != SNUG_OP_GATHER_RANKS) continue;
            assert_int_equal(ours[i]->gather_ranks.shards.elements, theirs[i]->gather_ranks.shards.elements);
            assert_int_equal(ours[i]->gather_ranks.shards.start, theirs[i]->gather_ranks.shards.start);
        }
        free(theirs);
        snug_program_free(&other);
    }
    free(ours);
}

/* Gatherings of large weights for which operations wait at once. */
static int64_t count_waited(const struct snug_program *program) {
    int64_t waited = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        const bool in_step = op->phase != SNUG_PHASE_PREPARE && op->phase != SNUG_PHASE_CLIP;
        waited += op->kind == SNUG_OP_GATHER_RANKS && in_step && !op->beside &&
                  op->gather_ranks.shards.elements > SNUG_NORM_CHUNK;
    }
    return waited;
}

/* Weights that are gathered beside the updates of others; each after its own update. */
static int64_t count_early(const struct snug_program *program) {
    int64_t early = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *gather = &program->ops[i];
        if (gather->kind != SNUG_OP_GATHER_RANKS || gather->phase != SNUG_PHASE_UPDATE || !gather->beside) continue;
        early++;
        for (const struct snug_op *op = gather; op < program->ops + program->op_count; op++)
            for (int k = 0; k < snug_op_operands(op) && snug_op_is(op, SNUG_OP_UPDATES); k++)
                assert_int_not_equal(base_of(program, op->operands[k]), gather->gather_ranks.x);
    }
    return early;
}

static void check(struct fixture *f, const struct snug_config *config, int variant, int stage) {
    const struct snug_offload offload = {.overlaps = true};
    const bool trains = variant & TRAINS;
    struct snug_program program;
    build(f, config, variant, stage, 1, &offload, &program);
    struct walk w = {.program = &program,
                     .flights = calloc(program.tensor_count, sizeof *w.flights),
                     .stale = calloc(program.tensor_count, 1),
                     .whole = calloc(program.tensor_count, 1)};
    assert_true(w.flights && w.stale && w.whole);
    walk_steps(&w, trains);
    assert_int_equal(program.crosses, trains && (stage == 1 || stage == 2));
    assert_true((count_early(&program) > 0) == program.crosses);
    assert_true((w.beside > 0) == (stage == 3 || (trains && stage > 0)));
    /* Not the first groups of FORWARD and BACKWARD, nor the last sums. */
    if (w.hidden * 10 < w.beside * 6)
        fail_msg("variant %d, stage %d: matmuls run beside %ld of %ld collectives", variant, stage, (long)w.hidden,
                 (long)w.beside);
    const bool bias = variant & MLM && config->vocab_size > SNUG_NORM_CHUNK; /* a divided vector stays in UPDATE */
    assert_int_equal(count_waited(&program), bias && program.crosses);
    check_bytes(&program);
    check_ranks(f, config, variant, stage, &offload, &program);
    free(w.flights);
    free(w.stale);
    free(w.whole);
    snug_program_free(&program);
}

static void check_all(struct fixture *f, const char *folder) {
    struct snug_config config;
    assert_int_equal(snug_config_read(f->ctx, path_of(f, "%s", folder), &config), SNUG_OK);
    for (int variant = 0; variant < VARIANTS; variant++) {
        const bool mlm = variant & MLM;
        assert_int_equal(snug_config_set_task(f->ctx, &config, mlm ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION,
                                              mlm ? NULL : &config.labels),
                         SNUG_OK);
        for (int stage = 0; stage <= 3; stage++) check(f, &config, variant, stage);
    }
    snug_config_free(&config);
}

/* ELECTRA's embeddings have a matmul, whose 16-bit weight FORWARD needs at once; its vocabulary's bias is divided. */
FIXTURE_TEST(test_collectives_are_waited_for) {
    write_model(f, "deep", 0.1, 160, LAYERS, 1200);
    check_all(f, "deep");
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "electra")), SNUG_OK);
    write_text(f, "electra/config.json",
               "{\"model_type\": \"electra\", \"vocab_size\": 17000, \"embedding_size\": 128, \"hidden_size\": 160,"
               " \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"intermediate_size\": 640,"
               " \"max_position_embeddings\": 64}");
    check_all(f, "electra");
}

/* ---- where nothing moves ----------------------------------------------------------------------------------------- */

static int64_t count_beside(const struct snug_program *program, enum snug_op_kind kind) {
    int64_t count = 0;
    for (size_t i = 0; i < program->op_count; i++) count += program->ops[i].beside && program->ops[i].kind == kind;
    return count;
}

/* Backends that are not asynchronous have no WAITs; and collectives whose operands may be offloaded are waited for. */
FIXTURE_TEST(test_what_stays) {
    static const struct {
        struct snug_offload offload;
        bool gathers, sums, crosses;
    } cases[] = {
        {{.overlaps = false}, false, false, false},
        {{.overlaps = true}, true, true, true},
        {{.overlaps = true, .classes = 1 << SNUG_MEMORY_WEIGHTS}, false, true, false},
        {{.overlaps = true, .classes = SNUG_OFFLOAD_MASTERS}, false, true, false},
        {{.overlaps = true, .classes = 1 << SNUG_MEMORY_GRADIENTS}, true, false, false},
        {{.overlaps = true, .classes = 1 << SNUG_MEMORY_ACTIVATIONS}, true, true, false},
    };
    struct snug_config config;
    write_model(f, "deep", 0.1, 160, LAYERS, 1200);
    assert_int_equal(snug_config_read(f->ctx, path_of(f, "deep"), &config), SNUG_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_offload offload = cases[i].offload;
        struct snug_program program;
        offload.least = INT64_MAX; /* so that nothing is offloaded in the end */
        offload.part = 1 << 16;
        build(f, &config, BF16 | TRAINS, 3, 0, &offload, &program);
        assert_int_equal(count_beside(&program, SNUG_OP_GATHER_RANKS) > 0, cases[i].gathers);
        assert_int_equal(count_beside(&program, SNUG_OP_SUM_RANKS) > 0, cases[i].sums);
        assert_int_equal(snug_program_has(&program, SNUG_OP_WAIT), cases[i].gathers || cases[i].sums);
        snug_program_free(&program);
        build(f, &config, BF16 | TRAINS, 1, 0, &offload, &program);
        assert_int_equal(program.crosses, cases[i].crosses);
        snug_program_free(&program);
    }
    snug_config_free(&config);
}

/* ---- the estimate ------------------------------------------------------------------------------------------------ */

/* Collectives beside operations take time only where operations wait for them. */
FIXTURE_TEST(test_estimate) {
    struct snug_config config;
    double seconds[2][2]; /* by whether they run beside operations, and whether they take time */
    write_model(f, "deep", 0.1, 160, LAYERS, 1200);
    assert_int_equal(snug_config_read(f->ctx, path_of(f, "deep"), &config), SNUG_OK);
    for (int beside = 0; beside < 2; beside++)
        for (int costs = 0; costs < 2; costs++) {
            struct snug_rate items[] = {{.kind = SNUG_OP_ACTIVATION, .byte = 1e-9},
                                        {.kind = SNUG_OP_LINEAR, .flop = 1e-11},
                                        {.kind = SNUG_OP_LINEAR_DX, .flop = 1e-11},
                                        {.kind = SNUG_OP_LINEAR_DW, .flop = 1e-11}};
            const struct snug_rates rates = {.ctx = f->ctx,
                                             .overlaps = true,
                                             .link = {.byte = 1e-10 * costs},
                                             .items = items,
                                             .count = sizeof items / sizeof *items};
            const struct snug_load load = {.tokens = 400, .sequences = 8, .rows = 8, .micro_batches = 1};
            const struct snug_offload offload = {.overlaps = beside};
            struct snug_program program;
            struct snug_step_estimate step;
            build(f, &config, BF16 | TRAINS, 3, 0, &offload, &program);
            assert_int_equal(snug_estimate_parts(&rates, &program, &load, &step), SNUG_OK);
            seconds[beside][costs] = step.total.seconds;
            snug_program_free(&program);
        }
    const double whole = seconds[0][1] - seconds[0][0], waited = seconds[1][1] - seconds[1][0];
    if (waited <= 0 || waited > 0.6 * whole)
        fail_msg("collectives of %g s: operations wait for them for %g s", whole, waited);
    snug_config_free(&config);
}

TEST_MAIN(NULL, NULL)
