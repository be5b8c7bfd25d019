/* SPDX-License-Identifier: Apache-2.0 */
/* Reading adapter_config.json: what is refused, and which modules have adapters, as in PEFT. */
#include <math.h>

#include "model/build.h"
#include "model/family.h"
#include "scratch.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

/* Any program may have written the file. */
FIXTURE_TEST(files_are_refused) {
    static const struct {
        const char *config, *message;
        snug_status status;
    } cases[] = {
        {"{\"use_dora\": 2}", "use_dora", SNUG_E_INPUT},
        {"{\"trainable_token_indices\": [1, 1]}", "must be a list of different ids", SNUG_E_INPUT},
        {"{\"trainable_token_indices\": 1}", "must be a list of different ids", SNUG_E_INPUT},
        {"{\"target_parameters\": [\"a\"]}", "target_parameters is not supported", SNUG_E_UNSUPPORTED},
        {"{\"peft_type\": \"IA3\"}", "peft_type IA3", SNUG_E_UNSUPPORTED},
        {"{\"peft_type\": 3}", "peft_type", SNUG_E_INPUT},
        {"{\"bias\": \"some\"}", "bias is \"some\", and must be none, all or lora_only", SNUG_E_INPUT},
        {"{\"bias\": 1}", "bias", SNUG_E_INPUT},
        {"{\"lora_bias\": 1}", "lora_bias", SNUG_E_INPUT},
        {"{\"init_lora_weights\": \"pissa\"}", "init_lora_weights pissa", SNUG_E_UNSUPPORTED},
        {"{\"init_lora_weights\": 3}", "init_lora_weights", SNUG_E_UNSUPPORTED},
        {"{\"r\": 0}", "r must be a whole number", SNUG_E_INPUT},
        {"{\"r\": 2.5}", "r must be a whole number", SNUG_E_INPUT},
        {"{\"r\": 1e9}", "r must be a whole number", SNUG_E_INPUT},
        {"{\"r\": \"x\"}", "r", SNUG_E_INPUT},
        {"{\"lora_alpha\": \"x\"}", "lora_alpha", SNUG_E_INPUT},
        {"{\"use_rslora\": 1}", "use_rslora", SNUG_E_INPUT},
        {"{\"lora_dropout\": 1}", "lora_dropout must be", SNUG_E_INPUT},
        {"{\"lora_dropout\": -1}", "lora_dropout must be", SNUG_E_INPUT},
        {"{\"lora_dropout\": []}", "lora_dropout", SNUG_E_INPUT},
        {"{\"target_modules\": [1]}", "target_modules must be a list", SNUG_E_INPUT},
        {"{\"target_modules\": {\"a\": 1}}", "target_modules must be a list", SNUG_E_INPUT},
        {"{\"exclude_modules\": 3}", "exclude_modules must be a list", SNUG_E_INPUT},
        {"{\"modules_to_save\": \"a\"}", "modules_to_save must be a list", SNUG_E_INPUT},
        {"{\"layers_to_transform\": \"a\"}", "layers_to_transform must be a list", SNUG_E_INPUT},
        {"{\"layers_to_transform\": [\"a\"]}", "layers_to_transform must be a list", SNUG_E_INPUT},
        {"{\"rank_pattern\": [1]}", "rank_pattern must be an object", SNUG_E_INPUT},
        {"{\"rank_pattern\": {\"a\": \"b\"}}", "rank_pattern of \"a\"", SNUG_E_INPUT},
        {"{\"rank_pattern\": {\"a\": 1e9}}", "rank_pattern of \"a\"", SNUG_E_INPUT},
        {"{\"alpha_pattern\": {\"(\": 1}}", "(", SNUG_E_UNSUPPORTED},
        {"{\"target_modules\": \"(\"}", "(", SNUG_E_UNSUPPORTED},
        {"{\"exclude_modules\": \"(\"}", "(", SNUG_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_adapter *adapter = NULL;
        json_t *json = json_loads(cases[i].config, 0, NULL);
        assert_non_null(json);
        const snug_status status = snug_adapter_read(s->ctx, "adapter_config.json", json, NULL, false, &adapter);
        if (status != cases[i].status || !strstr(snug_error_message(s->ctx), cases[i].message))
            fail_msg("%s: %d: %s", cases[i].config, (int)status, snug_error_message(s->ctx));
        snug_clear_error(s->ctx);
        assert_null(adapter);
        json_decref(json);
    }
}

/* PEFT lists whole names of all linears. */
FIXTURE_TEST(lists_of_names_have_a_limit) {
    for (int names = SNUG_ADAPTER_NAMES_MOST; names <= SNUG_ADAPTER_NAMES_MOST + 1; names++) {
        json_t *json = json_object(), *list = json_array();
        struct snug_adapter *adapter;
        for (int i = 0; i < names; i++) json_array_append_new(list, json_string("q"));
        json_object_set_new(json, "target_modules", list);
        const snug_status status = snug_adapter_read(s->ctx, "x", json, NULL, false, &adapter);
        assert_int_equal(status, names > SNUG_ADAPTER_NAMES_MOST ? SNUG_E_INPUT : SNUG_OK);
        snug_adapter_free(adapter);
        json_decref(json);
    }
}

/* Which modules are targets, their ranks and scales; ends of names and regular expressions, as in PEFT. */
FIXTURE_TEST(targets_are_those_of_peft) {
    static const struct {
        const char *config, *module;
        int64_t r;
        double scale;
    } cases[] = {
        {"{\"r\": 4, \"lora_alpha\": 8}", "model.layers.0.self_attn.q_proj", 4, 2},
        {"{\"r\": 4, \"lora_alpha\": 8}", "model.layers.0.self_attn.k_proj", 0, 0},
        {"{\"target_modules\": [\"proj\"]}", "a.q_proj", 0, 0}, /* not after a dot */
        {"{\"target_modules\": [\"a.q_proj\"]}", "a.q_proj", 8, 1},
        {"{\"target_modules\": \".*_proj\"}", "a.q_proj", 8, 1},
        {"{\"target_modules\": \"q_proj\"}", "a.q_proj", 0, 0}, /* a pattern of the whole name */
        {"{\"target_modules\": \"ALL-linear\"}", "x", 8, 1},
        {"{\"target_modules\": \"all-linear\", \"exclude_modules\": [\"q\"]}", "a.q", 0, 0},
        {"{\"target_modules\": \"all-linear\", \"exclude_modules\": \".*q\"}", "a.q", 0, 0},
        {"{\"target_modules\": \"all-linear\", \"exclude_modules\": \".*q\"}", "a.k", 8, 1},
        {"{\"target_modules\": \"all-linear\", \"modules_to_save\": [\"head\"]}", "head.dense", 0, 0},
        {"{\"target_modules\": [\"q\"], \"layers_to_transform\": [1, 3]}", "h.3.q", 8, 1},
        {"{\"target_modules\": [\"q\"], \"layers_to_transform\": [1, 3]}", "h.2.q", 0, 0},
        {"{\"target_modules\": [\"q\"], \"layers_to_transform\": 2}", "h.2.q", 8, 1},
        {"{\"target_modules\": [\"q\"], \"layers_to_transform\": 2}", "q", 0, 0},
        {"{\"target_modules\": [\"q\"], \"layers_to_transform\": 2}", "h.2x.q", 0, 0},
        {"{\"target_modules\": [\"q\"], \"layers_to_transform\": []}", "h.2x.q", 8, 1},
        {"{\"target_modules\": [\"q\"], \"exclude_modules\": \"\", \"init_lora_weights\": \"gaussian\"}", "q", 8, 1},
        {"{\"target_modules\": [\"q\"], \"init_lora_weights\": true}", "q", 8, 1},
        {"{\"target_modules\": [\"q\"], \"r\": 16, \"lora_alpha\": 8, \"use_rslora\": true}", "q", 16, 2},
        {"{\"target_modules\": [\"q\"], \"rank_pattern\": {\"q\": 2}, \"alpha_pattern\": {\"1.q\": 6}}", "h.1.q", 2, 3},
        {"{\"target_modules\": [\"q\"], \"rank_pattern\": {\"k\": 2, \"h.*q\": 4}}", "h.1.q", 4, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_adapter *adapter;
        struct snug_lora_form form;
        json_t *json = json_loads(cases[i].config, 0, NULL);
        assert_non_null(json);
        assert_int_equal(snug_adapter_read(s->ctx, "x", json, "q_proj v_proj", false, &adapter), SNUG_OK);
        assert_int_equal(snug_adapter_find(adapter, cases[i].module, &form), SNUG_OK);
        if (form.r != cases[i].r || fabs(form.scale - cases[i].scale) > 1e-12)
            fail_msg("%s, %s: r %d, scale %g", cases[i].config, cases[i].module, (int)form.r, form.scale);
        snug_adapter_free(adapter);
        json_decref(json);
    }
}

/* The number of stacks of adapters that read one input, and their rows, in a layer. */
FIXTURE_TEST(adapters_of_one_input_are_stacked) {
    static const struct {
        const char *config;
        int64_t stacks, rows;
    } cases[] = {
        {"{\"target_modules\": [\"q\", \"k\", \"v\"]}", 1, 24},
        {"{\"target_modules\": \"all-linear\", \"r\": 2, \"use_rslora\": true, \"lora_bias\": true}", 1, 6},
        {"{\"target_modules\": [\"q\", \"v\"], \"lora_alpha\": 3}", 1, 16},
        {"{\"target_modules\": [\"k\"]}", 0, 0},
        {"{\"target_modules\": [\"q\", \"v\"], \"rank_pattern\": {\"v\": 4}}", 0, 0},
        {"{\"target_modules\": [\"q\", \"v\"], \"alpha_pattern\": {\"v\": 4}}", 0, 0},
        {"{\"target_modules\": [\"q\", \"v\"], \"lora_dropout\": 0.1}", 0, 0},
        {"{\"target_modules\": [\"q\", \"v\"], \"use_dora\": true}", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_program program;
        struct snug_config config;
        int64_t stacks = 0, rows = 0;
        struct snug_adapter *adapter;
        json_t *json = json_loads(cases[i].config, 0, NULL);
        assert_ok(s, snug_config_builtin(s->ctx, "mpnet-base", &config));
        assert_ok(s, snug_adapter_read(s->ctx, "x", json, NULL, false, &adapter));
        config.adapter = adapter;
        snug_program_init(&program, s->ctx);
        assert_ok(s, snug_build_model(&program, &config, true, 0));
        for (size_t t = 1; t < program.tensor_count; t++) {
            const struct snug_tensor *tensor = &program.tensors[t];
            if (tensor->layer != 0 || !strstr(tensor->name, "+.lora_A.weight")) continue;
            stacks++;
            rows += tensor->rows;
        }
        if (stacks != cases[i].stacks || rows != cases[i].rows)
            fail_msg("%s: %d stacks of %d rows", cases[i].config, (int)stacks, (int)rows);
        snug_program_free(&program);
        snug_config_free(&config);
        snug_adapter_free(adapter);
        json_decref(json);
    }
}

TEST_MAIN(NULL, NULL)
