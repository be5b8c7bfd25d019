/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random mixes of all methods, seeded, for each family in turn. Exact methods must give the bits of the plain run of
 * the same kind in every mix, and each run must allocate what was planned. SNUG_MIXES is the number of mixes
 * (default 24); SNUG_MIX runs that one alone. `test_mixes cuda` runs them on the GPU, with models whose matrices are
 * large enough to be offloaded from it. A disk that fails while a training offloads to it ends the training.
 */
#include "training_fixture.h"

#include "backend/backend.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define CHOICES 12

enum { NARROW = 32, BROAD = 256 }; /* hidden sizes */

static bool on_gpu, lacks_bf16;

/* An argument and its values; the plain run has the first value of a method. */
struct dial {
    const char *name, *values[CHOICES];
};

static const char *const families[] = {"model", "roberta", "modern", "mpnet", "llama", "gemma", "qwen", "gpt", "phi"};
enum { FIRST_DECODER = 4 };

/* Arguments that change the result: the mixed run has the plain run's values. */
static const struct dial kinds[] = {
    {"optim",
     {"adamw_torch", "adamw_8bit", "adafactor", "sgd", "lion_32bit", "adagrad", "rmsprop", "adam", "adam_8bit"}},
    {"dtype", {"float32", "bfloat16"}},
    {"bf16", {"False", "True"}},
    {"gradient_accumulation_steps", {"1", "2", "4"}},
    {"per_device_train_tokens", {"0", "100", "0", "250"}},
    {"per_device_train_batch_size", {"8", "5"}},
    {"max_grad_norm", {"0.5", "0"}},
    {"weight_decay", {"0", "0.01"}},
    {"train_sampling_strategy", {"random", "group_by_length"}},
    {"task", {"classification", "mlm"}},
    {"freeze", {"", "embeddings", "layer.0", "embeddings,layer.0"}},
};

/* Arguments that must not change a bit of the result. */
static const struct dial methods[] = {
    {"recompute", {"none", "elementwise", "ffn", "attention", "layer", "layer,none", "ffn,attention", "none,layer"}},
    {"update_in_backward", {"False", "True"}},
    {"offload",
     {"", "optimizer", "gradients", "weights", "activations", "optimizer,weights", "gradients,activations",
      "optimizer,gradients,weights,activations", "optimizer,master_weights", "optimizer,gradients,weights",
      "optimizer,gradients,master_weights"}},
    {"threads", {"2", "1", "3"}},
    {"dataloader_num_workers", {"0", "2"}},
};

enum { FAMILIES = sizeof families / sizeof *families };
enum { KINDS = sizeof kinds / sizeof *kinds, METHODS = sizeof methods / sizeof *methods };

static const char *choose(const struct dial *dial, uint32_t mix, uint32_t place) {
    size_t count = 0;
    while (count < CHOICES && dial->values[count]) count++;
    return dial->values[random_word(mix, place, 99) % count];
}

static void add_word(char *words, size_t size, const struct dial *dial, const char *value) {
    const size_t used = strlen(words);
    if (*value) snprintf(words + used, size - used, " %s=%s", dial->name, value);
}

/* What micro-batches by tokens exclude. */
static bool of_rows(const char *name) {
    return strcmp(name, "per_device_train_batch_size") == 0 || strcmp(name, "train_sampling_strategy") == 0;
}

static void make_words(uint32_t mix, char *plain, char *mixed, size_t size) {
    snprintf(plain, size, "config_name=@%s%s", families[mix % FAMILIES], on_gpu ? " device=cuda" : "");
    strcpy(mixed, plain);
    for (uint32_t i = 0; i < KINDS; i++) {
        const char *value = choose(&kinds[i], mix, i);
        if (strcmp(value, "mlm") == 0) value = "mlm line_by_line=True train_file=@train.txt";
        if (strcmp(kinds[i].name, "task") == 0 && mix % FAMILIES >= FIRST_DECODER)
            value = "clm line_by_line=True train_file=@train.txt";
        if (strstr(plain, "train_tokens=") && !strstr(plain, "train_tokens=0") && of_rows(kinds[i].name))
            value = kinds[i].values[0];
        add_word(plain, size, &kinds[i], value);
        add_word(mixed, size, &kinds[i], value);
    }
    for (uint32_t i = 0; i < METHODS; i++) {
        /* A GPU sums bias gradients in another order if weights are updated in backward. */
        const bool kind = on_gpu && strcmp(methods[i].name, "update_in_backward") == 0;
        const char *value = choose(&methods[i], mix, KINDS + i);
        const bool masters = strstr(plain, "dtype=float32") && strstr(plain, "bf16=True");
        if (strcmp(value, "optimizer,master_weights") == 0 && !masters) value = "optimizer,weights";
        if (strcmp(value, "optimizer,gradients,master_weights") == 0 && !masters) value = "optimizer,gradients,weights";
        add_word(plain, size, &methods[i], kind ? value : methods[i].values[0]);
        add_word(mixed, size, &methods[i], value);
    }
    if (strstr(mixed, "offload=") && random_word(mix, 60, 99) % 2) strcat(mixed, " offload_ratio=0.5");
    /* The host updates a share of the weights that a GPU offloads with all that their updates need. */
    const bool all = strstr(mixed, "offload=optimizer,gradients,") && !strstr(mixed, "update_in_backward=True");
    if (on_gpu && all && random_word(mix, 80, 99) % 3) {
        strcat(mixed, random_word(mix, 80, 99) % 3 == 1 ? " offload_update=1" : " offload_update=0.5");
        return;
    }
    /* A CPU's offload file is in output_dir otherwise. */
    if (strstr(mixed, "offload=") && random_word(mix, 70, 99) % 2) strcat(mixed, " offload_dir=@disk");
}

