/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/min_max.h"
#include "io/file.h"
#include "io/folder_kind.h"
#include "io/manifest.h"
#include "io/safetensors.h"
#include "model/adapters.h"
#include "model/bitsandbytes.h"
#include "model/family.h"
#include "model/quantize.h"
#include "model/weight_files.h"
#include "optim/optimizer.h"
#include "tokenizer/hash_map.h"

enum {
    PIECE = SNUG_DRAW_MOST, /* values that a thread processes at a time */
    READ = 16 * PIECE,      /* values that a thread reads from a file at a time */
    PART = 64 * READ,       /* values of one copy into a device's arena, where every copy has a fixed cost */
};

static enum snug_dtype type_of(const struct snug_program *program, const struct snug_parameter *parameter) {
    return program->tensors[parameter->tensor].dtype;
}

/* The tensor's element that is the parameter's value number first. */
static int64_t element_of(const struct snug_program *program, const struct snug_parameter *parameter, int64_t first) {
    return parameter->row * program->tensors[parameter->tensor].cols + first;
}

snug_status snug_parameter_read(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count, float *values) {
    const int64_t from = element_of(program, parameter, first);
    const enum snug_dtype dtype = type_of(program, parameter);
    if (program->tensors[parameter->tensor].quantized.type)
        return snug_quantized_read(program, memory, parameter, first, count, values);
    if (dtype == SNUG_F32) return snug_tensor_read(program, memory, parameter->tensor, from, count, values);
    for (int64_t i = 0; i < count; i += PIECE) {
        uint16_t stored[PIECE];
        const int64_t n = snug_min(PIECE, count - i);
        RETURN_IF_ERROR(snug_tensor_read(program, memory, parameter->tensor, from + i, n, stored));
        for (int64_t k = 0; k < n; k++) values[i + k] = snug_half_to_f32(dtype, stored[k]);
    }
    return SNUG_OK;
}

/* ---- filling -------------------------------------------------------------------------------------------------- */

/* A range of a persistent tensor, from element first on. */
struct place {
    const struct snug_program *program;
    const struct snug_memory *memory;
    int32_t tensor;
    int64_t first;
};

static int threads_of(const struct snug_memory *memory) { return memory->threads > 0 ? memory->threads : 1; }

/* Fills count elements with the output of make in type made: the tensor's own, or F32, which is rounded to it. They are
   made where they are stored; if that is not possible, a part at a time in a buffer. The buffer does not come from
   malloc, because freed heap memory may stay resident, and no plan includes it. */
struct filling {
    const struct place *to;
    int64_t count;
    enum snug_dtype made;
    snug_make_fn *make;
    const void *user;
};

static snug_status fill_here(void *argument) {
    const struct filling *f = argument;
    const struct place *to = f->to;
    const int64_t count = f->count;
    const enum snug_dtype made = f->made;
    const enum snug_dtype dtype = to->program->tensors[to->tensor].dtype;
    void *in_place = snug_tensor_in_place(to->program, to->memory, to->tensor, to->first);
    if (in_place && made == dtype) return f->make(f->user, 0, count, in_place);
    const int64_t part = to->memory->copy ? PART : READ; /* in host memory no plan includes the buffer */
    const int64_t most = snug_min(part, count), bytes = most * snug_dtype_size(made);
    struct snug_block room;
    RETURN_IF_ERROR(
        snug_block_host(to->program->ctx, bytes + (made == dtype ? 0 : most * snug_dtype_size(dtype)), &room));
    const float *values = (const float *)room.base;
    uint16_t *rounded = (uint16_t *)(room.base + bytes);
    snug_status status = SNUG_OK;
    for (int64_t i = 0; i < count && status == SNUG_OK; i += part) {
        const int64_t n = snug_min(part, count - i);
        status = f->make(f->user, i, n, room.base);
        if (status != SNUG_OK) break;
        if (made != dtype) {
#pragma omp parallel for num_threads(threads_of(to->memory)) schedule(static) if (n > PIECE)
            for (int64_t k = 0; k < n; k++) rounded[k] = snug_f32_to_half(dtype, values[k]);
        }
        status = snug_tensor_write(to->program, to->memory, to->tensor, to->first + i, n,
                                   made == dtype ? room.base : (const void *)rounded);
    }
    snug_block_release(&room);
    return status;
}

/* Parallel regions are opened in the compute thread, unless the arena is on a device, which belongs to the caller's. */
static snug_status fill(const struct place *to, int64_t count, enum snug_dtype made, snug_make_fn *make,
                        const void *user) {
    struct filling filling = {to, count, made, make, user};
    return to->memory->copy || count <= PIECE ? fill_here(&filling)
                                              : snug_compute(to->program->ctx, fill_here, &filling);
}

