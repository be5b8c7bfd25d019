/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADAM_ROWS, LAZY_UPDATE, ROWS_BEGIN: Adam over a table whose rows are updated lazily, when they are next read.
 *
 * The missed steps of a row are computed one by one in registers, each as ADAM does with a gradient of 0. Most of this
 * work can be skipped: m is multiplied by beta1 in each step, so that after about 100 steps p - update rounds to p;
 * from then on only the moments decrease. A bound over all remaining steps shows whether this is the case, see Bounds.
 */
#include "backend/cpu/adam.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/update.h"

/* A missed step, and bounds over it and all later ones: the largest step size, the smallest correction, the smallest
 * factors of p and of v; whether a clip scale that is not finite makes the update of a zero gradient NaN. */
struct missed {
    struct adam adam;
    float largest_step, least_correction, least_p, least_v;
    bool spoilt;
};

struct table {
    const struct snug_run *run;
    const struct snug_op *op;
    struct snug_matrix p, q, m, v, history;
    int32_t *updated;
    const struct missed *missed; /* step s at s - first */
    int64_t first, now;          /* rows may have missed steps before this one */
};

/* ---- vectors of a row ------------------------------------------------------------------------------------------- */

/* Vectors processed at a time: enough to hide the latency of the dependent operations. */
enum { GROUP = 4 };
struct group {
    vec p[GROUP], m[GROUP], v[GROUP];
};

static vec load(struct snug_matrix x, int64_t row, int64_t c) {
    return c < x.cols ? vec_load(matrix_at(x, row, 0), x.dtype, c, x.cols) : vec_all(0);
}

static void store(struct snug_matrix x, int64_t row, int64_t c, vec value) {
    if (x.data && c < x.cols) vec_store(matrix_at(x, row, 0), x.dtype, c, x.cols, value);
}

static struct group load_group(const struct table *t, int64_t row, int64_t c) {
    struct group g;
    for (int i = 0; i < GROUP; i++) {
        g.p[i] = load(t->p, row, c + i * VEC_LANES);
        g.m[i] = load(t->m, row, c + i * VEC_LANES);
        g.v[i] = load(t->v, row, c + i * VEC_LANES);
    }
    return g;
}

static void store_group(const struct table *t, int64_t row, int64_t c, const struct group *g) {
    for (int i = 0; i < GROUP; i++) {
        store(t->p, row, c + i * VEC_LANES, g->p[i]);
        store(t->q, row, c + i * VEC_LANES, g->p[i]);
        store(t->m, row, c + i * VEC_LANES, g->m[i]);
        store(t->v, row, c + i * VEC_LANES, g->v[i]);
    }
}

/* p as the next step reads it: rounded as update_end() stores it. */
static vec stored(const struct table *t, vec p, int64_t step, int64_t row, int64_t c) {
    if (t->p.dtype == SNUG_F32) return p;
    for (int i = 0; i < VEC_LANES; i++)
        p[i] = snug_bf16_to_f32(snug_f32_to_bf16_stochastic(
            p[i], snug_rounding_bits(t->run->seed, step, t->op->update.parameter, row * t->p.cols + c + i)));
    return p;
}

/* ---- missed steps ----------------------------------------------------------------------------------------------- */

/*
 * Bounds. In all remaining steps |m| does not grow, and v and |p| shrink at most by the factors least_v and least_p, so
 * an update is at most largest_step |m| / (sqrt(v least_v) least_correction + epsilon). Below a quarter ulp of p (half
 * an ulp of the binade below, where p is a power of two), which is more than |p| 2^-26, it changes nothing. The other
 * factor of 2 covers the rounding of this bound itself, and 2^-120 and 1e-30 cover the precision loss of denormal
 * numbers. A p in bf16 is unchanged only without weight decay, because stochastic rounding then has no bits to round.
 */
static bool rests(const struct table *t, const struct missed *s, const struct group *g) {
    vec_int moves = {0};
    if (s->spoilt || (t->p.dtype != SNUG_F32 && s->least_p != 1)) return false;
    for (int i = 0; i < GROUP; i++) {
        vec v = vec_max(vec_all(0), g->v[i] * s->least_v - 0x1p-120f);
        vec denominator = vec_sqrt(v) * s->least_correction + s->adam.numbers.epsilon;
        vec limit = vec_abs(g->p[i]) * (s->least_p * 0x1p-27f) * denominator;
        moves |= ~((vec_int)(g->m[i] == 0.0f) | (vec_int)(vec_abs(g->m[i]) * s->largest_step + 1e-30f < limit));
    }
    return !vec_any(moves);
}

