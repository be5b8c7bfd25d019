/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"

void snug_added_tokens_begin(struct snug_added_tokens *tokens, const struct snug_vocabulary *vocabulary) {
    tokens->next_id = tokens->end > vocabulary->count ? tokens->end : vocabulary->count;
}

snug_status snug_added_tokens_add(snug_context *ctx, struct snug_added_tokens *tokens,
                                  const struct snug_vocabulary *vocabulary, const struct snug_added_token *token) {
    struct snug_added_token added = *token;
    int32_t index = snug_hash_map_find(&tokens->content, "", 0, token->content, strlen(token->content));
    if (!*token->content) return SNUG_OK;
    if (index >= 0) {
        struct snug_added_token *item = &tokens->items[index];
        added.content = item->content;
        added.id = item->id;
        added.special |= item->special;
        *item = added;
        return SNUG_OK;
    }
    added.id = snug_vocabulary_find(vocabulary, token->content);
    if (added.id < 0) added.id = (int32_t)tokens->next_id++;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&tokens->items, &tokens->capacity, tokens->count + 1, sizeof added));
    RETURN_IF_ERROR(snug_strdup(ctx, token->content, &added.content));
    index = (int32_t)tokens->count;
    tokens->items[tokens->count++] = added;
    if (added.id >= tokens->end) tokens->end = (int64_t)added.id + 1;
    return snug_hash_map_add(ctx, &tokens->content, added.content, strlen(added.content), index, &(int32_t){0});
}

/* Tokens that no text can have, while the searches are built. */
struct unreachable {
    struct snug_hash_map seen;                     /* normalised contents */
    const struct snug_added_token *empty;          /* the first that is empty once normalised */
    const struct snug_added_token *taken, *hidden; /* the first with the normalised content of another one */
    size_t empty_count, hidden_count;
};

/* Adds item number index to the search. */
static snug_status seek(snug_context *ctx, struct snug_added_tokens *tokens, size_t index,
                        const struct snug_normalizer *normalizer, struct unreachable *u) {
    struct snug_added_token *item = &tokens->items[index];
    if (!item->normalized)
        return snug_matcher_add(ctx, &tokens->raw, item->content, strlen(item->content), (int32_t)index);
    int32_t same;
    struct snug_text text = {0};
    snug_status status = snug_normalize(ctx, normalizer, item->content, strlen(item->content), &text);
    if (status == SNUG_OK) status = snug_grow(ctx, (void **)&text.text, &text.capacity, text.length + 1, 1);
    item->sought = text.text;
    RETURN_IF_ERROR(status);
    item->sought[text.length] = '\0';
    if (!text.length) {
        if (!u->empty_count++) u->empty = item;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_hash_map_add(ctx, &u->seen, item->sought, text.length, (int32_t)index, &same));
    if (same < 0) return snug_matcher_add(ctx, &tokens->normalized, item->sought, text.length, (int32_t)index);
    if (!u->hidden_count++) {
        u->taken = &tokens->items[same];
        u->hidden = item;
    }
    return SNUG_OK;
}

/* transformers takes either of two such tokens, at random in each process. */
static void warn_of_unreachable(snug_context *ctx, const struct unreachable *u) {
    if (u->empty)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%zu added tokens are empty once normalised, the first is \"%s\": no text has them; make them "
                 "\"normalized\": false",
                 u->empty_count, u->empty->content);
    if (u->hidden)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "%zu added tokens are the same as an earlier one once normalised, and no text gets them: \"%s\" is "
                 "taken for \"%s\"; make one \"normalized\": false",
                 u->hidden_count, u->hidden->content, u->taken->content);
}

snug_status snug_added_tokens_finish(snug_context *ctx, struct snug_added_tokens *tokens,
                                     const struct snug_normalizer *normalizer) {
    struct unreachable u = {.empty_count = 0};
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < tokens->count && status == SNUG_OK; i++) status = seek(ctx, tokens, i, normalizer, &u);
    snug_hash_map_free(&u.seen);
    if (status == SNUG_OK) status = snug_matcher_finish(ctx, &tokens->raw);
    if (status == SNUG_OK) status = snug_matcher_finish(ctx, &tokens->normalized);
    if (status == SNUG_OK) warn_of_unreachable(ctx, &u);
    return status;
}

