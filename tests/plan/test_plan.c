/* SPDX-License-Identifier: Apache-2.0 */
/* The plan is the allocation: by class, in the layout of the arena, against a budget, and against the system's figures.
 */
#include <math.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static int64_t plan_total_of(struct fixture *f, snug_args *args, int64_t bytes[SNUG_MEMORY_CLASS_COUNT]) {
    snug_plan *plan;
    if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    const int64_t total = snug_plan_total(plan);
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) bytes[i] = snug_plan_bytes(plan, (snug_memory_class)i);
    assert_int_equal(snug_plan_bytes(plan, SNUG_MEMORY_CLASS_COUNT), -1);
    snug_plan_destroy(plan);
    return total;
}

/* ---- the plan and what is allocated -------------------------------------------------------------------------- */

FIXTURE_TEST(test_planned_is_allocated) {
    static const char *const runs[] = {
        "per_device_train_batch_size=8",
        "per_device_train_batch_size=16 gradient_accumulation_steps=2 dataloader_num_workers=3",
        "per_device_train_batch_size=4 max_seq_length=8 validation_file=@dev.csv eval_strategy=epoch",
        "per_device_eval_batch_size=30 validation_file=@dev.csv",
        "bf16=True validation_file=@dev.csv",
        "dtype=bfloat16 validation_file=@dev.csv",
        "dtype=bfloat16 bf16=True task=mlm train_file=@train.txt",
        "task=mlm train_file=@train.txt validation_file=@dev.txt line_by_line=True",
        "task=mlm train_file=@train.txt max_seq_length=64",
        "train_file=dummy:20x40 threads=3",
        "offload=optimizer,gradients,weights,activations validation_file=@dev.csv",
    };
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        int64_t planned[SNUG_MEMORY_CLASS_COUNT], sum = 0;
        char words[512];
        snug_train_result result;
        snprintf(words, sizeof words, "%s num_train_epochs=1 output_dir=@out", runs[run]);
        snug_args *args = training_args(f, words);
        const int64_t total = plan_total_of(f, args, planned);
        for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) sum += planned[i];
        assert_int_equal(sum, total);
        if (train_args(f, args, NULL, &result) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        for (int i = 0; i < SNUG_MEMORY_CONTEXT; i++)
            if (planned[i] != result.memory[i].planned || planned[i] != result.memory[i].measured)
                fail_msg("%s: %s is %lld in the plan, %lld and %lld in the training", runs[run],
                         snug_memory_class_name((snug_memory_class)i), (long long)planned[i],
                         (long long)result.memory[i].planned, (long long)result.memory[i].measured);
        snug_args_destroy(args);
    }
}

/* ---- the layout ----------------------------------------------------------------------------------------------- */

struct life {
    int first, last;
};

/* The tensor whose bytes tensor uses. */
static int32_t place_of(const struct snug_program *program, int32_t tensor) {
    return program->tensors[tensor].view ? program->tensors[tensor].base : tensor;
}

/* From the operations alone. HEAD may be repeated after its last operation, so that tensors from earlier phases which
   it reads stay alive. */
static struct life life_of(const struct snug_program *program, int32_t tensor) {
    struct life life = {-1, -1};
    int head_first = -1, head_last = -1;
    bool in_head = false;
    for (int i = 0; i < (int)program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        bool used = false;
        for (int k = 0; k < snug_op_operands(op); k++) used |= place_of(program, op->operands[k]) == tensor;
        if (op->phase == SNUG_PHASE_HEAD) {
            if (head_first < 0) head_first = i;
            head_last = i;
            in_head |= used;
        }
        if (!used) continue;
        if (life.first < 0) life.first = i;
        life.last = i;
    }
    if (in_head && life.first < head_first && life.last < head_last) life.last = head_last;
    return life;
}