snug_status snug_parameter_fill(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count,
                                snug_make_fn *make, const void *user) {
    const struct place to = {program, memory, parameter->tensor, element_of(program, parameter, first)};
    if (program->tensors[parameter->tensor].quantized.type) /* always as a whole */
        return snug_quantized_fill(program, memory, parameter, make, user);
    return fill(&to, count, SNUG_F32, make, user);
}

static snug_status copy_values(const void *user, int64_t first, int64_t count, void *values) {
    memcpy(values, (const float *)user + first, (size_t)count * sizeof(float));
    return SNUG_OK;
}

snug_status snug_parameter_write(const struct snug_program *program, const struct snug_memory *memory,
                                 const struct snug_parameter *parameter, int64_t first, int64_t count,
                                 const float *values) {
    return snug_parameter_fill(program, memory, parameter, first, count, copy_values, values);
}

/* ---- initialising --------------------------------------------------------------------------------------------- */

/* Elements first … first + count - 1 of a table of which one row is zero. */
static void clear_zero_row(const struct snug_parameter *parameter, float *values, int64_t first, int64_t count) {
    const int64_t size = parameter->shape[1], begin = parameter->zero_row * size;
    if (!parameter->has_zero_row) return;
    const int64_t end = snug_min(begin + size, first + count);
    for (int64_t i = begin < first ? first : begin; i < end; i++) values[i - first] = 0;
}

struct initialisation {
    const struct snug_config *config;
    const struct snug_parameter *parameter;
    struct snug_draw draw;
    int threads;
};

static snug_status init_values(const void *user, int64_t first, int64_t count, void *values) {
    const struct initialisation *init = user;
    const double depth = init->parameter->by_depth ? sqrt(2 * (double)init->config->num_hidden_layers) : 1;
#pragma omp parallel for num_threads(init->threads) schedule(static) if (count > PIECE)
    for (int64_t i = 0; i < count; i += PIECE) {
        float *piece = (float *)values + i;
        const int64_t n = snug_min(PIECE, count - i);
        if (init->parameter->init == SNUG_INIT_NORMAL) {
            snug_draw_normal(&init->draw, first + i, n, init->config->initializer_range / depth, piece);
            clear_zero_row(init->parameter, piece, first + i, n);
        } else if (init->parameter->init == SNUG_INIT_UNIFORM) {
            snug_draw_uniform(&init->draw, first + i, n, 1 / sqrt((double)init->parameter->shape[1]), piece);
        } else if (init->parameter->init == SNUG_INIT_GAUSSIAN) {
            snug_draw_normal(&init->draw, first + i, n, 1, piece);
        } else {
            for (int64_t k = 0; k < n; k++) piece[k] = init->parameter->init == SNUG_INIT_ONES ? 1 : 0;
        }
    }
    return SNUG_OK;
}

/* A parameter to be filled. */
struct target {
    const struct snug_program *program;
    const struct snug_config *config;
    const struct snug_memory *memory;
    const struct snug_parameter *parameter;
    uint64_t seed;
};

static snug_status make_zeros(const void *user, int64_t first, int64_t count, void *values) {
    (void)user, (void)first;
    memset(values, 0, (size_t)count * sizeof(float));
    return SNUG_OK;
}

/* By whose name its random values are drawn: a decoder that is a copy of the word table has that one's. */
static const char *drawn_as(const struct snug_config *config, const struct snug_parameter *parameter,
                            char word[sizeof parameter->name]) {
    char decoder[sizeof parameter->name];
    if (!config->copied_decoder) return parameter->name;
    snug_family_decoder_name(config, decoder, sizeof decoder);
    snug_family_word_name(config, word, sizeof decoder);
    return strcmp(parameter->name, decoder) == 0 ? word : parameter->name;
}

