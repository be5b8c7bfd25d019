/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for a GPU that is not installed: --gpu, and, where the CUDA plug-in works (in
   the emulator, too), the same bytes as it plans itself. */
#include "backend/gpu_models.h"
#include "planned.h"
#include "train/job.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define GPU_RATES SNUG_SOURCE_DIR "/tests/golden/rates_gpu.json"
#define CPU_RATES SNUG_SOURCE_DIR "/tests/golden/rates.json"

/* ---- plans ------------------------------------------------------------------------------------------------------ */

static json_t *json_of(const snug_plan *plan) {
    char *text;
    assert_int_equal(snug_plan_json(plan, &text), SNUG_OK);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static double number(const json_t *json, const char *object, const char *key) {
    const json_t *value = json_object_get(json_object_get(json, object), key);
    if (!json_is_number(value)) fail_msg("%s.%s is no number", object, key);
    return json_number_value(value);
}

FIXTURE_TEST(test_plan_of_a_known_gpu) {
    snug_plan *plan = plan_of(f, BERT "gpu=h200 bf16=true per_device_train_batch_size=16 num_train_epochs=2", SNUG_OK);
    json_t *json = json_of(plan);
    const double step = number(json, "run", "seconds_per_step");
    assert_true(step > 1e-3 && step < 1);
    assert_int_equal((int)number(json, "run", "steps"), 32);
    assert_float_equal(number(json, "run", "samples_per_step"), 16, 0);
    assert_float_equal(number(json, "run", "seconds"), 32 * step, 1e-9);
    assert_float_equal(number(json, "run", "samples_per_second"), 16 / step, 1e-6);
    assert_string_equal(json_string_value(json_object_get(json, "device")), "NVIDIA H200");
    /* Most weight gradients of a layer are computed beside the input's, and the graph takes memory for each. */
    const double captured = number(json, "bytes", "context") - SNUG_GPU_OPENED_BYTES - SNUG_GPU_GROWTH_BYTES;
    assert_in_range(captured, 3 << 20, 7 << 20);
    assert_true(json_is_true(json_object_get(json_object_get(json, "rates"), "scaled")));
    json_decref(json);
    assert_says(plan, "(nothing else on it): it fits");
    assert_says(plan, " s there, ");
    assert_says(plan, "\n(estimated, not measured there: rates measured on NVIDIA H200, scaled");
    const double fast = plan->methods->work.seconds;
    const int64_t total = snug_plan_total(plan);
    snug_plan_destroy(plan);
    /* The same bytes on a slower GPU. */
    plan = plan_of(f, BERT "gpu=L4 device=cuda bf16=true per_device_train_batch_size=16", SNUG_OK);
    assert_int_equal(snug_plan_total(plan), total);
    assert_true(plan->methods->work.seconds > 5 * fast);
    snug_plan_destroy(plan);
    /* Without data, the steps are those of the arguments. */
    plan = plan_of(f, "gpu=L4 config_name=@model max_steps=7", SNUG_OK);
    assert_says(plan, "; the run's 7 steps about ");
    snug_plan_destroy(plan);
    plan = plan_of(f, "gpu=L4 config_name=@model", SNUG_OK);
    json = json_of(plan);
    assert_true(json_is_null(json_object_get(json_object_get(json, "run"), "steps")));
    assert_true(json_is_null(json_object_get(json_object_get(json, "run"), "seconds")));
    assert_says(plan, " samples/s\n");
    json_decref(json);
    snug_plan_destroy(plan);
}

/* What the driver allocates besides the arena, measured on an H200: hardly more for more operations, but for those that
   run beside others in captured phases. */
TEST_IN(test_context, void *fixture, set_up, tear_down) {
    static const struct {
        const char *words;
        int measured; /* MiB */
    } cases[] = {
        {"bf16=true per_device_train_batch_size=32", 543},
        {"bf16=true per_device_train_batch_size=32 gradient_checkpointing=true", 544},
        {"per_device_train_batch_size=4 dtype=bfloat16", 534}, /* no matmuls beside others */
        {"bf16=true per_device_train_batch_size=32 gradient_accumulation_steps=4", 561},
        {"bf16=true per_device_train_batch_size=32 gradient_accumulation_steps=4 offload=optimizer", 568},
        {"bf16=true per_device_train_batch_size=32 gradient_checkpointing=true offload=optimizer,gradients,weights",
         568},
        {"bf16=true per_device_train_batch_size=32 offload=activations", 564},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        snprintf(words, sizeof words,
                 "gpu=H200 config_name=bert-large-uncased train_file=dummy:1280x512 max_seq_length=512 %s",
                 cases[i].words);
        snug_plan *plan = plan_of(fixture, words, SNUG_OK);
        assert_float_equal((double)plan->bytes[SNUG_MEMORY_CONTEXT] / 0x1p20, cases[i].measured, 9);
        snug_plan_destroy(plan);
    }
}

/* What is not measured in BERTs, such as gated linear units, is estimated as an activation: a step of 32 x 512 took
   35.5 ms on an H100. */
TEST_IN(test_plan_of_modernbert, void *fixture, set_up, tear_down) {
    snug_plan *plan = plan_of(fixture,
                              "gpu=H100 config_name=ModernBERT-base bf16=true per_device_train_batch_size=32 "
                              "max_seq_length=512",
                              SNUG_OK);
    assert_float_equal(plan->methods->work.seconds, 35.5e-3, 0.3 * 35.5e-3);
    snug_plan_destroy(plan);
}

/* With offloaded gradients, one batch may need less than its micro-batches, which keep the sums of their gradients. And
   where activations are small, recomputing attention alone needs less than recomputing whole layers. */
FIXTURE_TEST(test_fit_near_the_smallest_budget) {
    static const int budgets[] = {901, 905, 911};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        char words[256];
        if (!is_long() && (i == 1) == SANITIZED) continue; /* a search takes a second */
        snprintf(words, sizeof words,
                 "gpu=RTX_4060 config_name=bert-base-uncased train_file=dummy:64x32 fit=true memory_budget=%dMiB",
                 budgets[i]);
        snug_plan *plan = plan_of(f, words, SNUG_OK);
        assert_says(plan, "; the fastest of the mixes that fit ");
        assert_true(snug_plan_total(plan) <= (int64_t)budgets[i] << 20);
        snug_plan_destroy(plan);
    }
}