static void check_layout(const struct snug_program *program, const struct snug_layout *layout, int64_t *pairs) {
    struct life *lives = calloc(program->tensor_count, sizeof *lives);
    assert_non_null(lives);
    for (size_t i = 1; i < program->tensor_count; i++) lives[i] = life_of(program, (int32_t)i);
    for (size_t a = 1; a < program->tensor_count; a++) {
        const struct snug_tensor *x = &program->tensors[a];
        if (x->view) {
            const struct snug_tensor *base = &program->tensors[x->base];
            assert_true(x->offset >= base->offset && x->offset + x->bytes <= base->offset + base->bytes);
        }
        if (x->offloaded || x->view || (!x->persistent && lives[a].first < 0))
            continue; /* at another place, or nowhere */
        assert_true(x->bytes > 0 && x->offset % 64 == 0);
        assert_true(x->offset >= 0 && x->offset + x->bytes <= layout->total);
        for (size_t b = 1; b < a; b++) {
            const struct snug_tensor *y = &program->tensors[b];
            if (y->offloaded || y->view || (!y->persistent && lives[b].first < 0)) continue;
            const bool meet =
                x->persistent || y->persistent || (lives[a].first <= lives[b].last && lives[b].first <= lives[a].last);
            const bool overlap = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
            if (meet && overlap) fail_msg("%s and %s live at the same time in the same bytes", x->name, y->name);
            *pairs += !meet && overlap;
        }
    }
    free(lives);
}

FIXTURE_TEST(test_live_tensors_do_not_overlap) {
    static const char *const runs[] = {
        "validation_file=@dev.csv",
        "bf16=True validation_file=@dev.csv per_device_eval_batch_size=30",
        "dtype=bfloat16 validation_file=@dev.csv per_device_eval_batch_size=30",
        "task=mlm train_file=@train.txt validation_file=@dev.txt per_device_train_batch_size=64",
        "config_name=@wide validation_file=@dev.csv offload=optimizer",
        "config_name=@wide validation_file=@dev.csv offload=optimizer,gradients,weights,activations recompute=layer",
        "config_name=@wide task=mlm train_file=@train.txt validation_file=@dev.txt offload=weights,gradients",
        "config_name=@llama train_file=@train.txt validation_file=@dev.txt recompute=attention",
    };
    write_model(f, "wide", 0.1, 64, 2, 30522);
    write_other_families(f, 32);
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        struct snug_job job;
        int64_t sharing = 0;
        snug_args *args = training_args(f, runs[run]);
        assert_int_equal(snug_job_open(args, SNUG_COMMAND_TRAIN, &job), SNUG_OK);
        assert_int_equal(job.plan.count, 2);
        for (int i = 0; i < 2; i++) check_layout(&job.plan.programs[i].program, &job.plan.layout, &sharing);
        assert_true(sharing > 0); /* tensors whose lifetimes do not overlap share memory */
        snug_job_close(&job);
        snug_args_destroy(args);
    }
}

/* ---- bf16 weights --------------------------------------------------------------------------------------------- */

/* Matrices take half the bytes, vectors the same; nothing else grows except the workspace of fp32 matmuls, which widen
   weights; bf16 matmuls need no copies. */
FIXTURE_TEST(test_bf16_weights_are_half) {
    for (int bf16 = 0; bf16 <= (int)snug_backend_cpu_fast_bf16(); bf16++) {
        int64_t full[SNUG_MEMORY_CLASS_COUNT], half[SNUG_MEMORY_CLASS_COUNT], vectors = 0, matrices = 0;
        char words[256];
        snprintf(words, sizeof words, "validation_file=@dev.csv bf16=%s", bf16 ? "True" : "False");
        snug_args *args = training_args(f, words);
        plan_total_of(f, args, full);
        set_args(f, args, "dtype=bfloat16");
        plan_total_of(f, args, half);
        struct snug_job job;
        assert_int_equal(snug_job_open(args, SNUG_COMMAND_TRAIN, &job), SNUG_OK);
        for (int p = 0; p < job.plan.count; p++)
            for (size_t i = 1; i < job.plan.programs[p].program.tensor_count; i++) {
                const struct snug_tensor *t = &job.plan.programs[p].program.tensors[i];
                if (t->memory_class != SNUG_MEMORY_WEIGHTS) continue;
                assert_true(strncmp(t->name, "copy.", 5) != 0);
                const bool vector = strstr(t->name, "bias") || strstr(t->name, "LayerNorm");
                assert_int_equal(t->dtype, vector ? SNUG_F32 : SNUG_BF16);
                if (p == 0) *(vector ? &vectors : &matrices) += t->rows * t->cols;
            }
        snug_job_close(&job);
        snug_args_destroy(args);
        assert_true(vectors > 0 && matrices > 10 * vectors);
        /* Up to a cache line for each of some forty tensors. */
        assert_in_range(half[SNUG_MEMORY_WEIGHTS] - 2 * matrices - 4 * vectors, 0, 64 * 60);
        for (int i = SNUG_MEMORY_WEIGHTS + 1; i < SNUG_MEMORY_CONTEXT; i++)
            if (i != SNUG_MEMORY_WORKSPACE) assert_int_equal(half[i], full[i]);
        if (bf16) assert_int_equal(half[SNUG_MEMORY_WORKSPACE], full[SNUG_MEMORY_WORKSPACE]);
    }
}