/* The rows of new tokens, if the parameter has any; old makes its other rows. */
static snug_status add_new_rows(const struct target *to, snug_make_fn *old, const void *user) {
    const struct snug_parameter *p = to->parameter;
    const int64_t added = p->by_vocabulary ? to->config->new_tokens : 0, cols = p->shape[1] ? p->shape[1] : 1;
    const int64_t rows = p->shape[0] - added, part = snug_new_rows_part(cols);
    char name[sizeof p->name + 8], word[sizeof p->name];
    if (!added) return SNUG_OK;
    /* transformers pads the bias of a tied decoder with zeros. */
    if (!p->shape[1] && (!to->config->own_decoder || to->config->copied_decoder))
        return snug_parameter_fill(to->program, to->memory, p, rows, added, make_zeros, NULL);
    struct snug_block room;
    RETURN_IF_ERROR(
        snug_block_host(to->program->ctx, cols * (int64_t)sizeof(double) + part * (int64_t)sizeof(float), &room));
    snprintf(name, sizeof name, "%s new", drawn_as(to->config, p, word));
    struct snug_new_rows drawn = {.old = old,
                                  .user = user,
                                  .rows = rows,
                                  .cols = cols,
                                  .deviation = (p->shape[1] ? sqrt(1e-9) : 1e-9) / sqrt((double)rows),
                                  .draw = snug_draw_of(name, to->seed),
                                  .threads = threads_of(to->memory),
                                  .mean = (double *)room.base};
    drawn.part = (float *)(drawn.mean + cols);
    snug_status status = snug_new_rows_begin(&drawn);
    if (status == SNUG_OK)
        status = snug_parameter_fill(to->program, to->memory, p, rows * cols, added * cols, snug_new_rows_make, &drawn);
    snug_block_release(&room);
    return status;
}

snug_status snug_weights_init(const struct snug_program *program, const struct snug_config *config,
                              const struct snug_memory *memory, const struct snug_parameter *parameter, uint64_t seed) {
    char word[sizeof parameter->name];
    const struct initialisation init = {config, parameter, snug_draw_of(drawn_as(config, parameter, word), seed),
                                        threads_of(memory)};
    const struct target to = {program, config, memory, parameter, seed};
    RETURN_IF_ERROR(
        snug_parameter_fill(program, memory, parameter, 0, snug_parameter_count(parameter), init_values, &init));
    return add_new_rows(&to, init_values, &init);
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

void snug_weight_source_close(struct snug_weight_source *source) {
    snug_safetensors_close(&source->files);
    free(source->path);
    free(source->of);
    *source = (struct snug_weight_source){0};
}

/* Leaves in the source what the arena does not have in the file's precision; else nothing. */
static void keep_narrowed(const struct snug_program *program, struct snug_weight_source *source) {
    bool any = false;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_tensor *t = &program->tensors[program->parameters[i].tensor];
        const struct snug_stored_tensor *of = source->of[i];
        if (of && (!t->narrowed || of->dtype == t->dtype || !of->readable)) source->of[i] = NULL;
        any |= source->of[i] != NULL;
    }
    if (!any) snug_weight_source_close(source);
}

