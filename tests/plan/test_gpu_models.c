/* SPDX-License-Identifier: Apache-2.0 */
/* The table of GPUs: names, figures, scaled rates; plans for GPUs before compute capability 8.0, which lack types. */
#include "backend/gpu_models.h"

#include "measure/gpu_rates.h"
#include "planned.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* ---- the table ------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_names) {
    static const char *const same[][2] = {
        {"RTX 4090", "NVIDIA GeForce RTX 4090"},
        {"rtx4090", "NVIDIA GeForce RTX 4090"},
        {"geforce RTX-4090", "NVIDIA GeForce RTX 4090"},
        {"NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"},
        {"nvidia h200", "NVIDIA H200"},
        {"H100", "NVIDIA H100 80GB HBM3"},
        {"h100 sxm", "NVIDIA H100 80GB HBM3"},
        {"H100 PCIe", "NVIDIA H100 PCIe"},
        {"A100 40GB", "NVIDIA A100-SXM4-40GB"},
        {"A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"},
        {"A100 80GB PCIe", "NVIDIA A100 80GB PCIe"},
        {"A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"},
        {"RTX 4060 Laptop", "NVIDIA GeForce RTX 4060 Laptop GPU"},
        {"NVIDIA GeForce RTX 3050 Ti Laptop GPU", "NVIDIA GeForce RTX 3050 Ti Laptop GPU"},
        {"RTX 2080 Super", "NVIDIA GeForce RTX 2080 SUPER"},
        {"Titan RTX", "NVIDIA TITAN RTX"},
        {"quadro rtx 8000", "Quadro RTX 8000"},
        {"NVIDIA T4", "Tesla T4"},
        {"A10G", "NVIDIA A10G"},
        {"RTX 3060 12GB", "NVIDIA GeForce RTX 3060"},
        {"RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"},
        {"T4", "Tesla T4"},
        {"v100", "Tesla V100-SXM2-16GB"},
    };
    static const char *const unknown[][2] = {
        {"RTX 4091", "NVIDIA GeForce RTX 4090, "},
        {"A100", "NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-80GB, NVIDIA A100-PCIE-40GB, NVIDIA A100 80GB PCIe"},
        {"4060 Ti", "NVIDIA GeForce RTX 4060 Ti 8GB, NVIDIA GeForce RTX 4060 Ti 16GB"},
        {"2080", "NVIDIA GeForce RTX 2080, NVIDIA GeForce RTX 2080 SUPER, NVIDIA GeForce RTX 2080 Ti"},
        {"RTX", "NVIDIA GeForce RTX 2060, "}, /* part of many: the first ones */
        {"MI300X", "RTX 2060, "},             /* none is similar: all, but laptops */
        {"", "RTX 2060, "},
    };
    char text[1536], small[5];
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const struct snug_gpu_model *model = snug_gpu_model_find(same[i][0]);
        if (!model || strcmp(model->name, same[i][1]) != 0)
            fail_msg("%s is %s", same[i][0], model ? model->name : "unknown");
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_null(snug_gpu_model_find(unknown[i][0]));
        snug_gpu_model_list(unknown[i][0], text, sizeof text);
        if (strncmp(text, unknown[i][1], strlen(unknown[i][1])) != 0) fail_msg("%s: %s", unknown[i][0], text);
        assert_null(strstr(text, "V100")); /* only those that snug supports */
    }
    snug_gpu_model_list("MI300X", text, sizeof text);
    assert_contains(text, ", T4, ");
    assert_contains(text, ", B200"); /* the last one */
    assert_null(strstr(text, "Laptop"));
    snug_gpu_model_list("MI300X", small, sizeof small);
    assert_string_equal(small, "RTX ");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_null(snug_gpu_model_find(text)); /* longer than any name */
}

