/* SPDX-License-Identifier: Apache-2.0 */
#include "model/bitsandbytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/min_max.h"
#include "io/json.h"
#include "model/quantize.h"

#define STATE ".quant_state.bitsandbytes__"
enum { STATE_MOST = 4096, PIECE = 1 << 20 /* bytes of codes */, VALUES = 1 << 12 };

static const char *const endings[] = {".absmax",           ".quant_map", ".nested_absmax",
                                      ".nested_quant_map", STATE "nf4",  STATE "fp4"};

static const char *const dtype_names[] = {[SNUG_F32] = "float32", [SNUG_BF16] = "bfloat16", [SNUG_F16] = "float16"};

bool snug_codes_is_part(const struct snug_safetensors *files, const char *name) {
    char weight[256];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t length = strlen(name), end = strlen(endings[i]);
        if (length <= end || strcmp(name + length - end, endings[i]) != 0) continue;
        snprintf(weight, sizeof weight, "%.*s", (int)(length - end), name);
        if (snug_safetensors_find(files, weight)) return true;
    }
    return false;
}

/* ---- how a weight is stored -------------------------------------------------------------------------------------- */

struct finding {
    snug_context *ctx;
    const struct snug_stored_tensor *weight;
    struct snug_stored_codes *out;
    char about[512]; /* the text, for messages */
};

static snug_status refuse(const struct finding *f, snug_status status, const char *what) {
    return snug_fail(f->ctx, status, "%s: tensor %s: %s", f->out->path, f->weight->name, what);
}

static const struct snug_stored_tensor *part_of(const struct finding *f, const char *ending) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", f->weight->name, ending);
    return snug_safetensors_find(f->out->files, name);
}

/* The part with this ending, of so many elements. */
static snug_status need_part(const struct finding *f, const char *ending, const char *type, int64_t count,
                             const struct snug_stored_tensor **out) {
    *out = part_of(f, ending);
    if (*out && strcmp((*out)->type_name, type) == 0 && (*out)->count == count) return SNUG_OK;
    return snug_fail(f->ctx, SNUG_E_INPUT, "%s: tensor %s%s is needed, of type %s and %lld elements", f->out->path,
                     f->weight->name, ending, type, (long long)count);
}

/* The values of the codes are bitsandbytes' own. Computed without fused multiply-add, the last bit may differ. */
static snug_status check_map(const struct finding *f, const char *ending, const float *values, int count) {
    const struct snug_stored_tensor *part;
    float stored[SNUG_CODES];
    RETURN_IF_ERROR(need_part(f, ending, "F32", count, &part));
    RETURN_IF_ERROR(snug_safetensors_read(f->ctx, f->out->files, part, 0, count, stored));
    for (int i = 0; i < count; i++)
        if (!(fabsf(stored[i] - values[i]) <= 1e-6f * fabsf(values[i])))
            return snug_fail(
                f->ctx, SNUG_E_UNSUPPORTED,
                "%s: tensor %s%s: the value of code %d is %g; snug supports bitsandbytes' own values alone",
                f->out->path, f->weight->name, ending, i, (double)stored[i]);
    return SNUG_OK;
}

static snug_status read_dtype(const struct finding *f, const json_t *json, enum snug_dtype *out) {
    const char *name;
    RETURN_IF_ERROR(snug_json_string(f->ctx, f->about, json, "dtype", "", &name));
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++) {
        *out = (enum snug_dtype)i;
        if (strcmp(name, dtype_names[i]) == 0) return SNUG_OK;
    }
    return refuse(f, SNUG_E_UNSUPPORTED, "the dtype of its quant_state is not one of float32, bfloat16, float16");
}

static snug_status read_state(const struct finding *f, const json_t *json) {
    struct snug_quantized *form = &f->out->form;
    const json_t *shape = json_object_get(json, "shape"), *rows = json_array_get(shape, 0);
    const json_t *cols = json_array_get(shape, 1);
    int64_t block, group, count;
    double mean;
    RETURN_IF_ERROR(snug_json_int(f->ctx, f->about, json, "blocksize", 0, &block));
    RETURN_IF_ERROR(snug_json_int(f->ctx, f->about, json, "nested_blocksize", 0, &group));
    RETURN_IF_ERROR(snug_json_real(f->ctx, f->about, json, "nested_offset", 0, &mean));
    RETURN_IF_ERROR(read_dtype(f, json, &form->rounded));
    form->nested = group != 0;
    f->out->mean = (float)mean;
    if (block != SNUG_CODE_BLOCK || (group && group != SNUG_CODE_GROUP))
        return refuse(f, SNUG_E_UNSUPPORTED, "its blocks are not of 64 values, or their groups not of 256 blocks");
    form->rows = json_integer_value(rows);
    form->cols = json_integer_value(cols);
    if (json_array_size(shape) != 2 || form->rows < 1 || form->cols < 1 ||
        __builtin_mul_overflow(form->rows, form->cols, &count) || f->weight->count != count / 2 + count % 2)
        return refuse(f, SNUG_E_INPUT, "it has not the number of codes of its quant_state's shape");
    return SNUG_OK;
}