/* A layer that recomputes everything has no 16-bit copy of its weights: neither for training nor for evaluation. */
FIXTURE_TEST(test_recomputed_layers_have_no_copies) {
    if (!snug_backend_cpu_fast_bf16()) skip(); /* it computes in fp32, with the weights themselves */
    for (int half = 0; half < 2; half++) {
        int64_t kept = 0, made = 0;
        char words[256];
        snprintf(words, sizeof words, "validation_file=@dev.csv bf16=True recompute=%s", half ? "layer,none" : "layer");
        snug_args *args = training_args(f, words);
        struct snug_job job;
        assert_int_equal(snug_job_open(args, SNUG_COMMAND_TRAIN, &job), SNUG_OK);
        for (int p = 0; p < job.plan.count; p++)
            for (size_t i = 1; i < job.plan.programs[p].program.tensor_count; i++) {
                const struct snug_tensor *t = &job.plan.programs[p].program.tensors[i];
                if (strncmp(t->name, "copy.", 5) != 0 || t->layer < 0) continue;
                *(t->persistent ? &kept : &made) += 1;
                assert_int_equal(t->persistent, half && t->layer == 1);
            }
        assert_int_equal(kept > 0, half);
        assert_true(made > 0);
        snug_job_close(&job);
        snug_args_destroy(args);
    }
}

/* ---- models without files ------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_built_in_shapes) {
    static const struct {
        const char *name;
        int64_t parameters;
        int layers, hidden;
    } shapes[] = {{"bert-base-uncased", 109483778, 12, 768}, {"bert-large-uncased", 335143938, 24, 1024}};
    enum { TABLE = 30522, TOUCHED = 4 * 512 }; /* rows of the word embedding, and those that a step may read */
    for (size_t i = 0; i < 2; i++) {
        int64_t sum = 0;
        char words[128], *text;
        snug_plan *plan;
        const char *name;
        json_t *value, *json, *bytes;
        snprintf(words, sizeof words, "config_name=%s per_device_train_batch_size=4 max_seq_length=512",
                 shapes[i].name);
        snug_args *args = plain_args(f, words);
        assert_int_equal(snug_plan_create(args, &plan), SNUG_OK);
        assert_int_equal(snug_plan_json(plan, &text), SNUG_OK);
        json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(json);
        free(text);
        bytes = json_object_get(json, "bytes");
        const int64_t total = json_integer_value(json_object_get(bytes, "total")),
                      weights = json_integer_value(json_object_get(bytes, "weights")),
                      optimizer = json_integer_value(json_object_get(bytes, "optimizer"));
        assert_int_equal(json_integer_value(json_object_get(json, "parameters")), shapes[i].parameters);
        json_object_foreach(bytes, name, value) if (strcmp(name, "total") != 0) sum += json_integer_value(value);
        assert_int_equal(sum, total);
        assert_int_equal(total, snug_plan_total(plan));
        /* fp32, with at most 20 tensors a layer and 20 others rounded up to a cache line. */
        const int64_t rounding = 64 * 20 * (shapes[i].layers + 1);
        assert_in_range(weights - 4 * shapes[i].parameters, 0, rounding);
        const int64_t index = (4 * (1 + TOUCHED + TABLE) + 63) / 64 * 64;
        assert_int_equal(json_integer_value(json_object_get(bytes, "gradients")),
                         weights - 4 * (TABLE - TOUCHED) * (int64_t)shapes[i].hidden + index);
        assert_in_range(optimizer - 2 * weights - 4 * TABLE, 0, 1 << 16);
        /* The parts add up to the total. */
        json_t *layers = json_object_get(json, "layers"), *encoder = json_object_get(layers, "encoder");
        assert_int_equal(json_array_size(encoder), shapes[i].layers);
        sum = json_integer_value(json_object_get(json_object_get(layers, "embeddings"), "weights")) +
              json_integer_value(json_object_get(json_object_get(layers, "head"), "weights"));
        for (int k = 0; k < shapes[i].layers; k++)
            sum += json_integer_value(json_object_get(json_array_get(encoder, (size_t)k), "weights"));
        assert_int_equal(sum, weights);
        json_decref(json);
        assert_int_equal(snug_plan_text(plan, &text), SNUG_OK);
        assert_contains(text, "18 bytes per parameter");
        free(text);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
}