/* A rank of eight needs the less the larger the stage, and has a buffer for what the others send. */
FIXTURE_TEST(test_plan_of_ranks) {
    int64_t before = INT64_MAX;
    for (int stage = 0; stage <= 3; stage++) {
        char words[256];
        int64_t sum = 0;
        snprintf(words, sizeof words, BERT "gpu=H200 bf16=true num_processes=8 zero_stage=%d", stage);
        snug_plan *plan = plan_of(f, words, SNUG_OK);
        json_t *json = json_of(plan), *bytes = json_object_get(json, "bytes"), *ranks = json_object_get(json, "ranks");
        assert_true(json_integer_value(json_object_get(ranks, "sent_bytes")) > 0);
        assert_true(json_integer_value(json_object_get(bytes, "batch")) > 30 << 20);
        for (int i = 0; i < SNUG_MEMORY_CONTEXT; i++)
            sum += json_integer_value(json_object_get(bytes, snug_memory_class_name((snug_memory_class)i)));
        assert_true(sum > 0 && sum < before);
        before = sum;
        json_decref(json);
        snug_plan_destroy(plan);
    }
    snug_plan *small = plan_of(f, SMALL "gpu=H200 num_processes=8", SNUG_OK);
    json_t *json = json_of(small);
    assert_true(number(json, "bytes", "batch") < 1 << 20);
    json_decref(json);
    snug_plan_destroy(small);
}

static json_t *ranks_of(struct fixture *f, const char *words) {
    snug_plan *plan = plan_of(f, words, SNUG_OK);
    json_t *json = json_of(plan), *ranks = json_incref(json_object_get(json, "ranks"));
    const double seconds = number(json, "run", "seconds_per_step"), waited = number(json, "ranks", "waited_seconds");
    assert_true(waited > 0 && waited <= number(json, "ranks", "communication_seconds") && waited < seconds);
    json_decref(json);
    snug_plan_destroy(plan);
    return ranks;
}

static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

/* plan --gpus: seconds with what ranks wait for each other, on GPUs that are not installed. Links are those of the
   GPU's model, between hosts those of a network. */
FIXTURE_TEST(test_seconds_of_ranks) {
    double before = 0;
    for (int stage = 0; stage <= 3; stage++) {
        char words[256];
        snprintf(words, sizeof words, BERT "gpu=H100 bf16=true gpus=8 zero_stage=%d", stage);
        json_t *ranks = ranks_of(f, words);
        assert_int_equal(number_of(ranks, "count"), 8);
        assert_float_equal(number_of(ranks, "link_gb_per_second"), 202.5, 1e-6);
        json_decref(ranks);
    }
    static const char *const slower[] = {"gpu=H100 gpus=8", "gpu=H100 gpus=16", "gpu=H100 gpus=16 link_bandwidth=5.6"};
    for (size_t i = 0; i < sizeof slower / sizeof *slower; i++) {
        char words[256];
        snprintf(words, sizeof words, BERT "bf16=true %s", slower[i]);
        json_t *ranks = ranks_of(f, words);
        assert_true(number_of(ranks, "waited_seconds") > before);
        before = number_of(ranks, "waited_seconds");
        json_decref(ranks);
    }
    json_t *ranks = ranks_of(f, BERT "gpu=rtx4090 num_processes=2"); /* through PCI Express */
    assert_float_equal(number_of(ranks, "link_gb_per_second"), 25.6, 1e-6);
    json_decref(ranks);
    snug_plan *plan = plan_of(f, BERT "gpu=H100 gpus=8", SNUG_OK);
    assert_says(plan, "\nof which it waits ");
    assert_says(plan, "(202.5 GB/s from a rank to the others: 45 % of NVLink's, as on H100)");
    assert_says(plan, "  --zero_stage 3"); /* the price of each stage */
    snug_plan_destroy(plan);
    plan = plan_of(f, SMALL "gpus=2 gpu=" GPU_RATES, SNUG_OK); /* a GPU without a model */
    assert_says(plan, "without communication: --link_bandwidth");
    json_t *json = json_of(plan);
    assert_true(json_is_null(json_object_get(json_object_get(json, "ranks"), "waited_seconds")));
    json_decref(json);
    snug_plan_destroy(plan);
}