/* Each row is one that the planner can use, and no other row has its names. */
FIXTURE_TEST(test_rows) {
    char list[1536], *rest = list, *name;
    int count = 0, before_ampere = 0, tried = 0;
    snug_gpu_model_list("MI300X", list, sizeof list);
    while ((name = strsep(&rest, ","))) {
        name += strspn(name, " ");
        const struct snug_gpu_model *model = snug_gpu_model_find(name);
        if (!model || !strstr(model->name, name)) fail_msg("%s is %s", name, model ? model->name : "unknown");
        assert_true(model->memory > 3 && model->memory < 200 && model->bandwidth > 100 && model->link >= 16);
        assert_true(model->fp32 > 4 && model->half >= 1.98 * model->fp32);
        assert_int_equal(model->tf32 == 0, model->capability < 80);
        if (model->tf32 > 0) assert_true(model->tf32 >= model->fp32 && model->tf32 <= model->half);
        count++;
        before_ampere += model->capability < 80;
        tried += model->tried;
    }
    assert_true(count > 70 && before_ampere > 12);
    assert_int_equal(tried, 2); /* H100 and H200 */
}

/* ---- rates ------------------------------------------------------------------------------------------------------ */

static const struct snug_rate *rate_of(const struct snug_rates *rates, enum snug_op_kind kind, int32_t types) {
    for (size_t i = 0; i < rates->count; i++)
        if (rates->items[i].kind == kind && rates->items[i].types == types) return &rates->items[i];
    fail_msg("no rate of %s", snug_op_name(kind));
    return NULL;
}

/* A GPU without TF32 has none of its rates, and computes fp32 attention without tensor cores. */
FIXTURE_TEST(test_rates_without_tf32) {
    const struct snug_gpu_model *h200 = snug_gpu_model_find("H200");
    for (int i = 0; i < 3; i++) {
        const struct snug_gpu_model *older =
            snug_gpu_model_find((const char *[]){"T4", "RTX 2080 Ti", "Quadro RTX 4000"}[i]);
        struct snug_rates here, there;
        assert_int_equal(snug_rates_scale(f->ctx, h200, &here), SNUG_OK);
        assert_int_equal(snug_rates_scale(f->ctx, older, &there), SNUG_OK);
        assert_true(there.count < here.count);
        for (size_t k = 0; k < there.count; k++) assert_false(there.items[k].types & 8);
        const double slower = rate_of(&there, SNUG_OP_ATTENTION, 0)->flop / rate_of(&here, SNUG_OP_ATTENTION, 0)->flop;
        assert_float_equal(slower, h200->tf32 / 3 / older->fp32, 1e-9 * slower);
        const double half = rate_of(&there, SNUG_OP_LINEAR, 7)->flop / rate_of(&here, SNUG_OP_LINEAR, 7)->flop;
        assert_float_equal(half, h200->half / older->half, 1e-9 * half);
        snug_rates_free(&here);
        snug_rates_free(&there);
    }
}

/* A rate is scaled by the peak that limits its operation; what is done before a kernel starts is not. */
FIXTURE_TEST(test_scaled_rates) {
    const struct snug_gpu_model *measured = snug_gpu_model_find("NVIDIA H200"),
                                *other = snug_gpu_model_find("RTX 4090");
    const struct {
        enum snug_op_kind kind;
        int32_t types;
        double slower;
    } cases[] = {
        {SNUG_OP_LINEAR, 7, measured->half / other->half},
        {SNUG_OP_LINEAR, 3, measured->half / other->half}, /* fp32 results of 16-bit operands */
        {SNUG_OP_LINEAR, 0, measured->fp32 / other->fp32},
        {SNUG_OP_LINEAR, 2, measured->fp32 / other->fp32}, /* bf16 weights are converted */
        {SNUG_OP_LINEAR_DX, 8, measured->tf32 / other->tf32},
        {SNUG_OP_ATTENTION, 7, measured->half / other->half},
        {SNUG_OP_ATTENTION, 0, measured->tf32 / other->tf32}, /* parts of fp32 operands, on tensor cores */
        {SNUG_OP_NORM, 5, measured->bandwidth / other->bandwidth},
        {SNUG_OP_ADAM, 4, measured->bandwidth / other->bandwidth},
        {SNUG_OP_STORE, 0, measured->link / other->link},
        {SNUG_OP_FETCH, 0, measured->link / other->link},
    };
    struct snug_rates here, there;
    assert_int_equal(snug_rates_scale(f->ctx, measured, &here), SNUG_OK);
    assert_int_equal(snug_rates_scale(f->ctx, other, &there), SNUG_OK);
    assert_string_equal(there.device, other->name);
    assert_string_equal(there.scaled_from, measured->name);
    assert_true(there.overlaps);
    assert_int_equal(here.count, there.count);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_rate *from = rate_of(&here, cases[i].kind, cases[i].types);
        const struct snug_rate *to = rate_of(&there, cases[i].kind, cases[i].types);
        assert_true(from->call == to->call);
        assert_true(from->flop + from->byte > 0);
        assert_float_equal(to->flop, cases[i].slower * from->flop, 1e-9 * to->flop);
        assert_float_equal(to->byte, cases[i].slower * from->byte, 1e-9 * to->byte);
    }
    snug_rates_free(&here);
    snug_rates_free(&there);
}

