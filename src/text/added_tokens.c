/* SPDX-License-Identifier: Apache-2.0 */
#include "text/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

snug_status snug_added_tokens_add(snug_context *ctx, struct snug_added_tokens *tokens,
                                  const struct snug_wordpiece *model, const struct snug_added_token *token) {
    struct snug_added_token added = *token;
    int32_t index = snug_lexicon_find(&tokens->content, "", 0, token->content, strlen(token->content));
    if (!*token->content) return SNUG_OK;
    if (index >= 0) {
        struct snug_added_token *item = &tokens->items[index];
        added.content = item->content;
        added.id = item->id;
        added.special |= item->special;
        *item = added;
        return SNUG_OK;
    }
    /* New ids go on from the vocabulary's size, or from the largest added id where that is larger. */
    added.id = snug_wordpiece_find(model, token->content);
    if (added.id < 0) added.id = (int32_t)(tokens->next_id > model->count ? tokens->next_id : model->count);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&tokens->items, &tokens->capacity, tokens->count + 1, sizeof added));
    RETURN_IF_ERROR(snug_strdup(ctx, token->content, &added.content));
    index = (int32_t)tokens->count;
    tokens->items[tokens->count++] = added;
    if (added.id >= tokens->next_id) tokens->next_id = (int64_t)added.id + 1;
    return snug_lexicon_add(ctx, &tokens->content, added.content, strlen(added.content), index, &(int32_t){0});
}

/* Puts item number index among those that are looked for. */
static snug_status seek(snug_context *ctx, struct snug_added_tokens *tokens, size_t index,
                        const struct snug_normalizer *normalizer) {
    struct snug_added_token *item = &tokens->items[index];
    struct snug_lexicon *lexicon = item->normalized ? &tokens->normalized : &tokens->raw;
    size_t length = strlen(item->content);
    int32_t same;
    struct snug_text text = {0};
    if (item->normalized) {
        snug_status status = snug_normalize(ctx, normalizer, item->content, length, &text);
        item->sought = text.text;
        length = text.length;
        RETURN_IF_ERROR(status);
        if (!length)
            return snug_fail(ctx, SNUG_E_INPUT,
                             "added token \"%s\" is empty once normalised; make it \"normalized\": false",
                             item->content);
    }
    const char *sought = item->normalized ? item->sought : item->content;
    RETURN_IF_ERROR(snug_lexicon_add(ctx, lexicon, sought, length, (int32_t)index, &same));
    if (same < 0) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "added tokens \"%s\" and \"%s\" are the same once normalised; make one \"normalized\": false",
                     tokens->items[same].content, item->content);
}

snug_status snug_added_tokens_finish(snug_context *ctx, struct snug_added_tokens *tokens,
                                     const struct snug_normalizer *normalizer) {
    for (size_t i = 0; i < tokens->count; i++) RETURN_IF_ERROR(seek(ctx, tokens, i, normalizer));
    return SNUG_OK;
}

void snug_added_tokens_free(struct snug_added_tokens *tokens) {
    for (size_t i = 0; i < tokens->count; i++) {
        free(tokens->items[i].content);
        free(tokens->items[i].sought);
    }
    free(tokens->items);
    snug_lexicon_free(&tokens->content);
    snug_lexicon_free(&tokens->raw);
    snug_lexicon_free(&tokens->normalized);
    *tokens = (struct snug_added_tokens){0};
}

int64_t snug_added_tokens_end(const struct snug_added_tokens *tokens, const struct snug_wordpiece *model) {
    return tokens->next_id > model->size ? tokens->next_id : model->size;
}

const struct snug_added_token *snug_added_tokens_find(const struct snug_added_tokens *tokens, const char *content) {
    int32_t index = snug_lexicon_find(&tokens->content, "", 0, content, strlen(content));
    return index < 0 ? NULL : &tokens->items[index];
}

static bool has_flag(const char *text, size_t position, unsigned flag) {
    return snug_codepoint_flags(snug_utf8_next(text, &position)) & flag;
}

static bool stands_alone(const char *text, size_t length, size_t start, size_t stop) {
    return (start == 0 || !has_flag(text, snug_utf8_previous(text, start), SNUG_CODEPOINT_WORD)) &&
           (stop == length || !has_flag(text, stop, SNUG_CODEPOINT_WORD));
}

/* The next token that counts, leftmost and longest; false if there is none. Passed-over ones are not looked into. */
static bool find_token(struct snug_splitter *splitter, const struct snug_added_token **token, size_t *start,
                       size_t *stop) {
    const char *text = splitter->text;
    while (splitter->searched < splitter->length) {
        size_t at = splitter->searched;
        int32_t index = -1;
        size_t size = 0;
        if (splitter->lexicon->first[(unsigned char)text[at]])
            size = snug_lexicon_longest(splitter->lexicon, "", 0, text + at, splitter->length - at, &index);
        splitter->searched += size ? size : 1;
        if (!size) continue;
        *token = &splitter->tokens->items[index];
        if ((*token)->special && splitter->tokens->ignore_special) continue;
        if ((*token)->single_word && !stands_alone(text, splitter->length, at, at + size)) continue;
        *start = at;
        *stop = at + size;
        return true;
    }
    return false;
}

bool snug_splitter_next(struct snug_splitter *splitter, const struct snug_added_token **token, size_t *start,
                        size_t *stop) {
    const char *text = splitter->text;
    if (splitter->pending) {
        *token = splitter->pending;
        splitter->pending = NULL;
        splitter->done = splitter->pending_stop;
        return true;
    }
    if (!find_token(splitter, token, start, stop)) {
        *token = NULL;
        *start = splitter->done;
        *stop = splitter->done = splitter->length;
        return *start < *stop;
    }
    /* White space that the token before has taken is not taken again. The search goes on behind the bare token: a token
       that begins with white space may still be found in what rstrip took. */
    if ((*token)->lstrip) {
        while (*start > 0 && has_flag(text, snug_utf8_previous(text, *start), SNUG_CODEPOINT_SPACE))
            *start = snug_utf8_previous(text, *start);
        if (*start < splitter->done) *start = splitter->done;
    }
    if ((*token)->rstrip)
        while (*stop < splitter->length && has_flag(text, *stop, SNUG_CODEPOINT_SPACE)) snug_utf8_next(text, stop);
    if (splitter->done < *start) {
        splitter->pending = *token;
        splitter->pending_stop = *stop;
        *token = NULL;
        *stop = *start;
        *start = splitter->done;
        return true;
    }
    splitter->done = *stop;
    return true;
}