static void shape_text(const int64_t *shape, int dims, char *text, size_t size) {
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < dims; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

bool snug_weight_has_shape(const struct snug_stored_tensor *stored, const struct snug_parameter *parameter,
                           int64_t rows) {
    int64_t shape[3];
    const int dims = snug_parameter_shape(parameter, shape);
    shape[parameter->turned] = rows;
    return stored->dims == dims && memcmp(stored->shape, shape, (size_t)dims * sizeof *shape) == 0;
}

/* A stored tensor that is being loaded into a tensor of the program. */
struct reading {
    snug_context *ctx;
    const char *path; /* for messages */
    const struct snug_safetensors *files;
    const struct snug_stored_tensor *stored;
    const struct snug_tensor *tensor;
    bool as_stored; /* without a change of type */
    bool any;       /* also values that are not finite */
    int threads;
};

/* Values of a smaller magnitude are finite in dtype: rounding to nearest, ties to even, gives infinity from here on. */
static float limit_of(enum snug_dtype dtype) {
    return dtype == SNUG_F16 ? 65520.0f : dtype == SNUG_BF16 ? 0x1.ffp127f : INFINITY;
}

/* How many values that were read do not fit. */
static int64_t count_unfit(const struct reading *r, const void *read, int64_t count) {
    const float *values = read, limit = limit_of(r->tensor->dtype);
    const uint16_t *halves = read, infinite = r->stored->dtype == SNUG_F16 ? 0x7c00 : 0x7f80;
    int32_t unfit = 0; /* of the width of a float, for vectors; NaN is unfit, too */
    if (r->any) return 0;
    if (r->as_stored && r->stored->dtype != SNUG_F32)
        for (int64_t i = 0; i < count; i++) unfit += (halves[i] & infinite) == infinite;
    else
        for (int64_t i = 0; i < count; i++) unfit += !(fabsf(values[i]) < limit);
    return unfit;
}

static float value_of(const struct reading *r, const void *read, int64_t i) {
    return r->as_stored && r->stored->dtype != SNUG_F32
               ? snug_half_to_f32(r->stored->dtype, ((const uint16_t *)read)[i])
               : ((const float *)read)[i];
}

/* Reports the first value that does not fit, of which there is one; first: the number of the first that was read. */
static snug_status fail_unfit(const struct reading *r, const void *read, int64_t first) {
    const bool half = r->tensor->dtype == SNUG_F16;
    const float limit = r->as_stored ? INFINITY : limit_of(r->tensor->dtype);
    int64_t bad = 0;
    while (fabsf(value_of(r, read, bad)) < limit) bad++;
    const float value = value_of(r, read, bad);
    if (!isfinite(value))
        return snug_fail(r->ctx, SNUG_E_INPUT, "%s: tensor %s holds %s at element %lld: the file is damaged", r->path,
                         r->stored->name, isnan(value) ? "NaN" : "an infinity", (long long)(first + bad));
    return snug_fail(r->ctx, SNUG_E_INPUT, "%s: tensor %s holds %g at element %lld, more than %s has: use %s", r->path,
                     r->stored->name, (double)value, (long long)(first + bad), half ? "float16" : "bfloat16",
                     r->tensor->narrowed
                         ? "another type for the training than this one, in which frozen weights are stored"
                     : half ? "--fp16 or --bf16_full_eval"
                            : "--dtype float32");
}

/* All threads read. Where one fails, or a value does not fit, the rest is read again by one thread, for the message. */
static snug_status read_values(const void *user, int64_t first, int64_t count, void *out) {
    const struct reading *r = user;
    const int64_t size = r->as_stored ? snug_dtype_size(r->stored->dtype) : (int64_t)sizeof(float);
    int64_t good = count;
#pragma omp parallel for num_threads(r->threads) schedule(static) reduction(min : good) if (count > READ)
    for (int64_t i = 0; i < count; i += READ) {
        char *piece = (char *)out + i * size;
        const int64_t n = snug_min(READ, count - i);
        if (!snug_safetensors_try(r->files, r->stored, first + i, n, r->as_stored, piece) || count_unfit(r, piece, n))
            good = snug_min(good, i);
    }
    for (int64_t i = good; i < count; i += READ) {
        char *piece = (char *)out + i * size;
        const int64_t n = snug_min(READ, count - i);
        RETURN_IF_ERROR(r->as_stored
                            ? snug_safetensors_read_stored(r->ctx, r->files, r->stored, first + i, n, piece)
                            : snug_safetensors_read(r->ctx, r->files, r->stored, first + i, n, (float *)piece));
        if (count_unfit(r, piece, n)) return fail_unfit(r, piece, first + i);
    }
    return SNUG_OK;
}

/* Codes that the arena stores in the same form are copied. Values that it rounds in another way than the file says, as
   its config.json says, are those of the file rounded once more. */
static snug_status load_codes(const struct snug_loading *l, const struct snug_stored_codes *codes,
                              const struct snug_parameter *parameter) {
    const enum snug_dtype rounded = l->program->tensors[parameter->tensor].quantized.rounded;
    if (rounded != codes->form.rounded)
        snug_log(l->ctx, SNUG_LOG_WARNING,
                 "%s: tensor %s was quantized from %s, but the config's dtype is %s, to which its values are rounded",
                 l->path, codes->codes->name, snug_dtype_name(codes->form.rounded), snug_dtype_name(rounded));
    return snug_codes_copy(codes, l->program, l->memory, parameter);
}

static snug_status read_codes(const void *user, int64_t first, int64_t count, void *out) {
    return snug_codes_read(user, first, count, out);
}

/* Of a parameter whose transpose is in the file. */
struct turned {
    const struct reading *reading;
    float *column; /* of a range of rows */
};

static snug_status read_turned(const void *user, int64_t first, int64_t count, void *out) {
    const struct turned *t = user;
    const int64_t cols = t->reading->stored->shape[0], rows = t->reading->stored->shape[1];
    for (int64_t k = 0; k < cols; k++) {
        int64_t begin;
        const int64_t end = snug_rows_of_column(first, count, cols, k, &begin);
        RETURN_IF_ERROR(read_values(t->reading, k * rows + begin, end - begin, t->column));
        for (int64_t i = begin; i < end; i++) ((float *)out)[i * cols + k - first] = t->column[i - begin];
    }
    return SNUG_OK;
}

static snug_status load_turned(const struct target *to, struct reading *reading) {
    struct turned turned = {.reading = reading};
    reading->as_stored = false;
    RETURN_IF_ERROR(
        snug_alloc(reading->ctx, (size_t)to->parameter->shape[0], sizeof *turned.column, (void **)&turned.column));
    const snug_status status =
        snug_parameter_fill(to->program, to->memory, to->parameter, 0, reading->stored->count, read_turned, &turned);
    free(turned.column);
    return status;
}

/* rows: its rows of new tokens, too. */
static snug_status load_values(const struct snug_loading *l, const struct snug_stored_tensor *stored,
                               const struct target *to, bool rows) {
    const struct snug_tensor *tensor = &l->program->tensors[to->parameter->tensor];
    struct reading reading = {.ctx = l->ctx,
                              .path = l->path,
                              .files = l->files,
                              .stored = stored,
                              .tensor = tensor,
                              .as_stored = stored->dtype == tensor->dtype,
                              .threads = threads_of(l->memory)};
    const struct place place = {l->program, l->memory, to->parameter->tensor, element_of(l->program, to->parameter, 0)};
    if (!stored->readable) /* for its message */
        RETURN_IF_ERROR(snug_safetensors_read(l->ctx, l->files, stored, 0, 0, NULL));
    if (to->parameter->turned) return load_turned(to, &reading);
    if (reading.as_stored)
        RETURN_IF_ERROR(fill(&place, stored->count, tensor->dtype, read_values, &reading));
    else
        RETURN_IF_ERROR(
            snug_parameter_fill(l->program, l->memory, to->parameter, 0, stored->count, read_values, &reading));
    reading.as_stored = false; /* the rows of new tokens are computed in fp32 */
    return rows ? add_new_rows(to, read_values, &reading) : SNUG_OK;
}

static bool has_form(const struct snug_tensor *tensor, const struct snug_quantized *form) {
    return form->type && tensor->quantized.type == form->type && tensor->quantized.nested == form->nested;
}

snug_status snug_load_one(const struct snug_loading *l, const struct snug_stored_tensor *stored, size_t index) {
    const struct snug_parameter *parameter = &l->program->parameters[index];
    const int64_t rows = parameter->shape[0], added = parameter->by_vocabulary ? l->config->new_tokens : 0;
    const struct snug_tensor *tensor = &l->program->tensors[parameter->tensor];
    const struct target to = {l->program, l->config, l->memory, parameter, l->seed};
    struct snug_stored_codes codes;
    struct snug_stored_tensor seen = *stored; /* with the shape of its values */
    RETURN_IF_ERROR(snug_codes_find(l->ctx, l->files, l->path, stored, &codes));
    if (codes.form.type) {
        seen.dims = 2; /* codes are not of the transpose */
        seen.shape[parameter->turned] = codes.form.rows;
        seen.shape[!parameter->turned] = codes.form.cols;
        seen.count = seen.shape[0] * seen.shape[1];
    }
    const bool grows = added && snug_weight_has_shape(&seen, parameter, rows - added);
    if (!grows && !snug_weight_has_shape(&seen, parameter, rows)) {
        char found[22 * SNUG_SAFETENSORS_DIMS], expected[sizeof found]; /* of any number, with separators */
        shape_text(seen.shape, seen.dims, found, sizeof found);
        int64_t shape[3];
        shape_text(shape, snug_parameter_shape(parameter, shape), expected, sizeof expected);
        if (parameter->head && l->ignore_mismatched_sizes) {
            snug_log(l->ctx, SNUG_LOG_WARNING,
                     "%s: tensor %s has shape [%s], the model expects [%s]: newly initialised", l->path, stored->name,
                     found, expected);
            return SNUG_OK;
        }
        return snug_fail(l->ctx, SNUG_E_INPUT, "%s: tensor %s has shape [%s], expected [%s]%s", l->path, stored->name,
                         found, expected,
                         parameter->head ? " (--ignore_mismatched_sizes initialises a new head instead)" : "");
    }
    if (has_form(tensor, &codes.form)) {
        RETURN_IF_ERROR(load_codes(l, &codes, parameter));
    } else if (codes.form.type) {
        RETURN_IF_ERROR(snug_parameter_fill(l->program, l->memory, parameter, 0, seen.count, read_codes, &codes));
        if (grows) RETURN_IF_ERROR(add_new_rows(&to, read_codes, &codes));
    } else {
        RETURN_IF_ERROR(load_values(l, stored, &to, grows));
    }
    l->loaded[index] = stored;
    return SNUG_OK;
}

/* *at: the first element in which two tensors of a file differ; -1 if they have the same shape and values. */
static snug_status compare(snug_context *ctx, const struct snug_safetensors *files, const struct snug_stored_tensor *a,
                           const struct snug_stored_tensor *b, int64_t *at) {
    struct snug_block room;
    *at = 0;
    if (a->dims != b->dims || memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape) != 0) return SNUG_OK;
    const int64_t most = snug_min(PART, a->count);
    RETURN_IF_ERROR(snug_block_host(ctx, 2 * most * (int64_t)sizeof(float), &room));
    float *x = (float *)room.base, *y = x + most;
    snug_status status = SNUG_OK;
    *at = -1;
    for (int64_t i = 0; i < a->count; i += PART) {
        const int64_t n = snug_min(PART, a->count - i);
        int64_t same = 0;
        status = snug_safetensors_read(ctx, files, a, i, n, x);
        if (status == SNUG_OK) status = snug_safetensors_read(ctx, files, b, i, n, y);
        if (status != SNUG_OK) break;
        while (same < n && x[same] == y[same]) same++;
        if (same == n) continue;
        *at = i + same;
        break;
    }
    snug_block_release(&room);
    return status;
}

