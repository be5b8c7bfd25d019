/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the seconds of operations on this machine, and of a step of a program. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "plan/estimate.h"

int32_t snug_operand_types(const struct snug_program *program, const struct snug_op *op) {
    const int operands = snug_op_operands(op);
    int32_t types = 0;
    int inputs = 0, outputs = 0;
    for (int k = 0; k < operands; k++) {
        const bool input = snug_op_reads(op, k);
        const int bit = input ? inputs++ : 2 + outputs++;
        const bool counts = input ? bit < 2 : bit < 3; /* the first two inputs and the first output */
        if (counts && snug_dtype_size(program->tensors[op->operands[k]].dtype) == 2) types |= 1 << bit;
    }
    if (op->on_host) types |= SNUG_ON_HOST;
    if (op->alone) types |= SNUG_ALONE;
    const bool forward = op->kind == SNUG_OP_ATTENTION, backward = op->kind == SNUG_OP_ATTENTION_BACKWARD;
    if ((forward || backward) && snug_op_attention_form(op)->after == 0) types |= SNUG_CAUSAL;
    if ((forward && (op->attention.pk || op->attention.pq)) ||
        (backward && (op->attention_backward.pk || op->attention_backward.pq)))
        types |= SNUG_POSITIONS;
    return types | (program->tf32 && snug_op_info(op->kind)->group == SNUG_GROUP_CONTRACTION ? 8 : 0);
}

enum { FARTHEST = 64 }; /* more than any two variants differ */

/* The rate of the same kind if it was measured, the most similar variant first, but one that does not grow with the
 * operation last: it was measured in operations that are too small. Else the rate of an activation: kinds that are not
 * measured are element-wise, too. */
static const struct snug_rate *find_rate(const struct snug_rates *rates, enum snug_op_kind kind, int32_t types,
                                         bool dropout, bool file) {
    const struct snug_rate *best = NULL;
    int least = INT_MAX;
    for (size_t i = 0; i < rates->count; i++) {
        const struct snug_rate *rate = &rates->items[i];
        if (rate->kind != kind || rate->file != file || (rate->types ^ types) & SNUG_ON_HOST) continue;
        const bool grows = rate->flop > 0 || rate->byte > 0, other_launch = (rate->types ^ types) & SNUG_ALONE;
        const int distance = 2 * __builtin_popcount((unsigned)(rate->types ^ types)) + (rate->dropout != dropout) +
                             (other_launch ? FARTHEST / 2 : 0) + (grows ? 0 : FARTHEST);
        if (distance < least) {
            best = rate;
            least = distance;
        }
    }
    return best || kind == SNUG_OP_ACTIVATION ? best : find_rate(rates, SNUG_OP_ACTIVATION, types, false, false);
}

/* Whether op copies between a GPU and the offload file; a CPU's copies are always from and to it. */
static bool uses_file(const struct snug_rates *rates, const struct snug_program *program, const struct snug_op *op) {
    return rates->overlaps && program->to_file && snug_op_is(op, SNUG_OP_COPIES);
}

/* Of EMBED, reading the rows of a table in host memory: those of a copy. */
static double rows_seconds(const struct snug_rates *rates, const struct snug_program *program, const struct snug_op *op,
                           double tokens) {
    const struct snug_tensor *table = &program->tensors[op->embed.word];
    const struct snug_rate *rate = find_rate(rates, SNUG_OP_FETCH, 0, false, false);
    return rate ? rate->byte * tokens * (double)table->cols * snug_dtype_size(table->dtype) : 0;
}

