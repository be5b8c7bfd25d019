/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al., 2019): learned positions, LayerNorms, and linears that are stored transposed. */
#include <math.h>

#include "model/decoders/decoder.h"

static void read(struct snug_reading *r) {
    struct snug_config *c = r->config;
    struct snug_decoder *d = c->settings;
    const int64_t most = SNUG_DIMENSION_MOST;
    const char *size = snug_read_key(r, "n_embd", "hidden_size"),
               *layers = snug_read_key(r, "n_layer", "num_hidden_layers"),
               *heads = snug_read_key(r, "n_head", "num_attention_heads"),
               *positions = snug_read_key(r, "n_positions", "max_position_embeddings");
    snug_read_size(r, size, 768, most, &c->hidden_size);
    snug_read_size(r, layers, 12, SNUG_LAYERS_MOST, &c->num_hidden_layers);
    snug_read_size(r, heads, 12, SNUG_HEADS_MOST, &c->num_attention_heads);
    snug_read_size(r, positions, 1024, most, &c->max_position_embeddings);
    snug_read_size(r, "n_inner", 4 * c->hidden_size, 4 * most, &c->intermediate_size);
    snug_read_size(r, "vocab_size", 50257, SNUG_VOCABULARY_MOST, &c->vocab_size);
    snug_read_check_heads(r, size, heads);
    snug_read_real(r, "layer_norm_epsilon", 1e-5, 0, 1, &c->layer_norm_eps);
    snug_read_real(r, "initializer_range", 0.02, 0, 1e6, &c->initializer_range);
    snug_read_dropout(r, "embd_pdrop", 0.1, &c->hidden_dropout_prob);
    snug_read_dropout(r, "attn_pdrop", 0.1, &c->attention_probs_dropout_prob);
    snug_read_dropout(r, "resid_pdrop", 0.1, &c->mlp_dropout);
    snug_read_function(r, "activation_function", "gelu_new", &c->hidden_act, &c->hidden_act_name);
    c->pad_token_id = -1; /* the embedding of padding is trained */
    if (snug_read_bool(r, "add_cross_attention", false) && r->status == SNUG_OK)
        r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: add_cross_attention is not supported", r->path);
    const bool scaled = snug_read_bool(r, "scale_attn_weights", true);
    d->inverse_layers = snug_read_bool(r, "scale_attn_by_inverse_layer_idx", false);
    if (r->status != SNUG_OK) return;
    d->kv_heads = c->num_attention_heads;
    d->head_dim = c->hidden_size / c->num_attention_heads;
    d->scale = scaled ? 1 / sqrt((double)d->head_dim) : 1;
    d->logits_divisor = 1;
}

static int32_t decode(struct snug_builder *b, int32_t *word) {
    const struct snug_config *c = b->config;
    const struct snug_layer layer = {.pre_norm = true,
                                     .transposed = true,
                                     .outputs_by_depth = true,
                                     .pooling = SNUG_POOL_LAST,
                                     .attention_dropout = c->mlp_dropout,
                                     .ffn_dropout = c->mlp_dropout,
                                     .form = snug_decoder_form,
                                     .layer = "h",
                                     .query = "attn.c_attn",
                                     .out = "attn.c_proj",
                                     .attention_norm = "ln_1",
                                     .up = "mlp.c_fc",
                                     .down = "mlp.c_proj",
                                     .ffn_norm = "ln_2",
                                     .final_norm = "ln_f"};
    *word = snug_build_words(b);
    const int32_t position =
        snug_build_table(b, c->max_position_embeddings, c->hidden_size, -1, snug_model_name(b, "wpe").text);
    const int32_t x = snug_embed_sum(b, *word, position, 0, 1);
    return snug_build_layers(b, snug_dropout(b, x, c->hidden_dropout_prob, "embeddings.dropout"), &layer);
}

/* Masks that earlier versions of transformers saved. */
static const char *const constants[] = {".attn.bias", ".attn.masked_bias", NULL};

static const struct snug_architecture further_classes[] = {{"GPT2LMHeadModel", SNUG_TASK_CLM, true}, {0}};

static const struct snug_gguf_form gguf = {
    .architecture = "gpt2", .activation = SNUG_GELU_TANH, .transposed = true, .biases = true};

const struct snug_family snug_family_gpt2 = {.model_type = "gpt2",
                                             .name = "GPT-2",
                                             .prefix = "transformer.",
                                             .word = "wte",
                                             .class_name = "GPT2",
                                             .further_classes = further_classes,
                                             .causal = true,
                                             .one_type = true,
                                             .constants = constants,
                                             .settings_size = sizeof(struct snug_decoder),
                                             .tokenizer_class = "GPT2Tokenizer",
                                             .lora_targets = "c_attn",
                                             .read = read,
                                             .identify = snug_identify_decoder,
                                             .encode = decode,
                                             .heads = &snug_decoder_heads,
                                             .gguf = &gguf};