void snug_added_tokens_free(struct snug_added_tokens *tokens) {
    for (size_t i = 0; i < tokens->count; i++) {
        free(tokens->items[i].content);
        free(tokens->items[i].sought);
    }
    free(tokens->items);
    snug_hash_map_free(&tokens->content);
    snug_matcher_free(&tokens->raw);
    snug_matcher_free(&tokens->normalized);
    *tokens = (struct snug_added_tokens){0};
}

int64_t snug_added_tokens_end(const struct snug_added_tokens *tokens, const struct snug_vocabulary *vocabulary) {
    return tokens->end > vocabulary->size ? tokens->end : vocabulary->size;
}

const struct snug_added_token *snug_added_tokens_find(const struct snug_added_tokens *tokens, const char *content) {
    int32_t index = snug_hash_map_find(&tokens->content, "", 0, content, strlen(content));
    return index < 0 ? NULL : &tokens->items[index];
}

static bool has_flag(const char *text, size_t position, unsigned flag) {
    return snug_codepoint_flags(snug_utf8_next(text, &position)) & flag;
}

static bool stands_alone(const char *text, size_t length, size_t start, size_t stop) {
    return (start == 0 || !has_flag(text, snug_utf8_previous(text, start), SNUG_CODEPOINT_WORD)) &&
           (stop == length || !has_flag(text, stop, SNUG_CODEPOINT_WORD));
}

/* The next matching token, leftmost and longest, or *token NULL. The search does not look inside rejected matches. */
static snug_status find_token(snug_context *ctx, struct snug_splitter *splitter, const struct snug_added_token **token,
                              size_t *start, size_t *stop) {
    struct snug_search *search = splitter->search;
    for (;;) {
        const size_t at = splitter->searched = snug_search_skip(search, splitter->searched);
        const struct snug_pattern *pattern;
        if (at == search->length) break;
        RETURN_IF_ERROR(snug_search_at(ctx, search, at, &pattern));
        splitter->searched += pattern ? pattern->length : 1;
        if (!pattern) continue;
        const struct snug_added_token *found = &splitter->tokens->items[pattern->value];
        if (found->special && splitter->tokens->ignore_special) continue;
        if (found->single_word && !stands_alone(search->text, search->length, at, splitter->searched)) continue;
        *token = found;
        *start = at;
        *stop = splitter->searched;
        return SNUG_OK;
    }
    *token = NULL;
    return SNUG_OK;
}

/* Extends *start and *stop over the white space that the token strips. No character is read twice: lstrip stops at the
   end of the previous token, and the end of white space stripped by rstrip is remembered. Nothing is left (*start >=
   *stop) of a token that strips white space before it, and is itself within the white space that the previous token
   stripped. */
static void strip(struct snug_splitter *splitter, const struct snug_added_token *token, size_t *start, size_t *stop) {
    const char *text = splitter->search->text;
    const size_t length = splitter->search->length;
    if (token->lstrip) {
        while (*start > splitter->done && has_flag(text, snug_utf8_previous(text, *start), SNUG_CODEPOINT_SPACE))
            *start = snug_utf8_previous(text, *start);
        if (*start < splitter->done) *start = splitter->done;
    }
    if (token->rstrip) {
        if (*stop < splitter->spaces_end) *stop = splitter->spaces_end;
        while (*stop < length && has_flag(text, *stop, SNUG_CODEPOINT_SPACE)) snug_utf8_next(text, stop);
        splitter->spaces_end = *stop;
    }
}

snug_status snug_splitter_next(snug_context *ctx, struct snug_splitter *splitter, const struct snug_added_token **token,
                               size_t *start, size_t *stop) {
    if (splitter->pending) {
        *token = splitter->pending;
        *start = splitter->pending_start;
        *stop = splitter->done = splitter->pending_stop;
        splitter->pending = NULL;
        return SNUG_OK;
    }
    /* White space that the previous token stripped is not stripped again. The search continues after the token itself:
       a token that begins with white space may still be found in the text that rstrip stripped. */
    do {
        RETURN_IF_ERROR(find_token(ctx, splitter, token, start, stop));
        if (!*token) {
            *start = splitter->done;
            *stop = splitter->done = splitter->search->length;
            return *start < *stop ? SNUG_OK : SNUG_END;
        }
        strip(splitter, *token, start, stop);
    } while (*start >= *stop);
    if (splitter->done < *start) {
        splitter->pending = *token;
        splitter->pending_start = *start;
        splitter->pending_stop = *stop;
        *token = NULL;
        *stop = *start;
        *start = splitter->done;
        return SNUG_OK;
    }
    splitter->done = *stop;
    return SNUG_OK;
}