/* A second tensor of a parameter. */
static snug_status check_again(const struct snug_loading *l, const struct snug_stored_tensor *stored, size_t index,
                               bool spare) {
    const struct snug_stored_tensor *first = l->loaded[index];
    int64_t at;
    RETURN_IF_ERROR(compare(l->ctx, l->files, first, stored, &at));
    if (at < 0) return SNUG_OK;
    if (!spare)
        return snug_fail(l->ctx, SNUG_E_INPUT,
                         "%s: tensors %s and %s are the same weight of a %s model, but differ at element %lld: remove "
                         "the wrong one",
                         l->path, first->name, stored->name, l->config->family->name, (long long)at);
    snug_log(l->ctx, SNUG_LOG_WARNING,
             "%s: %s has other values than %s: as transformers, only the latter is used, and both names are saved with "
             "its values",
             l->path, stored->name, first->name);
    return SNUG_OK;
}

bool snug_loading_copies(const struct snug_loading *l, size_t *word, size_t *decoder) {
    char name[256];
    if (!l->config->copied_decoder) return false;
    snug_family_word_name(l->config, name, sizeof name);
    *word = (size_t)snug_hash_map_find(&l->names, "", 0, name, strlen(name));
    snug_family_decoder_name(l->config, name, sizeof name);
    *decoder = (size_t)snug_hash_map_find(&l->names, "", 0, name, strlen(name));
    return !l->loaded[*decoder];
}