/* From how many ranks on it fits: exactly this number, and in stage 0 none. */
FIXTURE_TEST(test_ranks_that_fit) {
    char words[256];
    const char *const run = BERT "gpu=H100 memory_budget=2300MiB per_device_train_batch_size=4 ";
    snprintf(words, sizeof words, "%s gpus=8 zero_stage=3", run);
    snug_plan *plan = plan_of(f, words, SNUG_OK);
    assert_says(plan, "no number of ranks on with stage 0, ");
    json_t *json = json_of(plan), *fits = json_object_get(json_object_get(json, "ranks"), "fits_from_by_zero_stage");
    assert_int_equal(json_array_size(fits), 4);
    assert_true(json_is_null(json_array_get(fits, 0)));
    for (int stage = 1; stage <= 3; stage++) {
        const int least = (int)json_integer_value(json_array_get(fits, (size_t)stage));
        assert_true(least > 1 && (stage == 1 || least <= json_integer_value(json_array_get(fits, (size_t)stage - 1))));
        snprintf(words, sizeof words, "%s gpus=%d zero_stage=%d", run, least, stage);
        snug_plan_destroy(plan_of(f, words, SNUG_OK));
        snprintf(words, sizeof words, "%s gpus=%d zero_stage=%d", run, least - 1, stage);
        snug_plan_destroy(plan_of(f, words, SNUG_E_DOES_NOT_FIT));
    }
    json_decref(json);
    snug_plan_destroy(plan);
    plan = plan_of(f, BERT "gpu=H100 gpus=8", SNUG_OK);
    assert_says(plan, "fits from 1 rank on\n");
    snug_plan_destroy(plan);
    plan = plan_of(f, BERT "gpu=H100 gpus=8 memory_budget=600MiB optim=adafactor", SNUG_E_DOES_NOT_FIT);
    assert_says(plan, "no number of ranks on with stage 3"); /* which does not support it */
    snug_plan_destroy(plan);
}

/* --fit chooses the stage, unless it is given. */
FIXTURE_TEST(test_fit_chooses_the_stage) {
    const char *const run = BERT "gpu=H100 gpus=8 memory_budget=2000MiB per_device_train_batch_size=4 ";
    char words[256];
    snprintf(words, sizeof words, "%s", run);
    snug_plan *plan = plan_of(f, words, SNUG_E_DOES_NOT_FIT);
    assert_contains(snug_error_message(f->ctx), "--fit would add --zero_stage ");
    snug_plan_destroy(plan);
    snprintf(words, sizeof words, "%s fit=true", run);
    plan = plan_of(f, words, SNUG_OK);
    assert_says(plan, "\n--fit: --zero_stage ");
    assert_true(plan->total <= (int64_t)2000 << 20 && plan->fit.applied && plan->zero_stage > 0);
    snug_plan_destroy(plan);
    snprintf(words, sizeof words, "%s fit=true zero_stage=0", run);
    snug_args *args = plain_args(f, words);
    const snug_status status = snug_plan_create(args, &plan);
    assert_true(status == SNUG_OK || status == SNUG_E_DOES_NOT_FIT);
    assert_int_equal(plan->zero_stage, 0);
    assert_null(strstr(plan->fit_text, "--zero_stage"));
    snug_plan_destroy(plan);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_fit_for_a_known_gpu) {
    static const char *const large = LARGE "gpu=rtx3060 ";
    char words[512];
    write_large(f);
    snug_plan *plan = plan_of(f, large, SNUG_E_DOES_NOT_FIT);
    assert_says(plan, "): it does not fit");
    assert_contains(snug_error_message(f->ctx), "bytes) more than the available 11878.4 MiB; it is short at ");
    assert_contains(snug_error_message(f->ctx), "; --fit would add --");
    assert_contains(snug_error_message(f->ctx), " (--memory_budget sets another limit); add --fit");
    snug_plan_destroy(plan);
    snprintf(words, sizeof words, "%s fit=true", large);
    plan = plan_of(f, words, SNUG_OK);
    assert_says(plan, "): it fits");
    assert_says(plan, "\n--fit: --");
    assert_true(plan->total <= plan->available && plan->fit.applied);
    snug_plan_destroy(plan);
    snprintf(words, sizeof words, "%s fit=true memory_budget=2GiB", large);
    plan = plan_of(f, words, SNUG_OK);
    assert_true(plan->total <= (int64_t)2 << 30);
    snug_plan_destroy(plan);
    snprintf(words, sizeof words, "%s fit=true memory_budget=560MiB", large);
    plan = plan_of(f, words, SNUG_E_DOES_NOT_FIT);
    assert_contains(snug_error_message(f->ctx), "MiB of NVIDIA GeForce RTX 3060, ");
    /* The least budget that the message names is one that fits. */
    const char *least = strstr(snug_error_message(f->ctx), "; add --fit --memory_budget ");
    assert_non_null(least);
    char budget[32];
    snug_plan *other;
    snprintf(budget, sizeof budget, "%.30s", strrchr(least, ' ') + 1);
    snprintf(words, sizeof words, "%s fit=true memory_budget=%s", large, budget);
    other = plan_of(f, words, SNUG_OK);
    assert_true(other->total <= (strtoll(budget, NULL, 10) << 20));
    snug_plan_destroy(other);
    snug_plan_destroy(plan);
}