static snug_status parse_state(const struct finding *f, const struct snug_stored_tensor *state) {
    char text[STATE_MOST];
    json_t *json;
    if (state->count > STATE_MOST || strcmp(state->type_name, "U8") != 0)
        return refuse(f, SNUG_E_INPUT, "its quant_state is not a JSON text");
    RETURN_IF_ERROR(snug_safetensors_read_stored(f->ctx, f->out->files, state, 0, state->count, text));
    RETURN_IF_ERROR(snug_json_read_text(f->ctx, f->about, text, (size_t)state->count, &json));
    const snug_status status = read_state(f, json);
    json_decref(json);
    return status;
}

static snug_status find_parts(const struct finding *f) {
    struct snug_stored_codes *out = f->out;
    const struct snug_quantized_layout l = snug_quantized_lay_out(&out->form);
    float map[SNUG_CODES];
    if (strcmp(f->weight->type_name, "U8") != 0) return refuse(f, SNUG_E_UNSUPPORTED, "its codes are not stored as U8");
    RETURN_IF_ERROR(need_part(f, ".absmax", out->form.nested ? "U8" : "F32", l.blocks, &out->absmax));
    RETURN_IF_ERROR(check_map(f, ".quant_map", snug_code_values(out->form.type), SNUG_CODE_VALUES));
    if (!out->form.nested) return SNUG_OK;
    snug_quantization_map(true, map);
    RETURN_IF_ERROR(need_part(f, ".nested_absmax", "F32", l.groups, &out->nested_absmax));
    return check_map(f, ".nested_quant_map", map, SNUG_CODES);
}

snug_status snug_codes_find(snug_context *ctx, const struct snug_safetensors *files, const char *path,
                            const struct snug_stored_tensor *weight, struct snug_stored_codes *out) {
    struct finding f = {.ctx = ctx, .weight = weight, .out = out};
    *out = (struct snug_stored_codes){.ctx = ctx, .files = files, .path = path, .codes = weight};
    for (int i = 1; i < SNUG_CODES_COUNT && !out->form.type; i++) {
        char ending[64];
        snprintf(ending, sizeof ending, STATE "%s", snug_code_type_name((enum snug_code_type)i));
        const struct snug_stored_tensor *state = part_of(&f, ending);
        if (!state) continue;
        out->form.type = (enum snug_code_type)i;
        snprintf(f.about, sizeof f.about, "%s: tensor %s", path, state->name);
        RETURN_IF_ERROR(parse_state(&f, state));
        RETURN_IF_ERROR(find_parts(&f));
    }
    return SNUG_OK;
}

/* ---- its values and bytes ---------------------------------------------------------------------------------------- */

static snug_status check_scales(const struct snug_stored_codes *from, const float *scales, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(scales[i]))
            return snug_fail(from->ctx, SNUG_E_INPUT, "%s: a scale of tensor %s is not finite: the file is damaged",
                             from->path, from->codes->name);
    return SNUG_OK;
}

/* The parts of the layout after the codes. */
static snug_status read_scales(const struct snug_stored_codes *from, const struct snug_quantized_layout *l,
                               uint8_t *bytes) {
    float *groups = (float *)bytes;
    uint8_t *absmax = bytes + l->absmax - l->group_absmax;
    RETURN_IF_ERROR(snug_safetensors_read_stored(from->ctx, from->files, from->absmax, 0, l->blocks, absmax));
    if (!l->groups) return check_scales(from, (const float *)absmax, l->blocks);
    RETURN_IF_ERROR(snug_safetensors_read_stored(from->ctx, from->files, from->nested_absmax, 0, l->groups, groups));
    groups[l->groups] = from->mean;
    return check_scales(from, groups, l->groups + 1);
}

snug_status snug_codes_read(const struct snug_stored_codes *from, int64_t first, int64_t count, float *values) {
    const struct snug_quantized_layout l = snug_quantized_lay_out(&from->form);
    const float *const of_codes = snug_code_values(from->form.type);
    float map[SNUG_CODES];
    uint8_t codes[VALUES / 2 + 1];
    struct snug_block scales;
    snug_quantization_map(true, map);
    RETURN_IF_ERROR(snug_block_host(from->ctx, l.bytes - l.group_absmax, &scales));
    snug_status status = read_scales(from, &l, scales.base);
    for (int64_t i = first; i < first + count && status == SNUG_OK; i += VALUES) {
        const int64_t n = snug_min(VALUES, first + count - i), begin = i / 2;
        status =
            snug_safetensors_read_stored(from->ctx, from->files, from->codes, begin, (i + n + 1) / 2 - begin, codes);
        for (int64_t k = i; k < i + n && status == SNUG_OK; k++) {
            const float absmax = snug_absmax_of(&l, scales.base, map, k / SNUG_CODE_BLOCK);
            values[k - first] =
                snug_rounded_to(from->form.rounded, of_codes[snug_code_at(codes, k - 2 * begin)] * absmax);
        }
    }
    snug_block_release(&scales);
    return status;
}