static json_t *json_plan(struct fixture *f, const char *words) {
    snug_args *args = plain_args(f, words);
    snug_plan *plan;
    char *text;
    assert_int_equal(snug_plan_create(args, &plan), SNUG_OK);
    assert_int_equal(snug_plan_json(plan, &text), SNUG_OK);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    free(text);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    return json;
}

static int64_t class_of(const json_t *plan, const char *name) {
    return json_integer_value(json_object_get(json_object_get(plan, "bytes"), name));
}

static double backward_flops(const json_t *plan) {
    const char *group;
    json_t *sides;
    double flops = 0;
    json_object_foreach(json_object_get(plan, "step"), group, sides) flops +=
        json_real_value(json_object_get(json_object_get(sides, "backward"), "flops"));
    return flops;
}

/* Each term of disentangled attention has its own work. */
FIXTURE_TEST(test_disentangled_attention) {
    static const char *const terms[] = {"", "\"c2p\"", "\"p2c\"", "\"c2p\", \"p2c\""};
    double flops[4];
    for (size_t i = 0; i < 4; i++) {
        char config[512];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"deberta-v2\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
                 "\"num_hidden_layers\": 2, \"intermediate_size\": 64, \"vocab_size\": 100, "
                 "\"relative_attention\": %s, \"position_buckets\": 8, \"pos_att_type\": [%s]}",
                 i ? "true" : "false", terms[i]);
        write_text(f, "config.json", config);
        json_t *plan = json_plan(f, "config_name=@config.json per_device_train_batch_size=4 max_seq_length=64");
        flops[i] = backward_flops(plan);
        json_decref(plan);
    }
    assert_true(flops[0] < flops[1] && flops[0] < flops[2]);
    assert_true(flops[1] < flops[3] && flops[2] < flops[3]);
}

/* The plan reports the difference to the plan without --freeze, which has no such figures. */
FIXTURE_TEST(test_frozen_parts) {
    json_t *whole = json_plan(f, "config_name=bert-base-uncased per_device_train_batch_size=4 max_seq_length=64");
    json_t *part = json_plan(
        f, "config_name=bert-base-uncased per_device_train_batch_size=4 max_seq_length=64 freeze=embeddings,layer.0-5");
    const json_t *frozen = json_object_get(part, "frozen");
    assert_true(json_is_null(json_object_get(whole, "frozen")));
    assert_int_equal(json_integer_value(json_object_get(frozen, "parameters")),
                     (30522 + 512 + 2 + 2) * 768 + 6 * 7087872);
    assert_int_equal(json_integer_value(json_object_get(frozen, "gradient_bytes")),
                     class_of(whole, "gradients") - class_of(part, "gradients"));
    assert_int_equal(json_integer_value(json_object_get(frozen, "state_bytes")),
                     class_of(whole, "optimizer") - class_of(part, "optimizer"));
    /* The context, the host's memory and so the total are left out: each plan measures them again. */
    static const char *const classes[] = {"weights",   "gradients", "optimizer", "activations",
                                          "temporary", "workspace", "batch"};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(frozen, "bytes_if_all_trained"), classes[i])),
            class_of(whole, classes[i]));
    const double saved = backward_flops(whole) - backward_flops(part);
    assert_true(fabs(json_real_value(json_object_get(frozen, "backward_flops")) - saved) <= 1e-9 * saved);
    assert_true(saved > 0.4 * backward_flops(whole) && saved < 0.6 * backward_flops(whole));
    json_decref(whole);
    json_decref(part);
}