/* m with a gradient of 0. */
static vec decayed(const struct missed *s, vec m) { return m + (vec_all(0) - m) * s->adam.numbers.rest1; }

/* beta1 times a small denormal number rounds to itself. Compares bits: -0 becomes 0. */
static bool constant(const struct missed *s, const struct group *g) {
    vec_int moves = {0};
    for (int i = 0; i < GROUP; i++) moves |= (vec_int)decayed(s, g->m[i]) != (vec_int)g->m[i];
    return !vec_any(moves);
}

/* Steps between two checks whether the rest can be skipped. */
enum { STRIDE = 8 };

static int64_t stride_end(int64_t step, int64_t now) { return step + STRIDE < now ? step + STRIDE : now; }

static void shrink(struct group *g, const struct missed *s, const struct missed *end) {
    const bool fixed = constant(s, g);
    for (; s < end; s++)
        for (int i = 0; i < GROUP; i++) {
            if (!fixed) g->m[i] = decayed(s, g->m[i]);
            g->v[i] *= s->adam.numbers.beta2;
            g->p[i] *= s->adam.numbers.keep;
        }
}

/* Computes steps from … now - 1 of a row. */
static void replay(const struct table *t, int64_t row, int64_t from) {
    for (int64_t c = 0; c < t->p.cols; c += GROUP * VEC_LANES) {
        struct group g = load_group(t, row, c);
        int64_t step = from;
        while (step < t->now && !rests(t, &t->missed[step - t->first], &g))
            for (int64_t end = stride_end(step, t->now); step < end; step++)
                for (int i = 0; i < GROUP; i++)
                    g.p[i] =
                        stored(t, adam_step(&t->missed[step - t->first].adam, g.p[i], &g.m[i], &g.v[i], vec_all(0)),
                               step, row, c + i * VEC_LANES);
        for (int64_t end; step < t->now; step = end) {
            end = stride_end(step, t->now);
            shrink(&g, &t->missed[step - t->first], &t->missed[end - t->first]);
        }
        store_group(t, row, c, &g);
    }
}

static void lazy_update(const struct table *t, int64_t row) {
    const int64_t from = t->updated[row];
    if (from < 0 || from >= t->now) return;
    replay(t, row, from);
    t->updated[row] = (int32_t)t->now;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static float smaller(float a, float b) { return a < b ? a : b; }

/* Computes the constants of steps first … now - 1 from the history; the bounds, from the last step backwards. */
static void recall(struct table *t, struct missed *missed) {
    struct missed *next = NULL;
    for (int64_t step = t->now - 1; step >= t->first; step--) {
        const float *past = matrix_at(t->history, step % t->history.rows, 0);
        struct missed *s = &missed[step - t->first];
        s->adam = (struct adam){update_numbers(t->run, t->op, step, past[0]).adam, past[1]};
        s->largest_step = s->adam.numbers.rate;
        s->least_correction = s->adam.numbers.root;
        s->least_p = s->adam.numbers.keep;
        s->least_v = s->adam.numbers.beta2;
        s->spoilt = !isfinite(past[1]);
        if (next) {
            s->largest_step = -smaller(-s->largest_step, -next->largest_step);
            s->least_correction = smaller(s->least_correction, next->least_correction);
            s->least_p *= smaller(1, next->least_p);
            s->least_v *= next->least_v;
            s->spoilt |= next->spoilt;
        }
        next = s;
    }
    t->missed = missed;
}

static struct table table_of(const struct snug_run *run, const struct snug_op *op) {
    return (struct table){.run = run,
                          .op = op,
                          .p = snug_matrix_of(run, op->update.weight),
                          .q = snug_matrix_of(run, op->update.copy),
                          .m = snug_matrix_of(run, op->update.states[0]),
                          .v = snug_matrix_of(run, op->update.states[1]),
                          .history = snug_matrix_of(run, op->update.history),
                          .updated = snug_run_data(run, op->update.updated),
                          .first = run->step,
                          .now = run->step};
}

/* Prepares the table for lazy_update() of these rows, or of rows 0 … count - 1. */
static struct table open_table(const struct snug_run *run, const struct snug_op *op, const int32_t *rows,
                               int64_t count) {
    struct table t = table_of(run, op);
    for (int64_t i = 0; i < count; i++) {
        const int64_t had = t.updated[rows ? rows[i] : i];
        if (had >= 0 && had < t.first) t.first = had;
    }
    recall(&t, run->workspace);
    return t;
}

int64_t SNUG_KERNEL(lazy_adam_workspace)(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    return program->tensors[op->update.history].rows * (int64_t)sizeof(struct missed);
}

static void flush(const struct snug_run *run, const struct snug_op *op) {
    const int64_t rows = snug_run_rows(run, op->update.weight);
    const struct table t = open_table(run, op, NULL, rows);
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 64)
    for (int64_t row = 0; row < rows; row++) lazy_update(&t, row);
}