snug_status snug_codes_copy(const struct snug_stored_codes *from, const struct snug_program *program,
                            const struct snug_memory *memory, const struct snug_parameter *parameter) {
    const struct snug_quantized_layout l = snug_quantized_lay_out(&from->form);
    const int64_t scales = l.bytes - l.group_absmax;
    struct snug_block room;
    RETURN_IF_ERROR(snug_block_host(program->ctx, snug_max(PIECE, scales), &room));
    snug_status status = SNUG_OK;
    for (int64_t i = 0; i < from->codes->count && status == SNUG_OK; i += PIECE) {
        const int64_t n = snug_min(PIECE, from->codes->count - i);
        status = snug_safetensors_read_stored(from->ctx, from->files, from->codes, i, n, room.base);
        if (status == SNUG_OK) status = snug_quantized_store(program, memory, parameter, i, n, room.base);
    }
    memset(room.base, 0, (size_t)scales);
    if (status == SNUG_OK) status = read_scales(from, &l, room.base);
    if (status == SNUG_OK) status = snug_quantized_store(program, memory, parameter, l.group_absmax, scales, room.base);
    snug_block_release(&room);
    return status;
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* The JSON text, filled up with blanks before its end: so the size of a file does not depend on its values. */
static snug_status write_state(snug_context *ctx, const struct snug_quantized *form, float mean, char *out) {
    char *text;
    json_t *json = json_pack("{s:s, s:i, s:s, s:[I, I]}", "quant_type", snug_code_type_name(form->type), "blocksize",
                             SNUG_CODE_BLOCK, "dtype", dtype_names[form->rounded], "shape", (json_int_t)form->rows,
                             (json_int_t)form->cols);
    if (form->nested) {
        snug_json_add(&json, "nested_blocksize", json_integer(SNUG_CODE_GROUP));
        snug_json_add(&json, "nested_dtype", json_string("float32"));
        snug_json_add(&json, "nested_offset", snug_json_number((double)mean));
    }
    if (!json) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while saving quantized weights");
    const snug_status status = snug_json_text(ctx, json, 0, &text);
    json_decref(json);
    RETURN_IF_ERROR(status);
    memset(out, ' ', SNUG_CODES_STATE);
    memcpy(out, text, strlen(text) - 1); /* at most 230 bytes */
    out[SNUG_CODES_STATE - 1] = '}';
    free(text);
    return SNUG_OK;
}

/* A vector of count elements, in bytes from `at` on or constant. */
static struct snug_codes_part *add_part(struct snug_codes_saved *saved, const struct snug_parameter *parameter,
                                        const char *ending, enum snug_dtype dtype, int64_t count, int64_t at,
                                        const void *constant) {
    struct snug_codes_part *part = &saved->parts[saved->count++];
    *part = (struct snug_codes_part){.dtype = dtype,
                                     .dims = 1,
                                     .shape = {count},
                                     .at = at,
                                     .count = count * snug_dtype_size(dtype),
                                     .constant = constant};
    snprintf(part->name, sizeof part->name, "%s%s", parameter->name, ending);
    return part;
}

snug_status snug_codes_save(snug_context *ctx, const struct snug_parameter *parameter,
                            const struct snug_quantized *form, float mean, struct snug_codes_saved *out) {
    const struct snug_quantized_layout l = snug_quantized_lay_out(form);
    char ending[64];
    out->count = 0;
    struct snug_codes_part *codes = add_part(out, parameter, "", SNUG_U8, (l.count + 1) / 2, 0, NULL);
    codes->shape[codes->dims++] = 1;
    add_part(out, parameter, ".absmax", form->nested ? SNUG_U8 : SNUG_F32, l.blocks, l.absmax, NULL);
    add_part(out, parameter, ".quant_map", SNUG_F32, SNUG_CODE_VALUES, 0, snug_code_values(form->type));
    if (form->nested) {
        snug_quantization_map(true, out->map);
        add_part(out, parameter, ".nested_absmax", SNUG_F32, l.groups, l.group_absmax, NULL);
        add_part(out, parameter, ".nested_quant_map", SNUG_F32, SNUG_CODES, 0, out->map);
    }
    snprintf(ending, sizeof ending, STATE "%s", snug_code_type_name(form->type));
    add_part(out, parameter, ending, SNUG_U8, SNUG_CODES_STATE, 0, out->state);
    return write_state(ctx, form, mean, out->state);
}

int64_t snug_codes_saved_bytes(const struct snug_quantized *form) {
    const struct snug_quantized_layout l = snug_quantized_lay_out(form);
    const int64_t size = sizeof(float), maps = SNUG_CODE_VALUES + (form->nested ? SNUG_CODES : 0);
    const int64_t scales = form->nested ? l.blocks + l.groups * size : l.blocks * size;
    return (l.count + 1) / 2 + scales + maps * size + SNUG_CODES_STATE;
}