/* ---- plans for a GPU of compute capability 7.5 ------------------------------------------------------------------ */

FIXTURE_TEST(test_plan_of_a_t4) {
    static const char *const gpus[] = {"T4", "RTX_2080_Ti", "Quadro_RTX_6000"};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        char words[256];
        snprintf(words, sizeof words, BERT "gpu=%s fp16=true per_device_train_batch_size=16", gpus[i]);
        snug_plan *half = plan_of(f, words, SNUG_OK);
        assert_says(half, "fp16 with fp32 masters and loss scaling");
        assert_says(half, "it fits");
        assert_says(half, "snug has never run on this GPU; rates measured on NVIDIA H200, scaled");
        snprintf(words, sizeof words, BERT "gpu=%s per_device_train_batch_size=16", gpus[i]);
        snug_plan *plain = plan_of(f, words, SNUG_OK);
        assert_true(plain->methods->work.seconds > 2 * half->methods->work.seconds);
        snug_plan_destroy(plain);
        /* The bytes are those of every GPU. */
        plain = plan_of(f, BERT "gpu=H200 fp16=true per_device_train_batch_size=16", SNUG_OK);
        assert_int_equal(snug_plan_total(half), snug_plan_total(plain));
        char *text;
        assert_int_equal(snug_plan_text(plain, &text), SNUG_OK);
        assert_null(strstr(text, "never run"));
        free(text);
        snug_plan_destroy(plain);
        snug_plan_destroy(half);
    }
}

/* Types that the GPU lacks are refused by flag, also where --gpu is a file of its rates. */
FIXTURE_TEST(test_types_that_a_t4_lacks) {
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"gpu=T4 bf16=true", "--bf16 needs a GPU of compute capability 8.0 or later, and T4 is an earlier one: "
                             "use --fp16"},
        {"gpu=RTX_2060 bf16=true dtype=bfloat16",
         "--bf16 needs a GPU of compute capability 8.0 or later, and RTX_2060"},
        {"gpu=T4 tf32=true", "--tf32 needs a GPU of compute capability 8.0 or later, and T4 is an earlier one: "
                             "leave it out, or use --fp16"},
        {"gpu=T4 bf16_full_eval=true", "use --fp16_full_eval"},
        {"gpu=@t4.json bf16=true", "t4.json is an earlier one: use --fp16"},
        {"gpu=T4 fit=true bf16=true", "use --fp16"},
    };
    json_t *rates = json_load_file(SNUG_SOURCE_DIR "/tests/golden/rates_gpu.json", 0, NULL);
    assert_int_equal(json_object_set_new(rates, "device", json_string("Tesla T4")), 0);
    assert_int_equal(json_dump_file(rates, path_of(f, "t4.json"), 0), 0);
    json_decref(rates);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        snprintf(words, sizeof words, SMALL "%s", cases[i].words);
        assert_null(plan_of(f, words, SNUG_E_USAGE));
        assert_contains(snug_error_message(f->ctx), cases[i].says);
    }
    snug_plan_destroy(plan_of(f, SMALL "gpu=@t4.json fp16=true", SNUG_OK));
    snug_plan_destroy(plan_of(f, SMALL "gpu=T4 dtype=bfloat16", SNUG_OK)); /* weights are converted */
    snug_plan_destroy(plan_of(f, SMALL "gpu=T4 fit=true fp16=true", SNUG_OK));
}