static void update_batch(const struct snug_run *run, const struct snug_op *op) {
    const struct snug_batch *batch = run->batch;
    const struct table t = open_table(run, op, batch->ids, batch->tokens);
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 16)
    for (int64_t i = 0; i < batch->tokens; i++) { /* the first token of an id updates the row */
        const int32_t id = batch->ids[batch->by_id[i]];
        if (i == 0 || batch->ids[batch->by_id[i - 1]] != id) lazy_update(&t, id);
    }
}

snug_status SNUG_KERNEL(lazy_update)(struct snug_run *run, const struct snug_op *op) {
    if (run->batch)
        update_batch(run, op);
    else
        flush(run, op);
    return SNUG_OK;
}

/* The step of a row that has a gradient and is up to date. */
static void step_row(const struct table *t, const struct adam *adam, int64_t row, struct snug_matrix gradient,
                     int64_t slot) {
    for (int64_t c = 0; c < t->p.cols; c += GROUP * VEC_LANES) {
        struct group g = load_group(t, row, c);
        for (int i = 0; i < GROUP; i++) {
            const int64_t at = c + i * VEC_LANES;
            vec p = adam_step(adam, g.p[i], &g.m[i], &g.v[i], load(gradient, slot, at));
            g.p[i] = stored(t, p, t->now, row, at);
        }
        store_group(t, row, c, &g);
    }
    t->updated[row] = (int32_t)(t->now + 1);
}

snug_status SNUG_KERNEL(adam_rows)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix gradient = snug_matrix_of(run, op->update.g);
    const struct snug_rows rows = snug_rows_of(run, op->update.index, op->update.g);
    const float clip = update_clip(run, op);
    struct table t = table_of(run, op);
    if (run->step % t.history.rows == 0) flush(run, op); /* the history starts again */
    t = open_table(run, op, rows.rows, *rows.count);
    float *today = matrix_at(t.history, run->step % t.history.rows, 0);
    today[0] = run->learning_rate;
    today[1] = clip;
    if (!isfinite(clip)) /* a norm that is not finite makes rows without a gradient NaN, too */
        for (int64_t row = 0; row < t.p.rows; row++)
            if (t.updated[row] < 0) t.updated[row] = (int32_t)run->step;

    const struct adam adam = {update_numbers(run, op, run->step, run->learning_rate).adam, clip};
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 16)
    for (int64_t slot = 0; slot < *rows.count; slot++) {
        lazy_update(&t, rows.rows[slot]);
        step_row(&t, &adam, rows.rows[slot], gradient, slot);
    }
    return SNUG_OK;
}

/* ---- ROWS_BEGIN -------------------------------------------------------------------------------------------------- */

static bool is_zero(struct snug_matrix x, int64_t row) {
    const uint32_t *bits = matrix_at(x, row, 0);
    uint32_t any = 0;
    for (int64_t c = 0; c < x.cols; c++) any |= bits[c];
    return any == 0;
}

snug_status SNUG_KERNEL(rows_begin)(struct snug_run *run, const struct snug_op *op) {
    const struct snug_matrix m = snug_matrix_of(run, op->rows_begin.m), v = snug_matrix_of(run, op->rows_begin.v);
    int32_t *index = snug_run_data(run, op->rows_begin.index), *updated = snug_run_data(run, op->rows_begin.updated);
    const bool decays = op->rows_begin.decay && run->optimizer->weight_decay != 0;
    index[0] = 0;
    for (int64_t i = 1; i < snug_run_cols(run, op->rows_begin.index); i++) index[i] = -1;
#pragma omp parallel for num_threads(run->threads)
    for (int64_t row = 0; row < m.rows; row++)
        updated[row] = !decays && is_zero(m, row) && is_zero(v, row) ? -1 : (int32_t)run->step;
    return SNUG_OK;
}