struct snug_estimate snug_estimate_op(const struct snug_rates *rates, const struct snug_program *program,
                                      const struct snug_op *op, const struct snug_load *load, double rows) {
    /* snug_op_cost() assumes sequences of equal length: where pairs of tokens matter, their number is chosen to match
       the load's pairs. */
    const double tokens = load->tokens;
    const bool counts = load->pairs > 0 && snug_op_is(op, SNUG_OP_PAIRS);
    const double sequences = counts ? tokens * tokens / load->pairs : load->sequences;
    const struct snug_cost cost = snug_op_cost(program, op, tokens, sequences, rows);
    struct snug_estimate estimate = {.flops = cost.flops, .bytes = cost.bytes};
    const struct snug_rate *rate = NULL;
    if (rates)
        rate = find_rate(rates, op->kind, snug_operand_types(program, op), op->p > 0, uses_file(rates, program, op));
    const bool in_place = op->kind == SNUG_OP_EMBED && program->tensors[op->embed.word].in_place;
    if (rate) estimate.seconds = rate->call + rate->flop * estimate.flops + rate->byte * estimate.bytes;
    if (rates && in_place) estimate.seconds += rows_seconds(rates, program, op, tokens);
    return estimate;
}

/* The seconds of collective i. Those that follow each other are one call. A sum that all ranks get has two: an exchange
 * of shards, and a gathering of their sums. */
static double collective_seconds(const struct snug_rates *rates, const struct snug_program *program, size_t i) {
    const struct snug_op *op = &program->ops[i];
    const struct snug_link *link = &rates->link;
    const double others = program->ranks - 1;
    const bool begins = i == 0 || op[-1].kind != op->kind;
    const int calls = op->kind == SNUG_OP_SUM_RANKS && snug_sums_for_all(op) ? 2 : 1;
    if (link->byte <= 0) return 0;
    return (begins ? calls * (link->call + link->rank * others) : 0) +
           link->byte * snug_op_cost(program, op, 0, 0, 0).bytes * others / program->ranks;
}

/* Operation i of the program. Collectives know their ranks' link alone. */
static struct snug_estimate estimate_one(const struct snug_rates *rates, const struct snug_program *program, size_t i,
                                         const struct snug_load *load, double rows) {
    struct snug_estimate one = snug_estimate_op(rates, program, &program->ops[i], load, rows);
    if (rates && snug_op_is(&program->ops[i], SNUG_OP_COLLECTIVE)) one.seconds = collective_seconds(rates, program, i);
    return one;
}

/* An asynchronous backend sums whole gradients beside the rest of BACKWARD, at whose end it waits for them. */
static bool is_beside(const struct snug_op *op) {
    return op->beside || (op->kind == SNUG_OP_SUM_RANKS && op->phase == SNUG_PHASE_BACKWARD);
}

enum snug_side snug_side_of(const struct snug_op *op, bool after_loss) {
    if (op->crosses || op->phase == SNUG_PHASE_CLIP || op->phase == SNUG_PHASE_UPDATE) return SNUG_SIDE_UPDATE;
    return op->phase == SNUG_PHASE_BACKWARD || (op->phase == SNUG_PHASE_HEAD && after_loss) ? SNUG_SIDE_BACKWARD
                                                                                            : SNUG_SIDE_FORWARD;
}

static void add(struct snug_estimate *sum, double times, const struct snug_estimate *one) {
    sum->flops += times * one->flops;
    sum->bytes += times * one->bytes;
    sum->seconds += times * one->seconds;
}

/* ---- copies beside operations ---------------------------------------------------------------------------------- */

/* The clock of a step: operations run one after the other, and so do the copies of each direction, updates on the host,
 * and collectives beside operations. The offload file does one copy at a time. */
struct step_clock {
    const struct snug_rates *rates;
    const struct snug_program *program;
    const struct snug_load *load;
    double now, until[2], *copied; /* until: by direction; copied: by staging buffer, the end of its last copy */
    double host, ranks;            /* until the host updates; until collectives run */
    double waited;
};

static void wait_until(struct step_clock *t, double when) {
    if (when <= t->now) return;
    t->waited += when - t->now;
    t->now = when;
}