/* Matrices of 2 bytes a parameter, vectors of 4, and what is trained as without --freeze: nothing else. */
FIXTURE_TEST(test_frozen_weights_have_no_master) {
    static const char *const runs[] = {
        "gpu=H100 bf16=true", "gpu=H100 bf16=true validation_file=dummy:64x16 recompute=layer",
        "gpu=T4 fp16=true optim=adamw_8bit", "gpu=H100 bf16=true gradient_accumulation_steps=4"};
    enum { H = 768, LAYERS = 12, MATRICES = 4 * H * H + 8 * H * H, VECTORS = (4 + 4 + 1 + 4) * H };
    const int64_t embeddings = (30522 + 512 + 2) * H * 2 + 2 * H * 4, layer = MATRICES * 2 + VECTORS * 4;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[256];
        snprintf(words, sizeof words, "config_name=bert-base-uncased freeze=base_model train_file=dummy:64x16 %s",
                 runs[i]);
        json_t *plan = json_plan(f, words);
        const int64_t head = 2 * H * (4 + 2) + 2 * 4, pooler = H * H * 2 + H * 4;
        const int64_t bytes = embeddings + LAYERS * layer + pooler + head;
        assert_in_range(class_of(plan, "weights"), bytes, bytes + 1024);
        json_decref(plan);
    }
}

/* Codes take 4.13 bits of each weight of the encoder's linears, and a plan says so; the values of the largest one, in
   the compute type, are temporary. */
FIXTURE_TEST(test_weights_of_4_bits) {
    static const char *const runs[] = {"", "gpu=H100", "gpu=T4 bnb_4bit_compute_dtype=float16",
                                       "bnb_4bit_compute_dtype=float32 bnb_4bit_quant_type=fp4"};
    enum { H = 768, LAYERS = 12 };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[256];
        snprintf(words, sizeof words, "config_name=bert-base-uncased freeze=base_model load_in_4bit=true %s", runs[i]);
        json_t *plan = json_plan(f, words);
        const json_t *quantized = json_object_get(plan, "quantized");
        const int64_t parameters = (int64_t)LAYERS * 12 * H * H + H * H; /* and the pooler */
        assert_int_equal(json_integer_value(json_object_get(quantized, "parameters")), parameters);
        const int64_t bytes = json_integer_value(json_object_get(quantized, "bytes"));
        assert_in_range(bytes, parameters / 2 + parameters / 64, parameters / 2 + parameters / 64 + parameters / 2048);
        assert_true(json_integer_value(json_object_get(quantized, "values_bytes")) >= (int64_t)2 * 4 * H * H);
        json_decref(plan);
    }
}

/* Full, LoRA and QLoRA beside one another, each of them by any of the three; and in words where the run does not fit.
 */
#define LLAMA                                                                                                          \
    "gpu=H100 bf16=true config_name=" SNUG_SOURCE_DIR "/bench/models/llama-3.2-1b.json per_device_train_batch_size=2 " \
    "max_seq_length=512 optim=adamw_torch dtype=float32 gradient_accumulation_steps=1 update_in_backward=False "
#define ADAPTERS "--use_peft --lora_target_modules all-linear"