/* What does not fit is refused with --fit, --memory_budget and the arguments to add, if any help. */
FIXTURE_TEST(test_advice) {
    static const struct {
        const char *words, *says[3];
    } cases[] = {
        /* A mix fits: in the GPU's memory, and in a budget. */
        {LARGE "gpu=T4",
         {" of Tesla T4, ", "; --fit would add --per_device_train_batch_size ", "sets another limit); add --fit"}},
        {LARGE "gpu=T4 memory_budget=2GiB",
         {"more than --memory_budget of 2048.0 MiB", "; --fit would add --", "sets another limit); add --fit"}},
        /* None does: a larger budget is named if the GPU has it, or if its memory is unknown. */
        {SMALL "gpu=T4 memory_budget=10MiB", {"no mix of methods fits 10.0 MiB", "MiB; add --fit --memory_budget "}},
        {SMALL "fit=true memory_budget=10MiB gpu=" SNUG_SOURCE_DIR "/tests/golden/rates_gpu.json",
         {"MiB; add --fit --memory_budget "}},
        {LARGE "gradient_accumulation_steps=1 gpu=RTX_2060 memory_budget=600MiB",
         {"--fit runs it where that much is free, or within"}},
        {LARGE "gradient_accumulation_steps=1 gpu=RTX_2060", {"the available 5734.4 MiB", "or within --memory_budget"}},
    };
    write_large(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_plan *plan = plan_of(f, cases[i].words, SNUG_E_DOES_NOT_FIT);
        assert_non_null(plan); /* it can be printed */
        for (int k = 0; k < 3 && cases[i].says[k]; k++) assert_contains(snug_error_message(f->ctx), cases[i].says[k]);
        snug_plan_destroy(plan);
    }
}

/* Little memory for a decoder of 1.2 billion parameters: the search is no slower than mixes found by hand, in which
 * little is offloaded and most is recomputed. */
FIXTURE_TEST(test_little_memory) {
    static const char *const by_hand[][2] = {
        {"optim=adafactor", "offload=weights offload_ratio=0.25"},
        {"optim=adafactor max_grad_norm=0", "offload=weights offload_ratio=0.25"},
    };
    assert_int_equal(mkdir(path_of(f, "1b"), 0700), 0);
    assert_int_equal(symlink(SNUG_SOURCE_DIR "/bench/models/llama-3.2-1b.json", path_of(f, "1b/config.json")), 0);
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        snug_plan *plans[2];
        char words[512];
        const char *const added[] = {"fit=true", by_hand[i][1]};
        for (int hand = 0; hand < 2; hand++) {
            snprintf(words, sizeof words,
                     "config_name=@1b task=clm train_file=dummy:64x2048 max_seq_length=2048 bf16=true dtype=bfloat16 "
                     "per_device_train_batch_size=1 gpu=H100 memory_budget=4096MiB %s %s%s",
                     by_hand[i][0], added[hand], hand ? " update_in_backward=true recompute=layer" : "");
            plans[hand] = plan_of(f, words, SNUG_OK);
        }
        if (plans[0]->step.total.seconds > 1.05 * plans[1]->step.total.seconds)
            fail_msg("%s: %s", by_hand[i][0], plans[0]->fit_text);
        snug_plan_destroy(plans[0]);
        snug_plan_destroy(plans[1]);
    }
}

TEST_MAIN(NULL, NULL)