static void walk_op(struct step_clock *t, size_t i) {
    const struct snug_op *op = &t->program->ops[i];
    if (snug_op_is(op, SNUG_OP_WAITS)) {
        wait_until(t, t->copied[op->wait.x]);
        return;
    }
    const double seconds = estimate_one(t->rates, t->program, i, t->load, t->load->rows).seconds;
    if (op->on_host) { /* it waits for what is done so far */
        t->copied[op->update.weight] = t->host = fmax(t->now, t->host) + seconds;
        return;
    }
    if (is_beside(op)) {
        t->ranks = fmax(t->now, t->ranks) + seconds;
        t->copied[op->kind == SNUG_OP_SUM_RANKS ? op->sum_ranks.g : op->gather_ranks.x] = t->ranks;
        return;
    }
    if (!snug_op_is(op, SNUG_OP_COPIES)) {
        t->now += seconds;
        return;
    }
    const bool store = snug_op_is(op, SNUG_OP_STORES);
    double *until = &t->until[store && !t->program->to_file];
    *until = fmax(t->now, *until) + seconds;
    t->copied[store ? op->store.x : op->fetch.x] = *until;
}

/* A phase ends when its copies, updates on the host and collectives have ended, too. Returns the seconds for which
 * operations waited. */
static double walk_phase(struct step_clock *t, enum snug_phase phase, bool first, bool last) {
    /* In a step after another one. */
    const struct snug_moment moment = {.first = first, .last = last, .fetched = true, .pending = first};
    t->waited = 0;
    for (size_t i = 0; i < t->program->op_count; i++) {
        const struct snug_op *op = &t->program->ops[i];
        if (op->phase == phase && !snug_op_is_idle(op, &moment)) walk_op(t, i);
    }
    wait_until(t, fmax(fmax(t->host, t->ranks), fmax(t->until[0], t->until[1])));
    return t->waited;
}

static void add_wait(struct snug_step_estimate *sum, enum snug_side side, double times, double seconds) {
    const struct snug_estimate wait = {.seconds = seconds};
    add(&sum->total, times, &wait);
    add(&sum->parts[side][snug_op_info(SNUG_OP_WAIT)->group], times, &wait);
}

/* The first and the last micro-batch have copies of their own; those in between are alike. HEAD has no copies. */
static snug_status add_waits(const struct snug_rates *rates, const struct snug_program *program,
                             const struct snug_load *load, struct snug_step_estimate *sum) {
    struct step_clock t = {.rates = rates, .program = program, .load = load};
    RETURN_IF_ERROR(snug_alloc(program->ctx, program->tensor_count, sizeof *t.copied, (void **)&t.copied));
    const double count = fmax(load->micro_batches, 1);
    for (int i = 0; i < 3; i++) {
        const bool first = i == 0, last = i == 2 || count == 1;
        const double times = i == 1 ? count - 2 : 1;
        if (i > 0 && (count == 1 || times <= 0)) continue;
        add_wait(sum, SNUG_SIDE_FORWARD, times, walk_phase(&t, SNUG_PHASE_FORWARD, first, last));
        add_wait(sum, SNUG_SIDE_BACKWARD, times, walk_phase(&t, SNUG_PHASE_BACKWARD, first, last));
    }
    add_wait(sum, SNUG_SIDE_UPDATE, 1, walk_phase(&t, SNUG_PHASE_CLIP, false, true));
    add_wait(sum, SNUG_SIDE_UPDATE, 1, walk_phase(&t, SNUG_PHASE_UPDATE, true, true));
    free(t.copied);
    return SNUG_OK;
}

/* ---- a step ----------------------------------------------------------------------------------------------------- */

/* Host-memory rates do not apply to a disk. */
static snug_status check_file_rates(const struct snug_rates *rates, const struct snug_program *program) {
    bool known = false; /* both directions are measured, or none */
    for (size_t i = 0; i < rates->count; i++) known |= rates->items[i].file;
    if (!program->to_file || known) return SNUG_OK;
    return snug_fail(program->ctx, SNUG_E_INPUT,
                     "the rates of %s lack those of copies from and to the offload file: measure them with snug bench "
                     "rates --device cuda, or leave --offload_dir out",
                     rates->device);
}

bool snug_rates_have_host(const struct snug_rates *rates, enum snug_op_kind kind) {
    for (size_t i = 0; i < rates->count; i++)
        if (rates->items[i].kind == kind && rates->items[i].types & SNUG_ON_HOST) return true;
    return false;
}