static void check_memory_report(const char *words, const snug_train_result *result) {
    int64_t sum = 0;
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        if (!on_gpu || i != SNUG_MEMORY_HOST) sum += result->memory[i].planned;
        if (i < SNUG_MEMORY_CONTEXT && result->memory[i].planned != result->memory[i].measured)
            fail_msg("%s: planned and allocated bytes of %s differ", words,
                     snug_memory_class_name((snug_memory_class)i));
    }
    assert_int_equal(sum, result->total.planned);
}

/* Where a share of the weights is updated on the host, the bits are those of updates on the GPU. */
FIXTURE_TEST(test_host_updates) {
    static const char *const cases[] = {
        "optim=adamw_torch bf16=True offload=optimizer,gradients,master_weights",
        "optim=adamw_torch offload=optimizer,gradients,weights gradient_accumulation_steps=2",
        "optim=sgd optim_args=momentum=0.9 max_grad_norm=0 offload=optimizer,gradients,weights",
        "optim=lion_32bit bf16=True dtype=bfloat16 offload=optimizer,gradients,weights",
        "optim=adam fp16=True offload=optimizer,gradients,master_weights",
        "optim=rmsprop recompute=layer offload=optimizer,gradients,weights,activations",
        "optim=adagrad freeze=layer.0 offload=optimizer,gradients,weights",
        "optim=adamw_8bit bf16=True offload=optimizer,gradients,master_weights",
        "optim=adam_8bit gradient_accumulation_steps=2 offload=optimizer,gradients,weights",
    };
    static const char *const shares[] = {"0", "0.4", "1"};
    if (!on_gpu) skip();
    write_model(f, "model", 0.1, BROAD, 2, VOCABULARY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 3; k++) {
            char words[512];
            snprintf(words, sizeof words,
                     "config_name=@model device=cuda weight_decay=0.01 max_steps=4 %s offload_update=%s", cases[i],
                     shares[k]);
            if (lacks_bf16) without_bf16(words);
            const snug_train_result result = train(f, k ? "mixed" : "plain", words);
            check_memory_report(words, &result);
            if (k && !same_file(f, path_of(f, "plain/model.safetensors"), path_of(f, "mixed/model.safetensors")))
                fail_msg("%s: other weights than with --offload_update 0", words);
        }
}

/* Leaves --offload_update out where it is refused: of some mixes no weight can be updated on the host. */
static void keep_possible_updates(struct fixture *f, char *mixed) {
    char *update = strstr(mixed, " offload_update=");
    if (!update) return;
    snug_args *args = training_args(f, mixed);
    snug_plan *plan;
    if (snug_plan_create(args, &plan) == SNUG_OK)
        snug_plan_destroy(plan);
    else if (strstr(snug_error_message(f->ctx), "there is no weight that the host could update"))
        *update = '\0';
    snug_args_destroy(args);
}

FIXTURE_TEST(test_mixes) {
    const char *asked = getenv("SNUG_MIXES");
    const char *only = getenv("SNUG_MIX");
    const uint32_t first = only ? (uint32_t)atoi(only) : 0;
    const uint32_t count = only ? first + 1 : asked ? (uint32_t)atoi(asked) : 24;
    if (on_gpu) write_model(f, "model", 0.1, BROAD, 2, VOCABULARY);
    write_other_families(f, on_gpu ? BROAD : NARROW);
    for (uint32_t mix = first; mix < count; mix++) {
        char plain[512], mixed[512];
        make_words(mix, plain, mixed, sizeof plain);
        if (lacks_bf16) without_bf16(plain), without_bf16(mixed);
        keep_possible_updates(f, mixed);
        train(f, "plain", plain);
        const bool interrupted = random_word(mix, 50, 99) % 3 == 0;
        if (interrupted) {
            assert_int_equal(try_train(f, "mixed", mixed, 3, NULL), SNUG_E_INTERRUPTED);
            strcat(mixed, " resume_from_checkpoint=True");
        }
        const snug_train_result result = train(f, "mixed", mixed);
        check_memory_report(mixed, &result);
        if (!same_file(f, path_of(f, "plain/model.safetensors"), path_of(f, "mixed/model.safetensors")))
            fail_msg("mix %u differs from the plain run: %s", mix, mixed);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "mixed")), SNUG_OK);
    }
    print_message("%u mixes\n", count - first);
}

FIXTURE_TEST(test_broken_disk) {
    char words[256];
    if (on_gpu) write_model(f, "model", 0.1, BROAD, 1, VOCABULARY);
    snprintf(words, sizeof words, "per_device_train_batch_size=2 max_steps=4 offload=optimizer,weights%s",
             on_gpu ? " device=cuda" : "");
    expect_broken_disk(f, words);
}

static int open_gpu(void **state) {
    snug_context *ctx;
    const struct snug_backend *cuda;
    (void)state;
    if (!on_gpu) return 0;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    if (snug_backend_cuda(ctx, &cuda) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
    lacks_bf16 = cuda->lacks_bf16;
    snug_context_destroy(ctx);
    return 0;
}

int main(int argc, char **argv) {
    on_gpu = argc > 1 && strcmp(argv[1], "cuda") == 0;
    return run_registered(open_gpu, NULL);
}