/* A list of names for the log, truncated if it is long. */
struct names {
    char text[1200];
    int count;
};
static void add_name(struct names *names, const char *name) {
    const size_t length = strlen(names->text);
    names->count++;
    if (length + strlen(name) + 8 < sizeof names->text)
        snprintf(names->text + length, sizeof names->text - length, "%s%s", length ? ", " : "", name);
    else if (length && names->text[length - 1] != '.')
        snprintf(names->text + length, sizeof names->text - length, ", ...");
}

/* Loads the file's tensors of this use, or names them as unused. Of a spare one without the other name only tied models
   make use. */
static snug_status load_those(const struct snug_loading *l, enum snug_stored_use use, struct names *unused,
                              size_t *used) {
    for (size_t i = 0; i < l->files->count; i++) {
        const struct snug_stored_tensor *stored = &l->files->tensors[i];
        char name[256];
        if (snug_codes_is_part(l->files, stored->name)) continue;
        if (snug_family_parameter(l->config, stored->name, name, sizeof name) != use) continue;
        const int32_t p = snug_hash_map_find(&l->names, "", 0, name, strlen(name));
        const bool spare = use == SNUG_STORED_SPARE, first = p >= 0 && !l->loaded[p];
        if (p < 0 || (first && spare && !l->config->tie_word_embeddings)) {
            add_name(unused, stored->name);
            continue;
        }
        RETURN_IF_ERROR(first ? snug_load_one(l, stored, (size_t)p) : check_again(l, stored, (size_t)p, spare));
        ++*used;
    }
    return SNUG_OK;
}

static snug_status load_all(const struct snug_loading *l) {
    struct names unused = {0};
    size_t used = 0;
    RETURN_IF_ERROR(load_those(l, SNUG_STORED_PARAMETER, &unused, &used));
    RETURN_IF_ERROR(load_those(l, SNUG_STORED_SPARE, &unused, &used));
    size_t word, decoder;
    if (snug_loading_copies(l, &word, &decoder) && l->loaded[word])
        RETURN_IF_ERROR(snug_load_one(l, l->loaded[word], decoder));
    if (!used)
        return snug_fail(l->ctx, SNUG_E_INPUT, "%s: none of its %zu tensors belongs to a %s model", l->path,
                         l->files->count, l->config->family->name);
    if (unused.count)
        snug_log(l->ctx, SNUG_LOG_INFO, "%s: %d tensors are not used: %s", l->path, unused.count, unused.text);
    return SNUG_OK;
}