static int64_t training_bytes(const json_t *plan, const char *kind) {
    const json_t *of_kind = json_object_get(json_object_get(plan, "trainings"), kind);
    return json_integer_value(json_object_get(json_object_get(of_kind, "bytes"), "total"));
}

FIXTURE_TEST(test_plan_compares_trainings) {
    static const char *const kinds[] = {"full", "LoRA", "QLoRA"};
    static const char *const runs[] = {LLAMA, LLAMA "use_peft=True lora_target_modules=all-linear",
                                       LLAMA "use_peft=True lora_target_modules=all-linear load_in_4bit=True"};
    int64_t bytes[3] = {0};
    for (int i = 0; i < 3; i++) {
        json_t *plan = json_plan(f, runs[i]);
        for (int k = 0; k < 3 && !bytes[k]; k++) bytes[k] = training_bytes(plan, kinds[k]);
        for (int k = 0; k < 3; k++) assert_int_equal(training_bytes(plan, kinds[k]), bytes[k]);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(plan, "bytes"), "total")), bytes[i]);
        json_decref(plan);
    }
    assert_true(bytes[2] < bytes[1] && bytes[1] < bytes[0] / 4);
    /* GPT-2's codes are those of its weights' transpose. */
    static const char gpt2[] = "gpu=H100 config_name=" SNUG_SOURCE_DIR "/tests/golden/families/gpt2/clm";
    snug_plan *created;
    char *text;
    snug_args *args = plain_args(f, gpt2);
    assert_int_equal(snug_plan_create(args, &created), SNUG_OK);
    assert_int_equal(snug_plan_text(created, &text), SNUG_OK);
    assert_contains(text, "\nfull  (this plan) ");
    assert_contains(text, "\nQLoRA ");
    free(text);
    snug_plan_destroy(created);
    snug_args_destroy(args);
    json_t *all = json_plan(f, gpt2);
    assert_int_equal(json_object_size(json_object_get(all, "trainings")), 3);
    json_decref(all);
    static const char *const none[] = {LLAMA "freeze=layer.0-3", "gpu=H100 config_name=bert-base-uncased"};
    for (int i = 0; i < 2; i++) {
        json_t *plan = json_plan(f, none[i]);
        assert_int_equal(json_object_size(json_object_get(plan, "trainings")), 0);
        json_decref(plan);
    }
}