/* A file's GPU has the file's rates, and the table's memory if it is there. */
FIXTURE_TEST(test_file_of_rates) {
    char words[1024];
    snug_plan *plan = plan_of(f, SMALL "bf16=true gpu=" GPU_RATES, SNUG_OK);
    json_t *json = json_of(plan);
    assert_true(json_is_false(json_object_get(json_object_get(json, "rates"), "scaled")));
    assert_int_equal(json_integer_value(json_object_get(json, "available_bytes")), -1);
    json_decref(json);
    assert_says(plan, "\nsnug does not know how much memory a GPU of which the tests know the seconds has\n");
    assert_says(plan, "\n(by rates measured on a GPU of which the tests know the seconds)\n");
    snug_plan_destroy(plan);
    plan = plan_of(f, SMALL "per_device_train_batch_size=1024 memory_budget=600MiB fit=true gpu=" GPU_RATES, SNUG_OK);
    assert_true(plan->total <= (int64_t)600 << 20 && plan->fit.applied);
    snug_plan_destroy(plan);
    json_t *rates = read_json(f, GPU_RATES);
    static const char *const names[][2] = {{"NVIDIA L4", "NVIDIA L4 "},
                                           {"", "snug does not know how much memory GPU has"}};
    for (int i = 0; i < 2; i++) {
        json_object_set_new(rates, "device", json_string(names[i][0]));
        assert_int_equal(json_dump_file(rates, path_of(f, "other.json"), 0), 0);
        snprintf(words, sizeof words, SMALL "gpu=%s", path_of(f, "other.json"));
        plan = plan_of(f, words, SNUG_OK);
        assert_says(plan, names[i][1]);
        snug_plan_destroy(plan);
    }
    /* Operations that take no time. */
    json_t *items = json_object_get(rates, "seconds");
    for (size_t i = 0; i < json_array_size(items); i++)
        for (int k = 0; k < 3; k++)
            json_object_set_new(json_array_get(items, i), ((const char *[]){"call", "flop", "byte"})[k], json_real(0));
    assert_int_equal(json_dump_file(rates, path_of(f, "other.json"), 0), 0);
    plan = plan_of(f, words, SNUG_OK);
    json = json_of(plan);
    assert_true(json_is_null(json_object_get(json_object_get(json, "run"), "samples_per_second")));
    json_decref(json);
    snug_plan_destroy(plan);
    json_decref(rates);
}

/* A rate that was measured in operations that are too small says nothing of larger ones: another variant's is taken. */
FIXTURE_TEST(test_rate_that_does_not_grow) {
    json_t *rates = read_json(f, GPU_RATES);
    const json_t *items = json_object_get(rates, "seconds");
    double seconds[2];
    write_model(f, "plain", 0, 64, 2, VOCABULARY);
    for (int changed = 0; changed < 2; changed++) {
        for (size_t i = 0; changed && i < json_array_size(items); i++) {
            json_t *item = json_array_get(items, i);
            if (strcmp(json_string_value(json_object_get(item, "operation")), "residual_norm") != 0) continue;
            const bool dropout = json_is_true(json_object_get(item, "dropout"));
            json_object_set_new(item, "flop", json_real(0));
            json_object_set_new(item, "byte", json_real(dropout ? 1e-6 : 0));
        }
        char words[512];
        assert_int_equal(json_dump_file(rates, path_of(f, "changed.json"), 0), 0);
        snprintf(words, sizeof words, "config_name=@plain train_file=dummy:1024x64 max_seq_length=64 gpu=%s",
                 path_of(f, "changed.json"));
        snug_plan *plan = plan_of(f, words, SNUG_OK);
        seconds[changed] = plan->methods->work.seconds;
        snug_plan_destroy(plan);
    }
    assert_true(seconds[1] > 100 * seconds[0]);
    json_decref(rates);
}