snug_status snug_weights_find(snug_context *ctx, const struct snug_folder *folder, const char **name) {
    static const char *const names[] = {SNUG_WEIGHTS, SNUG_WEIGHTS_INDEX};
    static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *name = names[i];
        if (snug_file_exists(folder, *name)) return SNUG_OK;
    }
    for (size_t i = 0; i < sizeof pickled / sizeof *pickled; i++) {
        char *path;
        if (!snug_file_exists(folder, pickled[i])) continue;
        RETURN_IF_ERROR(snug_path_join(ctx, &path, folder->path, pickled[i]));
        const snug_status status = snug_fail_pickled(ctx, path);
        free(path);
        return status;
    }
    return snug_fail_model_folder(ctx, folder->path, "neither model.safetensors nor model.safetensors.index.json");
}

/* A folder of snug's whose files were being replaced when the run ended: they may belong to two models. */
static snug_status check_whole(snug_context *ctx, const struct snug_folder *folder) {
    struct snug_manifest manifest;
    const char *name;
    json_t *entry;
    RETURN_IF_ERROR(snug_manifest_read(ctx, folder, &manifest));
    snug_status status = SNUG_OK;
    json_object_foreach(manifest.files, name, entry) {
        if (status == SNUG_OK && json_is_null(entry))
            status = snug_fail(ctx, SNUG_E_INPUT,
                               "%s/%s was being written when its run ended: resume that run, or load a checkpoint",
                               folder->path, name);
    }
    snug_manifest_free(&manifest);
    return status;
}

snug_status snug_weights_look(snug_context *ctx, const struct snug_folder *folder) {
    const char *name;
    RETURN_IF_ERROR(snug_weights_find(ctx, folder, &name));
    if (snug_file_exists(folder, SNUG_ADAPTER_CONFIG))
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%s/" SNUG_ADAPTER_CONFIG ": the adapter is not used, which "
                 "transformers would load: if this model needs it, give --adapter_name_or_path %s, too",
                 folder->path, folder->path);
    return check_whole(ctx, folder);
}

snug_status snug_weights_are_bf16(snug_context *ctx, const struct snug_folder *folder, bool *most, bool *matrices) {
    struct snug_safetensors files;
    const char *name;
    double values = 0, in_bf16 = 0;
    RETURN_IF_ERROR(snug_weights_find(ctx, folder, &name));
    RETURN_IF_ERROR(snug_safetensors_open(ctx, folder, name, &files));
    *matrices = true;
    for (size_t i = 0; i < files.count; i++) {
        const struct snug_stored_tensor *tensor = &files.tensors[i];
        const bool is_bf16 = tensor->readable && tensor->dtype == SNUG_BF16;
        values += (double)tensor->count;
        in_bf16 += is_bf16 ? (double)tensor->count : 0;
        *matrices &= is_bf16 || tensor->dims < 2;
    }
    *most = in_bf16 > values / 2;
    snug_safetensors_close(&files);
    return SNUG_OK;
}

snug_status snug_weights_untie(snug_context *ctx, const struct snug_folder *folder, struct snug_config *config) {
    struct snug_safetensors files;
    struct snug_config own = *config; /* in which each of the two has a name */
    const struct snug_stored_tensor *word = NULL, *decoder = NULL;
    const char *file;
    char names[2][256], name[256];
    int64_t at = -1;
    if (config->own_decoder || snug_head_of(config) != SNUG_HEAD_VOCABULARY) return SNUG_OK;
    RETURN_IF_ERROR(snug_weights_find(ctx, folder, &file));
    RETURN_IF_ERROR(snug_safetensors_open(ctx, folder, file, &files));
    own.own_decoder = true;
    snug_family_word_name(config, names[0], sizeof names[0]);
    snug_family_decoder_name(config, names[1], sizeof names[1]);
    for (size_t i = 0; i < files.count; i++) {
        snug_family_parameter(&own, files.tensors[i].name, name, sizeof name);
        if (strcmp(name, names[0]) == 0) word = &files.tensors[i];
        if (strcmp(name, names[1]) == 0) decoder = &files.tensors[i];
    }
    snug_status status = word && decoder ? compare(ctx, &files, word, decoder, &at) : SNUG_OK;
    if (status == SNUG_OK && at >= 0) {
        snug_log(ctx, SNUG_LOG_WARNING,
                 SNUG_PATH
                 ": %s has other values than %s, though the model's configuration ties them: as transformers, "
                 "the decoder has its own weights (\"tie_word_embeddings\": false)",
                 SNUG_PATH_IN(folder, file), decoder->name, word->name);
        status = snug_config_untie(ctx, config);
    }
    snug_safetensors_close(&files);
    return status;
}