FIXTURE_TEST(test_adapters_are_proposed_in_words) {
    static const struct {
        const char *words, *proposed, *row;
        bool fits, q;
    } cases[] = {
        {LLAMA "recompute=layer memory_budget=12GiB", "LoRA (" ADAPTERS ") would take", "full  (this plan) ", true,
         true},
        {LLAMA "gradient_checkpointing=True memory_budget=3GiB",
         "training: QLoRA (" ADAPTERS " --load_in_4bit) would take", "too large  " ADAPTERS "\n", true, true},
        {LLAMA "recompute=layer memory_budget=1GiB", "MiB, which does not fit, about", "too large  " ADAPTERS " --load",
         false, true},
        {LLAMA "memory_budget=2100MiB offload=optimizer", "QLoRA (" ADAPTERS " --load_in_4bit --recompute layer) would",
         ADAPTERS " --load_in_4bit --recompute layer\n", false, true},
        {"gpu=H100 config_name=" SNUG_SOURCE_DIR "/tests/golden/families/gpt2/clm memory_budget=10MiB",
         "training: LoRA (" ADAPTERS ") would take", "too large  " ADAPTERS "\n", false, true},
        {LLAMA "recompute=layer memory_budget=3GiB use_peft=True lora_target_modules=all-linear",
         "QLoRA (--load_in_4bit) would", "--load_in_4bit\n", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_plan *plan;
        char *text;
        snug_args *args = plain_args(f, cases[i].words);
        assert_int_equal(snug_plan_create(args, &plan), SNUG_E_DOES_NOT_FIT);
        assert_int_equal(snug_plan_text(plan, &text), SNUG_OK);
        assert_contains(text, cases[i].row);
        if (cases[i].q) assert_contains(snug_error_message(f->ctx), cases[i].fits ? "--fit would add" : "no mix");
        if (cases[i].q) assert_contains(text, cases[i].proposed);
        free(text);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
}

/* ---- the budget ----------------------------------------------------------------------------------------------- */

static void set_budget(struct fixture *f, snug_args *args, int64_t bytes) {
    char words[64];
    snprintf(words, sizeof words, "memory_budget=%lld", (long long)bytes);
    set_args(f, args, words);
}

/* Memory outside the arena is measured, and may vary by a mebibyte between two measurements. */
static int64_t stable_total(struct fixture *f, snug_args *args) {
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT], total = -1, before;
    int looks = 0;
    set_budget(f, args, (int64_t)1 << 50);
    do {
        before = total;
        total = plan_total_of(f, args, bytes);
        assert_true(++looks < 20);
    } while (total != before);
    return total;
}

FIXTURE_TEST(test_budget_is_a_limit) {
    snug_plan *plan;
    if (SANITIZED) skip(); /* the allocator keeps freed memory, so that every measurement is larger */
    snug_args *args = training_args(f, "output_dir=@out num_train_epochs=1 validation_file=@dev.csv");
    const int64_t total = stable_total(f, args);
    set_budget(f, args, total - 1);
    assert_int_equal(snug_plan_create(args, &plan), SNUG_E_DOES_NOT_FIT);
    assert_non_null(plan); /* so that the run can report it */
    assert_int_equal(snug_plan_total(plan), total);
    snug_plan_destroy(plan);
    assert_int_equal(snug_train(args, NULL, NULL), SNUG_E_DOES_NOT_FIT);
    /* The process's own memory may have grown since, by whole MiB. */
    const char *more = strstr(snug_error_message(f->ctx), " MiB (");
    assert_non_null(more);
    assert_int_equal(strtoll(more + 6, NULL, 10) % (1 << 20), 1);
    assert_contains(more, "bytes) more than --memory_budget");
    assert_contains(snug_error_message(f->ctx), "it is short at ");
    assert_false(exists(path_of(f, "out")));
    int64_t budget = total;
    for (int tries = 0; tries < 3; tries++) {
        set_budget(f, args, budget);
        const snug_status status = snug_train(args, NULL, NULL);
        if (status == SNUG_OK) break;
        const char *after = strstr(snug_error_message(f->ctx), " MiB (");
        const int64_t excess = after ? strtoll(after + 6, NULL, 10) : 0;
        if (status != SNUG_E_DOES_NOT_FIT || excess <= 0 || excess % (1 << 20) != 0)
            fail_msg("%s", snug_error_message(f->ctx));
        budget += excess;
    }
    assert_true(exists(path_of(f, "out/model.safetensors")));
    /* The message names the class with which the running total passes the limit. */
    set_budget(f, args, total / 2);
    assert_int_equal(snug_train(args, NULL, NULL), SNUG_E_DOES_NOT_FIT);
    set_budget(f, args, 1);
    assert_int_equal(snug_train(args, NULL, NULL), SNUG_E_DOES_NOT_FIT);
    assert_contains(snug_error_message(f->ctx), "it is short at context"); /* the first class */
    snug_args_destroy(args);
}

/* ---- against the system --------------------------------------------------------------------------------------- */

/* 29 M parameters, lengths that vary from batch to batch, with evaluation and saving. */
FIXTURE_TEST(test_peak_is_the_predicted_total) {
    if (SANITIZED) skip(); /* its shadow memory is counted as the process's */
    write_medium(f);
    for (size_t i = 0; i < 2; i++) {
        const char *const more[] = {"--bf16",
                                    i ? "True" : "False",
                                    "--per_device_train_batch_size",
                                    "8",
                                    "--max_steps",
                                    "3",
                                    "--dataloader_num_workers",
                                    "2",
                                    NULL};
        const struct trained t = train_medium(f, more);
        assert_true(llabs(t.measured - t.peak) < 1 << 20);
        assert_true(llabs(t.peak - t.planned) * 50 <= t.planned);
    }
}

TEST_MAIN(NULL, NULL)