FIXTURE_TEST(test_refusals) {
    static const struct {
        const char *words, *says;
        snug_status status;
    } cases[] = {
        {"gpu=RTX_4091", "--gpu RTX_4091: snug knows no GPU of this name, but NVIDIA GeForce RTX 4090, ", SNUG_E_USAGE},
        {"gpu=RTX.4091", "--gpu RTX.4091: snug knows no GPU of this name, but ", SNUG_E_USAGE},
        {"gpu=V100", "--gpu V100: Tesla V100-SXM2-16GB has compute capability 7.0, and snug needs 7.5 or later",
         SNUG_E_UNSUPPORTED},
        {"gpu=H200 use_cpu=true", "--gpu H200 and --use_cpu contradict each other", SNUG_E_USAGE},
        {"gpu=H200 device=cpu", "--gpu H200 and --device cpu contradict each other", SNUG_E_USAGE},
        {"gpu=H200 config_name=bert-base-uncased offload=optimizer,gradients,weights offload_update=1 optim=adafactor",
         "there is no weight that the host could update", SNUG_E_USAGE},
        {"gpu=H200 config_name=bert-base-uncased offload=optimizer,gradients,weights offload_update=1",
         "the rates of NVIDIA H200 lack those of updates on the host: ", SNUG_E_INPUT},
        {"gpu=H200 config_name=bert-base-uncased offload=optimizer offload_dir=/tmp",
         "the rates of NVIDIA H200 lack those of copies from and to the offload file: ", SNUG_E_INPUT},
        {"gpu=H200 gpus=all", "--gpus all: snug plan needs their number", SNUG_E_USAGE},
        {"gpu=H200 gpus=0", "--gpus 0: snug plan needs their number", SNUG_E_USAGE},
        {"gpu=H200 gpus=70000", "--gpus 70000: snug plan needs their number", SNUG_E_USAGE},
        {"gpu=H200 gpus=2 num_processes=4", "--gpus 2 and --num_processes 4 contradict each other", SNUG_E_USAGE},
        {"gpu=" CPU_RATES, "rates.json: these are rates of a CPU", SNUG_E_USAGE},
        {"gpu=/nowhere/rates", "/nowhere/rates", SNUG_E_IO},
        {"gpu=nothing.json", "nothing.json", SNUG_E_IO},
        {"fit=true gpu=" GPU_RATES,
         "--fit: snug does not know the memory of a GPU of which the tests know the seconds: give --memory_budget",
         SNUG_E_USAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        snprintf(words, sizeof words, SMALL "%s", cases[i].words);
        assert_null(plan_of(f, words, cases[i].status));
        assert_contains(snug_error_message(f->ctx), cases[i].says);
    }
    snug_args *args = training_args(f, "gpu=H200");
    snug_train_result result;
    snug_rates *rates;
    assert_int_equal(snug_args_set(args, "output_dir", path_of(f, "out")), SNUG_OK);
    assert_int_equal(train_args(f, args, NULL, &result), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--gpu H200: only snug plan accepts a GPU that is not installed");
    assert_int_equal(snug_rates_create(args, &rates), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--gpu H200: only snug plan accepts a GPU that is not installed");
    snug_doctor *doctor;
    assert_int_equal(snug_doctor_create(args, &doctor), SNUG_E_USAGE);
    snug_doctor_destroy(doctor);
    snug_args_destroy(args);
}

/* Models that the backend's kernels do not take are refused by the plan, with tensor and limit; at the limit there is a
   plan. device: "gpu=NAME", or "device=cuda" for the plug-in itself. */
static void check_sizes(struct fixture *f, const char *device, bool lacks_bf16) {
    static const struct {
        const char *type;
        int hidden, heads;
        const char *words, *says; /* says NULL: planned */
    } cases[] = {
        {"bert", 4096, 16, "", NULL},
        {"bert", 4096, 16, "bf16=true", NULL},
        {"bert", 9000, 60, "", NULL},
        {"electra", 4104, 27, "bf16=true", NULL},
        {"modernbert", 2052, 9, "task=ner", NULL},
        {"bert", 512, 2, "", NULL},
        {"bert", 514, 2, "",
         "layer.0.qkv (attention): its heads of 257 channels are wider than the CUDA backend supports"
         " (256): only the CPU backend runs it (--device cpu)"},
        {"bert", 2048, 4, "bf16=true", "layer.0.qkv (attention): its heads of 512 channels"},
        {"mpnet", 768, 2, "task=mlm", "layer.0.qkv (attention): its heads of 384 channels"},
        {"modernbert", 1040, 4, "", "layer.0.qkv (attention): its heads of 260 channels"},
        {"bert", 64, 2, "per_device_train_batch_size=65536 train_file=dummy:65536x4",
         "a batch of 65536 texts is larger than the CUDA backend supports (65535): make the batch size smaller"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512], config[512];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"%s\", \"vocab_size\": 60, \"hidden_size\": %d, \"num_hidden_layers\": 1,"
                 " \"num_attention_heads\": %d, \"intermediate_size\": 64, \"pad_token_id\": 1}",
                 cases[i].type, cases[i].hidden, cases[i].heads);
        write_text(f, "sized.json", config);
        snprintf(words, sizeof words, "config_name=@sized.json train_file=dummy:32x16 %s %s", cases[i].words, device);
        if (lacks_bf16) without_bf16(words);
        snug_plan_destroy(plan_of(f, words, cases[i].says ? SNUG_E_UNSUPPORTED : SNUG_OK));
        if (cases[i].says) assert_contains(snug_error_message(f->ctx), cases[i].says);
    }
}

TEST_IN(test_sizes, void *fixture, set_up, tear_down) {
    check_sizes(fixture, "gpu=H200", false);
    check_sizes(fixture, "gpu=H200 fit=true", false);
    check_sizes(fixture, "gpu=T4", true);
}

/* Updates on the host: their rates, the seconds of a step, and what the backing store has for them. */
FIXTURE_TEST(test_updates_on_the_host) {
    struct snug_rates rates = {.ctx = f->ctx};
    assert_int_equal(snug_rates_measure_host(&rates, 2, 2), SNUG_OK);
    assert_int_equal(rates.count, 12); /* six optimizers are elementwise; two types of weights */
    for (size_t i = 0; i < rates.count; i++)
        assert_true(rates.items[i].types & SNUG_ON_HOST && rates.items[i].byte > 0);
    snug_rates_free(&rates);

    static const char *const shares[] = {"0", "0.5", "1"};
    snug_plan *plans[3];
    for (int i = 0; i < 3; i++) {
        char words[256];
        snprintf(words, sizeof words,
                 BERT "bf16=true offload=optimizer,gradients,master_weights offload_update=%s "
                      "gpu=" GPU_RATES,
                 shares[i]);
        plans[i] = plan_of(f, words, SNUG_OK);
    }
    /* The 16-bit copies that the host writes. */
    assert_true(plans[2]->offloaded[SNUG_MEMORY_WEIGHTS] > plans[1]->offloaded[SNUG_MEMORY_WEIGHTS]);
    assert_true(plans[1]->offloaded[SNUG_MEMORY_WEIGHTS] > plans[0]->offloaded[SNUG_MEMORY_WEIGHTS]);
    for (int i = 1; i < 3; i++) {
        /* The clip factor: a page. */
        assert_int_equal(plans[i]->offloaded[SNUG_MEMORY_OPTIMIZER], plans[0]->offloaded[SNUG_MEMORY_OPTIMIZER] + 4096);
        assert_true(plans[i]->methods->work.seconds > 0);
    }
    /* Both at once are faster than the host alone, at the rates of the tests. */
    assert_true(plans[1]->methods->work.seconds < plans[2]->methods->work.seconds);
    for (int i = 0; i < 3; i++) snug_plan_destroy(plans[i]);
    /* 8-bit states: what is too small to be offloaded for the GPU's updates, the scales, is for the host's. */
    int64_t states[2];
    for (int i = 0; i < 2; i++) {
        char words[256];
        snprintf(words, sizeof words,
                 BERT "bf16=true optim=adamw_8bit offload=optimizer,gradients,weights offload_update=%d gpu=" GPU_RATES,
                 i);
        snug_plan *plan = plan_of(f, words, SNUG_OK);
        states[i] = plan->offloaded[SNUG_MEMORY_OPTIMIZER];
        snug_plan_destroy(plan);
    }
    /* Two scales for 256 values of the layers' matrices, on whole pages; and the pooler's, and the clip factor. */
    const double scales = 12.0 * 12 * 768 * 768 * 2 * 4 / 256;
    assert_float_equal((double)(states[1] - states[0]), 1.03 * scales, 0.03 * scales);
    /* Copies that are offloaded, too. */
    snug_plan_destroy(
        plan_of(f, BERT "bf16=true offload=optimizer,gradients,weights offload_update=1 gpu=" GPU_RATES, SNUG_OK));
}

/* Layers as wide as BERT-large's, but a search of few is quick. */
static void write_wide(const struct fixture *f) {
    write_text(
        f, "wide.json",
        "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], \"hidden_size\": 1024, "
        "\"num_hidden_layers\": 6, \"num_attention_heads\": 16, \"intermediate_size\": 4096, \"vocab_size\": 3000, "
        "\"max_position_embeddings\": 512, \"type_vocab_size\": 2}");
}

/* --fit lets the host update a share of the weights where its rates make that much faster. */
FIXTURE_TEST(test_fit_with_updates_on_the_host) {
    static const struct {
        const char *words;
        double byte; /* seconds of an update on the host */
        bool chosen;
    } cases[] = {
        {"memory_budget=1000MiB", 1e-11, true},
        {"memory_budget=850MiB", 1e-11, true}, /* instead of an update in backward */
        {"memory_budget=1000MiB optim=adamw_8bit", 2e-12, true},
        {"memory_budget=1000MiB", 1e-10, false},
        {"memory_budget=1000MiB offload_update=0", 1e-11, false},
        {"memory_budget=1000MiB optim=lion_32bit", 1e-11, false}, /* whose rates are unknown */
        {"memory_budget=5000MiB", 1e-11, false},                  /* nothing is offloaded */
    };
    json_t *rates = read_json(f, GPU_RATES);
    const json_t *items = json_object_get(rates, "seconds");
    write_wide(f);
    /* A search takes a second: a part has one case of each outcome. */
    for (size_t i = SANITIZED; i < sizeof cases / sizeof *cases; i += is_long() ? 1 : 4) {
        char words[1024];
        for (size_t k = 0; k < json_array_size(items); k++) {
            json_t *item = json_array_get(items, k);
            if (json_integer_value(json_object_get(item, "types")) == SNUG_ON_HOST)
                json_object_set_new(item, "byte", json_real(cases[i].byte));
        }
        assert_int_equal(json_dump_file(rates, path_of(f, "rates.json"), 0), 0);
        snprintf(words, sizeof words,
                 "config_name=@wide.json train_file=dummy:256x128 max_seq_length=128 bf16=true fit=true "
                 "per_device_train_batch_size=31 gradient_accumulation_steps=1 %s gpu=%s",
                 cases[i].words, path_of(f, "rates.json"));
        snug_plan *plan = plan_of(f, words, SNUG_OK);
        const struct snug_fit *fit = &plan->fit;
        if ((strstr(fit->chosen.flags, "--offload_update ") != NULL) != cases[i].chosen)
            fail_msg("%s: %s", cases[i].words, plan->fit_text);
        assert_true(fit->applied && plan->total <= fit->limit);
        snug_plan_destroy(plan);
    }
    json_decref(rates);
}

/* The search in a job with so much host memory for a backing store. */
static struct snug_fit search_within(struct fixture *f, const char *words, int64_t limit, int64_t backing) {
    struct snug_job job;
    struct snug_rates rates;
    struct snug_fit fit;
    snug_args *args = plain_args(f, words);
    const snug_status opened = snug_job_open(args, SNUG_COMMAND_PLAN, &job);
    assert_true(opened == SNUG_OK || opened == SNUG_E_DOES_NOT_FIT); /* the job is complete in both cases */
    assert_true(job.limits.backing_limit == INT64_MAX);              /* nothing is known of the GPU's host */
    assert_int_equal(snug_device_rates(&job.limits.device, &rates), SNUG_OK);
    job.limits.backing_limit = backing;
    assert_int_equal(snug_fit_search(&job.setup, &job.limits, &job.plan, &rates, limit, &fit), SNUG_OK);
    snug_rates_free(&rates);
    snug_job_close(&job);
    snug_args_destroy(args);
    return fit;
}

/* A mix must leave what the host lacks memory for on the GPU, or round, or, if there is none, offload as little as
   possible. */
FIXTURE_TEST(test_fit_with_little_host_memory) {
    static const char *const words = "config_name=@wide.json train_file=dummy:64x64 max_seq_length=64 bf16=true "
                                     "gpu=H200 per_device_train_batch_size=1 ";
    const int64_t limit = (int64_t)850 << 20;
    write_wide(f);
    const struct snug_fit any = search_within(f, words, limit, INT64_MAX);
    assert_true(any.fits && !any.chosen.approximate && any.chosen.backing > 0);
    const int64_t most = any.chosen.backing;
    if (is_long()) { /* each search takes seconds */
        const struct snug_fit exact = search_within(f, words, limit, most - 1);
        assert_true(exact.fits && !exact.chosen.approximate && exact.chosen.backing < most);
    }
    const struct snug_fit rounds = search_within(f, words, limit, most / 3);
    assert_true(rounds.fits && rounds.chosen.approximate && rounds.chosen.backing <= most / 3);
    const struct snug_fit none = search_within(f, words, limit, 0);
    assert_true(none.fits && none.chosen.backing > 0 && none.chosen.backing < most / 10);
}

/* 8.2e9 parameters: all that can be offloaded is more than 128 GiB of host memory; a GPU of 80 GiB needs half of it. */
FIXTURE_TEST(test_fit_of_a_very_large_model) {
    static const char *const words = "config_name=@huge.json train_file=dummy:1280x512 max_seq_length=512 bf16=true "
                                     "per_device_train_batch_size=8 gradient_accumulation_steps=1 gpu=H200 ";
    if (!is_long())
        skip(); /* it takes many seconds, of what test_fit_with_little_host_memory does with a small model */
    write_text(
        f, "huge.json",
        "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], \"hidden_size\": 4096, "
        "\"num_hidden_layers\": 40, \"num_attention_heads\": 32, \"intermediate_size\": 16384, \"vocab_size\": "
        "30522, \"max_position_embeddings\": 512, \"type_vocab_size\": 2}");
    char more[512];
    snprintf(more, sizeof more, "%s offload=optimizer,gradients,weights gradient_checkpointing=true", words);
    snug_plan *plan = plan_of(f, more, SNUG_OK);
    assert_true(plan->offloaded_total > (int64_t)128 << 30 && plan->total < (int64_t)8 << 30);
    snug_plan_destroy(plan);
    const int64_t host = (int64_t)128 << 30;
    struct snug_fit fit = search_within(f, words, (int64_t)80 << 30, host);
    assert_true(fit.fits && !fit.chosen.approximate && fit.chosen.backing < host);
}

/* Decoders whose files are bf16 are computed in bf16 on a GPU that has it, unless the arguments say otherwise. */
FIXTURE_TEST(test_compute_type) {
    static const struct {
        const char *model, *key, *words, *gpu;
        enum snug_dtype compute;
    } cases[] = {
        {"llama", "dtype", "", "H100", SNUG_BF16},
        {"gemma", "torch_dtype", "", "RTX 4090", SNUG_BF16},
        {"qwen", "dtype", " task=classification", "H100", SNUG_BF16},
        {"llama", "dtype", " bf16=False", "H100", SNUG_F32},
        {"llama", "dtype", " bf16=no", "H100", SNUG_F32},
        {"llama", "dtype", " fp16=True", "H100", SNUG_F16},
        {"llama", "dtype", " tf32=True", "H100", SNUG_F32},
        {"llama", "dtype", " fp16_full_eval=True", "H100", SNUG_F32},
        {"llama", "dtype", " bf16_full_eval=True", "H100", SNUG_BF16}, /* which says nothing of a training */
        {"llama", "dtype", "", "T4", SNUG_F32},
        {"llama", "dtype", "", NULL, SNUG_F32},
        {"llama", NULL, "", "H100", SNUG_F32},
        {"model", "dtype", "", "H100", SNUG_F32},
        {"modern", "torch_dtype", "", "H100", SNUG_F32},
    };
    write_other_families(f, 64);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[64], words[256];
        snprintf(config, sizeof config, "%s/config.json", cases[i].model);
        json_t *json = read_json(f, path_of(f, "%s", config));
        json_object_del(json, "dtype");
        json_object_del(json, "torch_dtype");
        if (cases[i].key) json_object_set_new(json, cases[i].key, json_string("bfloat16"));
        char *text = json_dumps(json, 0);
        write_text(f, config, text);
        free(text);
        json_decref(json);
        const bool decoder = strcmp(cases[i].model, "model") != 0 && strcmp(cases[i].model, "modern") != 0;
        snprintf(words, sizeof words, "config_name=@%s task=%s%s", cases[i].model, decoder ? "clm" : "classification",
                 cases[i].words);
        snug_args *args = plain_args(f, words);
        assert_int_equal(snug_args_set(args, cases[i].gpu ? "gpu" : "device", cases[i].gpu ? cases[i].gpu : "cpu"),
                         SNUG_OK);
        snug_plan *plan;
        *f->log = '\0';
        if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        if (plan->compute != cases[i].compute) fail_msg("%s on %s: %d", words, cases[i].gpu, (int)plan->compute);
        const bool by_default = cases[i].compute == SNUG_BF16;
        assert_true(by_default ==
                    (strstr(f->log, "computing in bf16, the type of the model's files: --no_bf16") != NULL));
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
}

/* Whatever would use the GPU fails, and says why. */
FIXTURE_TEST(test_nothing_runs) {
    const struct snug_backend *backend = snug_backend_cuda_planned(90);
    struct snug_run run = {.ctx = f->ctx};
    const struct snug_op op = {.kind = SNUG_OP_LINEAR};
    struct snug_block block;
    bool done = false;
    void *nothing;
    assert_true(backend->plans_only && snug_backend_is_device(backend));
    assert_int_equal(backend->allocate(f->ctx, 16, SNUG_BLOCK_ARENA, &block), SNUG_E_INTERNAL);
    assert_null(block.base);
    assert_int_equal(backend->load(&run), SNUG_E_INTERNAL);
    assert_int_equal(backend->begin(&run, SNUG_PHASE_FORWARD, &done), SNUG_E_INTERNAL);
    assert_int_equal(backend->end(&run, SNUG_PHASE_FORWARD), SNUG_E_INTERNAL);
    assert_int_equal(backend->ops[op.kind](&run, &op), SNUG_E_INTERNAL);
    assert_contains(snug_error_message(f->ctx), "a plan for a GPU that is not installed cannot be run");
    assert_int_equal(backend->library(NULL, 1), 0);
    assert_int_equal(backend->open(f->ctx, NULL, 1, &nothing), SNUG_OK);
    assert_null(nothing);
    backend->close(nothing);
}

/* ---- the same bytes as the plug-in's plan ------------------------------------------------------------------------ */

static bool needs_plugin;

FIXTURE_TEST(test_bytes_are_those_of_the_plugin) {
    static const char *const models[] = {
        "bert-large-uncased", "mpnet-base", "ModernBERT-base", "@roberta", "@modern", "@mpnet", "@model"};
    static const char *const mixes[] = {
        "",
        "bf16=true",
        "bf16=true gradient_accumulation_steps=3 offload=optimizer offload_ratio=0.5",
        "bf16=true task=mlm train_file=dummy:64x32",
        "bf16=true task=mlm per_device_train_batch_size=64", /* in chunks */
        "fp16=true optim=adamw_8bit task=token_classification",
        "tf32=true optim=adafactor",
        "optim=adafactor offload=optimizer,gradients",
        "dtype=bfloat16 optim=adamw_8bit",
        "bf16=true dtype=bfloat16 optim=lion_32bit per_device_train_batch_size=1",
        "bf16=true update_in_backward=true optim=adafactor max_grad_norm=0",
        "bf16=true recompute=layer offload=optimizer,weights,gradients,activations freeze=embeddings",
        "bf16=true validation_file=dummy:64x64 per_device_eval_batch_size=64 max_seq_length=64",
    };
    const struct snug_backend *cuda;
    if (snug_backend_cuda(f->ctx, &cuda) != SNUG_OK) {
        if (needs_plugin) fail_msg("%s", snug_error_message(f->ctx));
        print_message("skipped: %s\n", snug_error_message(f->ctx));
        skip();
    }
    setenv("SNUG_RATES", GPU_RATES, 1);
    write_other_families(f, 64);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
            static const char *const devices[] = {"device=cuda", "gpu=" GPU_RATES};
            snug_plan *plans[2];
            for (int k = 0; k < 2; k++) {
                char words[512];
                snprintf(words, sizeof words, "config_name=%s max_seq_length=32 per_device_train_batch_size=16 %s %s",
                         models[m], mixes[i], devices[k]);
                if (cuda->lacks_bf16) without_bf16(words);
                plans[k] = plan_of(f, words, SNUG_OK);
            }
            for (int c = 0; c < SNUG_MEMORY_CONTEXT; c++) /* context and host are measured */
                if (plans[0]->bytes[c] != plans[1]->bytes[c])
                    fail_msg("%s %s: %s is %lld here, and %lld in a plan alone", models[m], mixes[i],
                             snug_memory_class_name((snug_memory_class)c), (long long)plans[0]->bytes[c],
                             (long long)plans[1]->bytes[c]);
            assert_memory_equal(plans[0]->offloaded, plans[1]->offloaded, sizeof plans[0]->offloaded);
            assert_true(plans[0]->methods->work.seconds == plans[1]->methods->work.seconds);
            snug_plan_destroy(plans[0]);
            snug_plan_destroy(plans[1]);
        }
}

FIXTURE_TEST(test_sizes_of_the_plugin) {
    const struct snug_backend *cuda;
    if (snug_backend_cuda(f->ctx, &cuda) != SNUG_OK) {
        if (needs_plugin) fail_msg("%s", snug_error_message(f->ctx));
        skip();
    }
    setenv("SNUG_RATES", GPU_RATES, 1);
    check_sizes(f, "device=cuda", cuda->lacks_bf16);
}

/* test_planned_gpu [plugin]: all tests, or what needs the plug-in alone, which then must work. */
int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "plugin") != 0) return 2;
    needs_plugin = argc > 1;
    if (needs_plugin) cmocka_set_test_filter("*_the_plugin");
    return run_registered(NULL, NULL);
}