/* Adds the parameters' names to l->names, with their numbers. */
static snug_status add_names(struct snug_loading *l) {
    for (size_t i = 0; i < l->program->parameter_count; i++) {
        const char *name = l->program->parameters[i].name;
        RETURN_IF_ERROR(snug_hash_map_add(l->ctx, &l->names, name, strlen(name), (int32_t)i, &(int32_t){0}));
    }
    return SNUG_OK;
}

snug_status snug_loading_open(struct snug_loading *l, const struct snug_folder *folder, const char *name,
                              struct snug_weight_source *from) {
    RETURN_IF_ERROR(snug_path_join(l->ctx, &from->path, folder->path, name));
    RETURN_IF_ERROR(snug_alloc(l->ctx, l->program->parameter_count, sizeof *l->loaded, (void **)&from->of));
    l->path = from->path;
    l->loaded = from->of;
    l->files = &from->files;
    RETURN_IF_ERROR(add_names(l));
    return snug_safetensors_open(l->ctx, folder, name, &from->files);
}

snug_status snug_weights_load(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                              const struct snug_config *config, const struct snug_memory *memory, uint64_t seed,
                              bool ignore_mismatched_sizes, struct snug_weight_source *source) {
    struct snug_weight_source from = {0};
    struct snug_loading l = {.ctx = ctx,
                             .program = program,
                             .config = config,
                             .memory = memory,
                             .seed = seed,
                             .ignore_mismatched_sizes = ignore_mismatched_sizes};
    const char *name;
    RETURN_IF_ERROR(snug_weights_find(ctx, folder, &name));
    snug_status status = snug_loading_open(&l, folder, name, &from);
    if (status == SNUG_OK) status = load_all(&l);
    if (status == SNUG_OK) {
        struct names fresh = {0}, stuck = {0};
        for (size_t i = 0; i < program->parameter_count && status == SNUG_OK; i++) {
            const struct snug_parameter *p = &program->parameters[i];
            if (l.loaded[i] || p->apart) continue;
            status = snug_weights_init(program, config, memory, p, seed);
            if (!p->lora) add_name(&fresh, p->name);
            if (config->adapter && !p->adapter) add_name(&stuck, p->name);
        }
        if (stuck.count)
            snug_log(
                ctx, SNUG_LOG_WARNING,
                "%s: %d tensors are not in it, and adapters are trained beside their random values, which no file has: "
                "name their modules in --lora_modules_to_save: %s",
                from.path, stuck.count, stuck.text);
        if (fresh.count)
            snug_log(ctx, SNUG_LOG_WARNING,
                     "%s: %d tensors are not in it and were initialised: %s; train before you predict", from.path,
                     fresh.count, fresh.text);
    }
    snug_hash_map_free(&l.names);
    if (status == SNUG_OK) {
        keep_narrowed(program, &from);
        snug_weight_source_close(source);
        *source = from;
    } else {
        snug_weight_source_close(&from);
    }
    return status;
}

/* ---- the optimizer's states ----------------------------------------------------------------------------------- */

snug_status snug_states_load(snug_context *ctx, const struct snug_folder *in, const char *name,
                             const struct snug_program *program, const struct snug_memory *memory) {
    struct snug_safetensors files;
    RETURN_IF_ERROR(snug_safetensors_open(ctx, in, name, &files));
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < program->tensor_count && status == SNUG_OK; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!t->saved) continue;
        const struct snug_stored_tensor *stored = snug_safetensors_find(&files, t->name);
        if (!stored || stored->dims != 2 || stored->shape[0] != t->rows || stored->shape[1] != t->cols ||
            stored->dtype != t->dtype)
            status = snug_fail(
                ctx, SNUG_E_INPUT,
                SNUG_PATH ": no state %s of shape [%lld, %lld] and type %s: the checkpoint is of another model or "
                          "optimizer",
                SNUG_PATH_IN(in, name), t->name, (long long)t->rows, (long long)t->cols, snug_dtype_name(t->dtype));
        else
            status = fill(&(struct place){program, memory, (int32_t)i, 0}, stored->count, t->dtype, read_values,
                          &(struct reading){.ctx = ctx,
                                            .files = &files,
                                            .stored = stored,
                                            .tensor = t,
                                            .as_stored = true,
                                            .any = true,
                                            .threads = threads_of(memory)});
    }
    snug_safetensors_close(&files);
    return status;
}