static snug_status check_host_rates(const struct snug_rates *rates, const struct snug_program *program) {
    bool known = true;
    for (size_t i = 0; i < program->op_count; i++)
        known &= !program->ops[i].on_host || snug_rates_have_host(rates, program->ops[i].kind);
    if (known) return SNUG_OK;
    return snug_fail(program->ctx, SNUG_E_INPUT,
                     "the rates of %s lack those of updates on the host: measure them with snug bench rates --device "
                     "cuda, or leave --offload_update out",
                     rates->device);
}

/* HEAD runs once for each chunk of loss positions. */
static double chunks_of(const struct snug_program *program, const struct snug_load *load) {
    const double size = (double)program->capacity[SNUG_EXTENT_ROWS];
    return load->rows > size ? ceil(load->rows / size) : 1;
}

/* A HEAD that scores first runs twice, forward; of one chunk the loss alone (enum snug_head_pass). So does all of
   forward where a loss is over several micro-batches. */
static double passes_of(const struct snug_program *program, const struct snug_op *op, const struct snug_load *load,
                        double chunks, bool after_loss) {
    const bool loss = op->kind == SNUG_OP_LOSS, head = op->phase == SNUG_PHASE_HEAD;
    if (program->loss_of_step) return load->micro_batches > 1 && (head || op->phase == SNUG_PHASE_FORWARD) ? 2 : 1;
    return program->scores_first && head && !after_loss && (loss || chunks > 1) ? 2 : 1;
}

struct snug_call_estimate snug_estimate_call(const struct snug_rates *rates, const struct snug_program *program,
                                             size_t i, const struct snug_load *load, bool *after_loss) {
    const struct snug_op *op = &program->ops[i];
    const double chunks = op->phase == SNUG_PHASE_HEAD ? chunks_of(program, load) : 1;
    const struct snug_call_estimate call = {.side = snug_side_of(op, *after_loss),
                                            .group = snug_op_info(op->kind)->group,
                                            .work = estimate_one(rates, program, i, load, load->rows / chunks)};
    *after_loss |= snug_op_is(op, SNUG_OP_ENDS_FORWARD);
    return call;
}

snug_status snug_estimate_parts(const struct snug_rates *rates, const struct snug_program *program,
                                const struct snug_load *load, struct snug_step_estimate *out) {
    const bool beside = rates && rates->overlaps;
    bool after_loss = false, waits = false;
    *out = (struct snug_step_estimate){0};
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->phase == SNUG_PHASE_PREPARE) continue;   /* not part of a step */
        if (op->unless == SNUG_UNLESS_FETCHED) continue; /* BACKWARD has fetched it */
        /* Gradients are cleared once; the update follows the last micro-batch, and its copies run once. */
        const bool once = op->crosses || op->last || op->phase == SNUG_PHASE_CLIP || op->phase == SNUG_PHASE_UPDATE ||
                          op->phase == SNUG_PHASE_STEP || (snug_op_is(op, SNUG_OP_CLEARS) && op->first && !op->each);
        const double each = load->micro_batches - (op->unless == SNUG_UNLESS_UPDATED); /* the first one updates */
        const bool together = snug_op_is(op, SNUG_OP_COLLECTIVE); /* a rank without a micro-batch runs it, too */
        const double chunks = op->phase == SNUG_PHASE_HEAD ? chunks_of(program, load) : 1;
        const double times = once       ? 1
                             : together ? fmax(each, 1)
                                        : each * chunks * passes_of(program, op, load, chunks, after_loss);
        struct snug_call_estimate call = snug_estimate_call(rates, program, i, load, &after_loss);
        const bool apart = snug_op_is(op, SNUG_OP_COPIES) || op->on_host || is_beside(op);
        if (together) out->collectives += times * call.work.seconds;
        waits |= apart;
        if (beside && apart) call.work.seconds = 0;
        add(&out->total, times, &call.work);
        add(&out->parts[call.side][call.group], times, &call.work);
    }
    if (!beside || !waits) return SNUG_OK;
    RETURN_IF_ERROR(check_file_rates(rates, program));
    RETURN_IF_ERROR(check_host_rates(rates, program));
    return add_waits(rates, program, load, out);
}
