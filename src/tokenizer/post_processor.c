/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/post_processor.h"

snug_status snug_template_add(snug_context *ctx, struct snug_template *template, const char *path, int32_t id,
                              int32_t type) {
    if (template->count == SNUG_TEMPLATE_MOST)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%s: the post_processor has a template of more than %d pieces", path,
                         SNUG_TEMPLATE_MOST);
    template->pieces[template->count++] = (struct snug_template_piece){id, type};
    return SNUG_OK;
}

size_t snug_template_specials(const struct snug_template *template) {
    size_t specials = 0;
    for (size_t i = 0; i < template->count; i++) specials += template->pieces[i].id >= 0;
    return specials;
}

bool snug_template_has_types(const struct snug_template *template) {
    for (size_t i = 0; i < template->count; i++)
        if (template->pieces[i].type) return true;
    return false;
}

static snug_status check(snug_context *ctx, const struct snug_template *template, bool pair, const char *path,
                         const char *name, int64_t size) {
    int found[2] = {0};
    int32_t type = 0;
    for (size_t i = 0; i < template->count; i++) {
        const struct snug_template_piece *piece = &template->pieces[i];
        const bool second = piece->id == SNUG_PIECE_B;
        if (piece->id >= size)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: the post_processor adds the id %d, which no token has", path,
                             piece->id);
        if (piece->id < 0 && (found[second]++ || (second && !found[0])))
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "%s: the post_processor %s is not supported: a sequence occurs twice, or B before A", path,
                             name);
        if (piece->type < type || piece->type > 1)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "%s: the post_processor %s is not supported: token types must be first 0, then 1", path,
                             name);
        type = piece->type;
    }
    if (found[0] == 1 && found[1] == pair) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                     "%s: the post_processor %s is not supported, whose \"%s\" has not each sequence once", path, name,
                     pair ? "pair" : "single");
}

snug_status snug_post_processor_check(snug_context *ctx, const struct snug_post_processor *processor, const char *path,
                                      const char *name, int64_t size) {
    RETURN_IF_ERROR(check(ctx, &processor->single, false, path, name, size));
    return check(ctx, &processor->pair, true, path, name, size);
}

snug_status snug_post_processor_frame(snug_context *ctx, struct snug_post_processor *processor, const char *path,
                                      int32_t cls, int32_t sep, bool twice, bool typed) {
    for (int pair = 0; pair < 2; pair++) {
        struct snug_template *template = pair ? &processor->pair : &processor->single;
        RETURN_IF_ERROR(snug_template_add(ctx, template, path, cls, 0));
        RETURN_IF_ERROR(snug_template_add(ctx, template, path, SNUG_PIECE_A, 0));
        RETURN_IF_ERROR(snug_template_add(ctx, template, path, sep, 0));
        if (!pair) continue;
        if (twice) RETURN_IF_ERROR(snug_template_add(ctx, template, path, sep, 0));
        RETURN_IF_ERROR(snug_template_add(ctx, template, path, SNUG_PIECE_B, typed));
        RETURN_IF_ERROR(snug_template_add(ctx, template, path, sep, typed));
    }
    return SNUG_OK;
}
