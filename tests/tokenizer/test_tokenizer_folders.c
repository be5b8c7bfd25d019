/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of tokenizer files: which are refused, and what unusual ones mean. */
#include "model/family.h"
#include "tokenizer/model_text.h"
#include "tokenizer_fixture.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

#define MODEL(vocab) "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":" vocab "}"
#define SMALL "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
#define SMALL_JSON MODEL("{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}")
#define FULL_JSON MODEL("{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}")
#define SPLIT "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"

/* Folders that must be refused: files, the status, and a part of the message. */
static const struct {
    const char *vocab, *json, *config;
    snug_status status;
    const char *message;
} refused[] = {
    {NULL, NULL, NULL, SNUG_E_INPUT, "neither vocab.txt, nor tokenizer.json"},
    {"", NULL, NULL, SNUG_E_INPUT, "empty"},
    {"[PAD]\n[CLS]\n[SEP]\n", NULL, NULL, SNUG_E_INPUT, "[UNK]"},
    {"[UNK]\na\nb\na\n", NULL, NULL, SNUG_E_INPUT, "\"a\" is listed twice, as number 1 and 3"},
    {"[UNK]\n\xff\n", NULL, NULL, SNUG_E_INPUT, "line 2"},
    {SMALL, NULL, "{\"tokenizer_class\":\"RobertaTokenizerFast\"}", SNUG_E_INPUT,
     "its class is RobertaTokenizer, but neither tokenizer.json nor vocab.json exists"},
    {SMALL, NULL, "{\"do_lower_case\":\"yes\"}", SNUG_E_INPUT, "do_lower_case"},
    {SMALL, NULL, "{\"cls_token\":null}", SNUG_E_INPUT, "cls_token"},
    {SMALL, NULL, "{\"cls_token\":\"\"}", SNUG_E_INPUT, "there is no cls_token"},
    {SMALL, NULL, "{\"cls_token\":7}", SNUG_E_INPUT, "cls_token"},
    {SMALL, NULL, "{", SNUG_E_INPUT, "tokenizer_config.json"},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", SNUG_E_INPUT, "\"x\""},
    {NULL, "[]", NULL, SNUG_E_INPUT, "tokenizer.json"},
    {NULL, "{\"model\":", NULL, SNUG_E_INPUT, "tokenizer.json"},
    {NULL, "{\"model\":null}", NULL, SNUG_E_UNSUPPORTED, "null"},
    {NULL, "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", NULL, SNUG_E_UNSUPPORTED,
     "the model WordLevel is not supported, only WordPiece, BPE, Unigram"},
    {NULL, "{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "{\"tokenizer_class\":\"BertTokenizer\"}", SNUG_E_UNSUPPORTED,
     "the model BPE is not supported with the tokenizer class BertTokenizer"},
    {NULL, "{" MODEL("{}") "}", NULL, SNUG_E_INPUT, "empty"},
    {NULL, "{" MODEL("[]") "}", NULL, SNUG_E_INPUT, "vocab"},
    {NULL, "{" MODEL("{\"a\":-1}") "}", NULL, SNUG_E_INPUT, "\"a\""},
    {NULL, "{" MODEL("{\"a\":2000000000}") "}", NULL, SNUG_E_INPUT, "2000000000"},
    {NULL, "{" MODEL("{\"a\":1,\"b\":1}") "}", NULL, SNUG_E_INPUT, "the same id 1"},
    {NULL, "{\"normalizer\":{\"type\":\"Sequence\"}," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT,
     "\"normalizers\" of the normalizer Sequence must be a list"},
    {NULL, "{\"added_tokens\":[{\"id\":1}]," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT, "added_tokens"},
    {NULL, "{\"added_tokens\":[{\"content\":\"x\"}]," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT,
     "number 1 of \"added_tokens\" has no content or no id"},
    {NULL, "{\"added_tokens\":{}," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT, "must be a list"},
    {SMALL, NULL, "{\"added_tokens_decoder\":[]}", SNUG_E_INPUT, "must be an object of tokens by id"},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"6\":null}}", SNUG_E_INPUT, "\"6\""},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"6x\":{\"content\":\"y\"}}}", SNUG_E_INPUT, "\"6x\""},
    {SMALL, NULL, "{\"tokenizer_class\":\"Bert\"}", SNUG_E_UNSUPPORTED, "the tokenizer class \"Bert\""},
    {SMALL, NULL, "{\"model_input_names\":\"input_ids\"}", SNUG_E_INPUT,
     "\"model_input_names\" must be a list of names"},
    {SMALL, NULL, "{\"model_max_length\":-1}", SNUG_E_INPUT, "\"model_max_length\" must be a number of tokens, from 1"},
    {SMALL, NULL, "{\"max_len\":\"long\"}", SNUG_E_INPUT, "\"max_len\" must be a number of tokens"},
    {SMALL, NULL, "{\"truncation_side\":\"top\"}", SNUG_E_INPUT, "must be \"left\" or \"right\", not \"top\""},
    {SMALL, NULL, "{\"extra_special_tokens\":\"<x>\"}", SNUG_E_INPUT, "\"extra_special_tokens\" must be a list"},
    {SMALL, NULL, "{\"extra_special_tokens\":[7]}", SNUG_E_INPUT, "\"extra_special_tokens\" must be a token"},
    {SMALL, NULL, "{\"extra_special_tokens\":{\"k\":7}}", SNUG_E_INPUT, "\"k\" must be a token"},
    {SMALL, NULL, "{\"additional_special_tokens\":{}}", SNUG_E_INPUT, "\"additional_special_tokens\" must be a list"},
    {NULL, "{" MODEL("{\"a\":3000000000}") "}", NULL, SNUG_E_INPUT, "the id of token \"a\""},
    {NULL,
     "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\"],\"sep\":[\"[SEP]\",3]}," SPLIT "," SMALL_JSON
     "}",
     "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", SNUG_E_INPUT,
     "there is no cls_token: \"cls\" of the post_processor"},
    {NULL,
     "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",2],\"sep\":[\"\",3000000000]}," SPLIT
     "," SMALL_JSON "}",
     "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", SNUG_E_INPUT,
     "there is no sep_token: \"sep\" of the post_processor"},
    {NULL, "{\"decoder\":{\"type\":\"Strip\",\"content\":\"\",\"start\":1,\"stop\":0}," SPLIT "," SMALL_JSON "}",
     "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", SNUG_E_INPUT,
     "\"content\" of the decoder Strip must be not empty"},
    {NULL, "{\"decoder\":{\"type\":\"CTC\"}," SPLIT "," SMALL_JSON "}",
     "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", SNUG_E_UNSUPPORTED,
     "the decoder CTC is not supported, only WordPiece"},
    {NULL, "{\"added_tokens\":[null]," SPLIT "," SMALL_JSON "}", NULL, SNUG_E_INPUT, "number 1 of \"added_tokens\""},
};

FIXTURE_TEST(test_refused) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        put_file(fixture, "vocab.txt", refused[i].vocab);
        put_file(fixture, "tokenizer.json", refused[i].json);
        put_file(fixture, "tokenizer_config.json", refused[i].config);
        expect_refusal(fixture, i, refused[i].status, refused[i].message);
    }
    put_file(fixture, "vocab.txt", SMALL);
    put_file(fixture, "tokenizer.json", NULL);
    put_file(fixture, "tokenizer_config.json", NULL);
    put_file(fixture, "added_tokens.json", "{\"x\":\"7\"}");
    expect_refusal(fixture, 1000, SNUG_E_INPUT, "the id of token \"x\" is not a number");
    put_file(fixture, "added_tokens.json", NULL);
    /* Null parts mean the defaults, and an invalid vocab.txt does not matter where there is a tokenizer.json. */
    put_file(fixture, "vocab.txt", "a\na\n");
    put_file(fixture, "tokenizer.json",
             "{\"added_tokens\":null,\"normalizer\":null,\"post_processor\":null," SPLIT "," SMALL_JSON "}");
    put_file(fixture, "tokenizer_config.json", NULL);
    snug_clear_error(fixture->ctx);
    fixture->warnings = 0;
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    assert_int_equal(fixture->warnings, 2); /* of vocab.txt, and of rows without special tokens */
    assert_int_equal(snug_tokenizer_special(tokenizer).pad, -1);
    struct snug_ids ids = {0};
    assert_int_equal(snug_tokenizer_encode(fixture->ctx, tokenizer, "a\xff", 2, &ids), SNUG_E_INPUT);
    free(ids.ids);
    snug_tokenizer_free(tokenizer);
}

#define BERT_CLASS(rest) "{\"tokenizer_class\":\"BertTokenizer\"" rest "}"
#define CLASS(rest) "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"" rest "}"
#define AROUND "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",2],\"sep\":[\"[SEP]\",3]}"

/* Unusual folders, and the ids of a text with them. */
static const struct {
    const char *vocab, *json, *config, *added, *text;
    int32_t ids[4], warnings; /* ids up to the first 0 */
} accepted[] = {
    /* Blanks at the end of a line do not belong to the token, and a line of blanks is a token without a name. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n \nb \t\nc", NULL, NULL, NULL, "b c", {5, 6}, 0},
    {SMALL, NULL, "{\"unk_token\":null}", NULL, "a ?", {5, 1}, 0},
    {SMALL, NULL, CLASS(""), NULL, "a", {5}, 0}, /* nothing to wrap */
    {SMALL, NULL, "{\"auto_map\":{\"AutoTokenizer\":[\"evil.Tokenizer\",null]}}", NULL, "a", {5}, 1},
    {SMALL, NULL, "{\"x\":1,\"extra_special_tokens\":[\"<x>\",null]}", NULL, "a<x>", {5, 6}, 0},
    {SMALL, NULL, "{\"extra_special_tokens\":{\"k\":\"<x>\",\"n\":null}}", NULL, "a<x>", {5, 6}, 0},
    {SMALL, NULL, "{\"extra_special_tokens\":[],\"additional_special_tokens\":[\"<y>\"]}", NULL, "a<y>", {5, 6}, 0},
    {SMALL, NULL, "{\"my_token\":\"<z>\"}", "{\"<z>\":6,\"[MASK]\":4,\"<v>\":7}", "<z>[MASK]<v>", {6, 4, 7}, 0},
    /* Two tokens with the same id: the last one counts. */
    {SMALL,
     "{\"added_tokens\":[{\"id\":6,\"content\":\"<p>\"},{\"id\":6,\"content\":\"<q>\"}]," SPLIT "," FULL_JSON "}",
     BERT_CLASS(""),
     NULL,
     "<q>",
     {4},
     5},
    /* Without a pre_tokenizer a text is one word; without a post_processor rows have no special tokens. */
    {NULL, "{\"model\":{\"vocab\":{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a b\":4}}}", NULL, NULL, "a b", {4}, 1},
    {NULL, "{" SPLIT "," SMALL_JSON "}", CLASS(""), NULL, "?", {1}, 5},
    {NULL, "{\"added_tokens\":[{\"id\":5,\"content\":\"\"}]," SPLIT "," FULL_JSON "}", NULL, NULL, "?", {1}, 1},
    {NULL, "{" AROUND "," SPLIT "," FULL_JSON "}", CLASS(",\"extra_special_tokens\":[\"<n>\"]"), NULL, "<n>", {4}, 4},
    {NULL, "{" SPLIT ",\"model\":{\"vocab\":{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}}}", NULL, NULL, "?", {1}, 1},
    /* No token is as long as the prefix of the pieces of a word. */
    {NULL,
     "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"c\",2],\"sep\":[\"s\",3]}," SPLIT
     ",\"model\":{\"unk_token\":\"u\",\"vocab\":{\"u\":1,\"c\":2,\"s\":3}}}",
     NULL,
     NULL,
     "c cs",
     {2, 1},
     0},
    /* Pairs with the same FNV-1a hash: "declinate" and "macallums", "costarring" and "liquid". "##" is the prefix of no
       piece. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n##\ndecl\nmacallums\n##inatex\n##tarringx\nliquid\ncos\n",
     NULL,
     NULL,
     NULL,
     "declinatex costarringx",
     {5, 7, 10, 8},
     0},
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n##\nmacallums\n", NULL, NULL, NULL, "declinatex", {1}, 0},
    /* The vocabulary of vocab.txt in another order is the same; one with fewer tokens is not. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
     "{" SPLIT "," MODEL("{\"[UNK]\":1,\"[PAD]\":0,\"a\":4,\"[CLS]\":2,\"[SEP]\":3}") "}",
     NULL,
     NULL,
     "a",
     {4},
     1},
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
     "{" SPLIT "," MODEL("{\"[UNK]\":1,\"a\":4,\"[CLS]\":2,\"[SEP]\":3}") "}",
     NULL,
     NULL,
     "a",
     {4},
     2},
    /* An object "vocab" before the model's, which is not the vocabulary. */
    {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n",
     "{\"x\":{\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3}}," SPLIT
     "," MODEL("{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a\":4}") "}",
     NULL,
     NULL,
     "a",
     {4},
     2},
    /* The settings of tokenizer.json do not count where there is a configuration, which is reported. */
    {SMALL, "{\"normalizer\":{\"type\":\"Sequence\"}," SPLIT "," FULL_JSON "}", BERT_CLASS(""), NULL, "?", {1}, 2},
    {SMALL,
     "{\"normalizer\":{\"type\":\"BertNormalizer\",\"strip_accents\":false}," SPLIT "," FULL_JSON "}",
     BERT_CLASS(",\"do_lower_case\":false"),
     NULL,
     "?",
     {1},
     2},
    {NULL,
     "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":false}," SPLIT "," FULL_JSON "}",
     NULL,
     NULL,
     "?",
     {1},
     1},
    /* add_bos_token has no effect beside a tokenizer.json. */
    {NULL, "{" AROUND "," SPLIT "," SMALL_JSON "}", CLASS(",\"add_bos_token\":true"), NULL, "?", {1}, 5},
    /* Of tokens that are the same once normalised the first is found, and one that is empty then never is. */
    {SMALL,
     NULL,
     "{\"added_tokens_decoder\":{\"6\":{\"content\":\"Y\"},\"7\":{\"content\":\"y\"}}}",
     NULL,
     "y Y",
     {6, 6},
     1},
    {SMALL,
     NULL,
     "{\"added_tokens_decoder\":{\"6\":{\"content\":\"Y\"},\"7\":{\"content\":\"y\"},\"8\":{\"content\":\"\\u0301\"},"
     "\"9\":{\"content\":\"\\u0302\"},\"10\":{\"content\":\"\\u00fd\"}}}",
     NULL,
     "\u00fd",
     {6},
     2},
    {SMALL,
     NULL,
     "{\"extra_special_tokens\":[\"<x>\"],\"additional_special_tokens\":[\"<y>\"]}",
     NULL,
     "a<x>?",
     {5, 6, 1},
     0},
    {SMALL, NULL, "{\"pad_token\":null,\"model_input_names\":[7,\"token_type_ids\"]}", "{\"<v>\":6}", "<v>", {6}, 0},
    {SMALL, NULL, "{\"added_tokens_decoder\":{\"6\":{\"content\":\"\\u0301\"}}}", NULL, "a\u0301a", {1}, 1},
};

FIXTURE_TEST(test_accepted) {
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        put_file(fixture, "vocab.txt", accepted[i].vocab);
        put_file(fixture, "tokenizer.json", accepted[i].json);
        put_file(fixture, "tokenizer_config.json", accepted[i].config);
        put_file(fixture, "added_tokens.json", accepted[i].added);
        fixture->warnings = 0;
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        struct snug_ids ids = {0};
        size_t count = 0;
        encode(fixture, tokenizer, accepted[i].text, strlen(accepted[i].text), &ids);
        while (count < 4 && accepted[i].ids[count]) count++;
        if (ids.count != count || memcmp(ids.ids, accepted[i].ids, count * sizeof *ids.ids) != 0)
            fail_msg("folder %zu: %zu tokens, the first is %d", i, ids.count, ids.count ? ids.ids[0] : -1);
        if (fixture->warnings != accepted[i].warnings) fail_msg("folder %zu: %d warnings", i, fixture->warnings);
        free(ids.ids);
        snug_tokenizer_free(tokenizer);
    }
}

/* Objects in the lists of special_tokens_map.json, as transformers 4 wrote them, which 5.24 does not read: special
   tokens with their flags, as in 4. */
FIXTURE_TEST(test_objects_of_the_map) {
    static const struct {
        const char *map, *text;
        int32_t ids[4];
    } cases[] = {
        {"{\"additional_special_tokens\":[{\"content\":\"<X>\",\"lstrip\":true},\"<Y>\"]}", "  <X>a<Y>", {6, 5, 7}},
        {"{\"extra_special_tokens\":[{\"content\":\"<X>\",\"normalized\":true,\"special\":false}]}", "<x><X>", {6, 6}},
        {"{\"extra_special_tokens\":{\"k\":{\"content\":\"<X>\",\"single_word\":true},\"k2\":{\"content\":\"<X>\"},"
         "\"cls_token\":\"a\"}}",
         "<X> b<X>b",
         {6, 1}},
        {"{\"pad_token\":null,\"my_token\":{\"content\":\"<X>\"},\"other_token\":7,\"name\":\"<Y>\"}", "<X>", {6}},
    };
    put_file(fixture, "vocab.txt", SMALL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file(fixture, "special_tokens_map.json", cases[i].map);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        struct snug_ids ids = {0};
        encode(fixture, tokenizer, cases[i].text, strlen(cases[i].text), &ids);
        for (size_t k = 0; k < 4 && cases[i].ids[k]; k++)
            if (k >= ids.count || ids.ids[k] != cases[i].ids[k])
                fail_msg("map %zu: token %zu is %d", i, k, k < ids.count ? ids.ids[k] : -1);
        free(ids.ids);
        snug_tokenizer_free(tokenizer);
    }
    put_file(fixture, "special_tokens_map.json", "{\"additional_special_tokens\":7}");
    expect_refusal(fixture, 0, SNUG_E_INPUT, "special_tokens_map.json: \"additional_special_tokens\" must be a list");
    put_file(fixture, "special_tokens_map.json", "{\"cls_token\":7}");
    expect_refusal(fixture, 0, SNUG_E_INPUT, "special_tokens_map.json: \"cls_token\" must be a token");
}

/* The side of tokenizer.json's truncation counts where tokenizer_config.json names none. */
FIXTURE_TEST(test_truncation_side) {
    static const struct {
        const char *truncation, *config;
        bool left;
    } cases[] = {{"null", NULL, false},
                 {"{\"direction\":\"Right\"}", NULL, false},
                 {"{\"direction\":\"Left\"}", NULL, true},
                 {"{\"direction\":\"Left\"}", CLASS(",\"truncation_side\":\"right\""), false},
                 {"{\"direction\":\"Left\"}", BERT_CLASS(""), true},
                 {"null", CLASS(",\"truncation_side\":\"left\""), true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"truncation\":%s," AROUND "," SPLIT "," FULL_JSON "}", cases[i].truncation);
        put_file(fixture, "tokenizer.json", text);
        put_file(fixture, "tokenizer_config.json", cases[i].config);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        assert_int_equal(tokenizer->truncate_left, cases[i].left);
        snug_tokenizer_free(tokenizer);
    }
}

/* Where a text is expected to have special tokens around it; most decoders have none. */
FIXTURE_TEST(test_rows_without_special_tokens) {
    static const char *const configs[] = {
        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}",
        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"eos_token\":\"b\",\"pad_token\":\"b\"}",
        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"cls_token\":\"a\",\"sep_token\":\"b\"}"};
    for (int i = 0; i < 3; i++) {
        put_file(fixture, "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}");
        put_file(fixture, "tokenizer_config.json", configs[i]);
        fixture->warnings = 0;
        snug_tokenizer_free(load(fixture, fixture->folder));
        assert_int_equal(fixture->warnings, i == 2);
    }
}

FIXTURE_TEST(test_nul_characters) {
    static const char vocabulary[] = "[UNK]\n[CLS]\n[SEP]\na\0b\n";
    char path[128];
    struct snug_tokenizer *tokenizer;
    struct snug_ids ids = {0};
    snprintf(path, sizeof path, "%s/vocab.txt", fixture->folder);
    assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, vocabulary, sizeof vocabulary - 1), SNUG_OK);
    assert_int_equal(snug_tokenizer_load(fixture->ctx, fixture->folder, snug_family_tokenizer_class, &tokenizer),
                     SNUG_E_INPUT);
    assert_non_null(strstr(snug_error_message(fixture->ctx), "vocab.txt, line 4: not valid UTF-8 text"));
    snug_clear_error(fixture->ctx);
    put_file(fixture, "vocab.txt", NULL);
    /* A NUL in a text is removed, unless texts are not cleaned. */
    for (int clean = 0; clean < 2; clean++) {
        put_file(fixture, "tokenizer.json",
                 clean ? "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true}," SPLIT
                         "," MODEL("{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"ab\":4}") "}"
                       : "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":false}," SPLIT
                         "," MODEL("{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"ab\":4}") "}");
        tokenizer = load(fixture, fixture->folder);
        ids.count = 0;
        encode(fixture, tokenizer, "a\0b", 3, &ids);
        assert_int_equal(ids.count, 1);
        assert_int_equal(ids.ids[0], clean ? 4 : 1);
        assert_string_equal(snug_tokenizer_token(tokenizer, 0), ""); /* an id without a token */
        snug_tokenizer_free(tokenizer);
    }
    free(ids.ids);
}

/* The status and fingerprint of a tokenizer.json. */
static snug_status load_text(struct fixture *fixture, const char *text, size_t size, uint64_t *print) {
    struct snug_tokenizer *tokenizer;
    char path[128];
    snprintf(path, sizeof path, "%s/tokenizer.json", fixture->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    const snug_status status =
        snug_tokenizer_load(fixture->ctx, fixture->folder, snug_family_tokenizer_class, &tokenizer);
    snug_clear_error(fixture->ctx);
    *print = status == SNUG_OK ? snug_tokenizer_fingerprint(tokenizer) : 0;
    snug_tokenizer_free(tokenizer);
    return status;
}

/* However the model of tokenizer.json is damaged, reading it from the text gives what the parser of JSON gives, which
   is used where the key is not written plainly. */
FIXTURE_TEST(test_models_read_from_text) {
    static const char *const models[] = {
        "\"vocab\" : {\"[UNK]\": 0, \"[CLS]\": 1,\"[SEP]\": 2, \"\\\"\": 3, \"\\\\\": 4, \"a\": 5}",
        "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0062\":1,\"ab\":2,\"aba\":13},\"merges\":[\"a b\",\"ab a\"]",
        ("\"merges\":[ [\"a\" , \"b\"], [\"ab\",\"a\"] ],"
         "\"type\":\"BPE\",\"vocab\":{\"ab\":2,\"a\":0,\"b\":1,\"aba\":3}"),
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char plain[256], escaped[256];
        const char *by = "\"x9{],\\";
        const size_t head = (size_t)snprintf(plain, sizeof plain, "{" SPLIT ",\"model\":{"),
                     escaped_head = (size_t)snprintf(escaped, sizeof escaped, "{" SPLIT ",\"mod\\u0065l\":{"),
                     size = strlen(models[i]) + 2;
        for (size_t at = 0; at <= size; at++)
            for (size_t k = 0; k < (at < size ? strlen(by) : 1); k++) {
                uint64_t prints[2];
                snprintf(plain + head, sizeof plain - head, "%s}}", models[i]);
                if (at < size) plain[head + at] = by[k];
                memcpy(escaped + escaped_head, plain + head, size);
                const snug_status status = load_text(fixture, plain, head + size, &prints[0]);
                if (status != load_text(fixture, escaped, escaped_head + size, &prints[1]) || prints[0] != prints[1])
                    fail_msg("%s, byte %zu, %c: otherwise read than by the parser", models[i], at, by[k]);
                assert_true(at < size || status == SNUG_OK);
            }
    }
}

/* Which models are read from the text, and how. */
FIXTURE_TEST(test_text_of_model) {
    static const struct {
        const char *text;
        size_t merges;      /* that are plain; 9: no model is found */
        const char *tokens; /* NULL: the vocabulary is not plain */
    } cases[] = {
        {"{\"a\":[{\"model\":1}, -1.5e3],\"model\":{\"vocab\":{\"a\":0,\"\\\\\":1}}}", 0, "a\\"},
        {" {\"model\":{\"vocab\":{\"\\n\\u00E9\\u0120\":0},\"merges\":[]},\"z\":\"}\\\"\"} ", 0, "\né\xc4\xa0"},
        {"{\"model\":{\"merges\":[\"a b\",\"ab c\"],\"vocab\":{\"a\":0}}}", 2, "a"},
        {"{\"model\":{\"merges\":[[\"a\",\"b c\"]],\"vocab\":{\"a\":0}}}", 1, "a"},
        {"{\"model\":{\"merges\":[\"a b c\"],\"vocab\":{\"a\":0}}}", 0, "a"},
        {"{\"model\":{\"merges\":[\"ab\"],\"vocab\":{\"a\":0}}}", 0, "a"},
        {"{\"model\":{\"merges\":[[\"a\"]],\"vocab\":{\"a\":0}}}", 0, "a"},
        {"{\"model\":{\"merges\":[\"a \xff\"],\"vocab\":{\"a\":0}}}", 0, "a"},
        {"{\"model\":{\"merges\":{},\"vocab\":{\"a\":0}}}", 0, "a"},
        {"{\"model\":{\"merges\":[[1,\"a\"]],\"vocab\":{\"a\":0}}}", 0, "a"},
        {"{\"model\":\r\n\t{\"vocab\":{\"\\ue000\":0}}}", 0, "\xee\x80\x80"},
        {"{\"model\":{\"vocab\":{\"a\tb\":0}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{\"\\ud83d\\ude00\":0}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{\"\\u0000\":0}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{\"\\ue00g\":0}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{\"\\q\":0}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{\"\xff\":0}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{\"a\":01}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{\"a\":0,\"a\":1}}}", 0, NULL},
        {"{\"model\":{\"vocab\":{}}}", 0, NULL},
        {"{\"model\":{\"vocab\":[]}}", 9, NULL},
        {"{\"model\":{\"vocab\":{},\"vocab\":{}}}", 9, NULL},
        {"{\"model\":{\"vocab\":{}},\"model\":{}}", 9, NULL},
        {"{\"model\":{\"vocab\":{\"a\":0}", 9, NULL},
        {"{\"model\":{\"vocab\":{\"a\\", 9, NULL},
        {"{\"model\" {}}", 9, NULL},
        {"{model:{}}", 9, NULL},
        {"[]", 9, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_model_text model;
        struct snug_vocabulary vocabulary = {0};
        bool done;
        const bool found = snug_model_text_find(cases[i].text, &model);
        if (found != (cases[i].merges != 9)) fail_msg("%s: %d", cases[i].text, found);
        if (!found) continue;
        if (model.merge_count != cases[i].merges) fail_msg("%s: %zu merges", cases[i].text, model.merge_count);
        assert_int_equal(snug_model_text_vocabulary(fixture->ctx, "x", model.vocab, &vocabulary, &done), SNUG_OK);
        if (done != !!cases[i].tokens) fail_msg("%s: %d", cases[i].text, done);
        for (int64_t id = 0, at = 0; id < vocabulary.size; at += (int64_t)strlen(vocabulary.tokens[id++]))
            assert_memory_equal(vocabulary.tokens[id], cases[i].tokens + at, strlen(vocabulary.tokens[id]));
        snug_vocabulary_free(&vocabulary);
    }
    static const char *const objects[] = {" {\"a\":[{}]} ", "{\"a\":0} x", "{\"a\":0", "[]"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(!snug_model_text_object(objects[i], strlen(objects[i])).start, i > 0);
}

#define PIECE(kind, id, type) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define FIRST                                                                                                          \
    PIECE("SpecialToken", "[CLS]", "0") "," PIECE("Sequence", "A", "0") "," PIECE("SpecialToken", "[SEP]", "0")
#define SECOND PIECE("Sequence", "B", "1") "," PIECE("SpecialToken", "[SEP]", "1")
#define TEMPLATE                                                                                                       \
    "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" FIRST "],\"pair\":[" FIRST "," SECOND          \
    "],\"special_tokens\":{\"[CLS]\":{\"ids\":[2]},\"[SEP]\":{\"ids\":[3]}}}," SPLIT "," SMALL_JSON "}"

/* BERT's template is accepted, and every other one is refused, because the special tokens would differ. */
FIXTURE_TEST(test_templates) {
    static const char *const changes[][2] = {
        {"\"single\":[{\"SpecialToken\"", "\"single\":[{\"Sequence\""},
        {"\"single\":[", "\"single\":[" PIECE("Sequence", "A", "0") ","},
        {"\"pair\":[", "\"pair\":[" PIECE("Sequence", "A", "0") ","},
        {"\"pair\":[" PIECE("SpecialToken", "[CLS]", "0"), "\"pair\":[" PIECE("SpecialToken", "[UNK]", "0")},
        {PIECE("Sequence", "A", "0"), PIECE("Sequence", "B", "0")},
        {PIECE("Sequence", "A", "0"), PIECE("SpecialToken", "A", "0")},
        {PIECE("SpecialToken", "[SEP]", "1"), PIECE("SpecialToken", "[SEP]", "0")},
        {PIECE("SpecialToken", "[SEP]", "0"), PIECE("Sequence", "[SEP]", "0")},
        {"\"ids\":[3]", "\"ids\":[]"},
    };
    static const char whole[] = TEMPLATE;
    put_file(fixture, "tokenizer.json", whole);
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    assert_int_equal(snug_tokenizer_special(tokenizer).cls, 2);
    assert_int_equal(snug_tokenizer_special(tokenizer).sep, 3);
    snug_tokenizer_free(tokenizer);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char text[2048];
        const char *at = strstr(whole, changes[i][0]);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, changes[i][1], at + strlen(changes[i][0]));
        put_file(fixture, "tokenizer.json", text);
        expect_refusal(fixture, i, SNUG_E_UNSUPPORTED, "TemplateProcessing");
    }
}

/* A folder that names no class has that of its model type: its family's, or GPT2Tokenizer, which has no family here. */
FIXTURE_TEST(test_class_of_type) {
    static const struct {
        const char *config;
        size_t specials;
    } cases[] = {{"{\"model_type\":\"roberta\"}", 2}, {"{\"model_type\":\"gpt2\"}", 0}};
    put_file(fixture, "vocab.json",
             "{\"<s>\":0,\"</s>\":1,\"<unk>\":2,\"<pad>\":3,\"<mask>\":4,\"a\":5,\"<|endoftext|>\":6}");
    put_file(fixture, "merges.txt", "#version: 0.2\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file(fixture, "config.json", cases[i].config);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        assert_int_equal(snug_tokenizer_specials(tokenizer, false), cases[i].specials);
        snug_tokenizer_free(tokenizer);
    }
    put_file(fixture, "config.json", "{\"model_type\":\"t5\"}");
    expect_refusal(fixture, 0, SNUG_E_INPUT, "vocab.txt");
}

/* Which class a folder of a model type has: GPT2Tokenizer and LlamaTokenizer have no normalizer, Qwen2Tokenizer has
   NFC, and what wraps has that of tokenizer.json. */
FIXTURE_TEST(test_classes_that_types_keep) {
    static const struct {
        const char *type, *named;
        int normalizer; /* -1: none */
    } cases[] = {{"llama", NULL, SNUG_NORMALIZER_LOWERCASE},
                 {"llama", "LlamaTokenizer", -1},
                 {"mistral", "LlamaTokenizer", SNUG_NORMALIZER_LOWERCASE},
                 {"ministral3", "LlamaTokenizerFast", SNUG_NORMALIZER_LOWERCASE},
                 {"phi3", "LlamaTokenizer", SNUG_NORMALIZER_LOWERCASE},
                 {"phi3", "Unknown", SNUG_NORMALIZER_LOWERCASE},
                 {"smollm3", NULL, SNUG_NORMALIZER_LOWERCASE},
                 {"olmo2", "GPT2Tokenizer", SNUG_NORMALIZER_LOWERCASE},
                 {"olmo3", NULL, SNUG_NORMALIZER_LOWERCASE},
                 {"granite", "GPT2Tokenizer", SNUG_NORMALIZER_LOWERCASE},
                 {"qwen2", "LlamaTokenizer", SNUG_NORMALIZER_FORM},
                 {"qwen3", "LlamaTokenizer", -1},
                 {"qwen3", NULL, SNUG_NORMALIZER_FORM},
                 {"gemma", "PreTrainedTokenizerFast", SNUG_NORMALIZER_LOWERCASE}};
    put_file(fixture, "tokenizer.json",
             "{\"normalizer\":{\"type\":\"Lowercase\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}"
             ",\"model\":{\"type\":"
             "\"BPE\",\"vocab\":{\"<unk>\":0,\"a\":1,\"<|endoftext|>\":2},\"merges\":[]}}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", cases[i].type);
        put_file(fixture, "config.json", text);
        snprintf(text, sizeof text, "{\"tokenizer_class\":\"%s\"}", cases[i].named ? cases[i].named : "");
        put_file(fixture, "tokenizer_config.json", cases[i].named ? text : NULL);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        const int found = tokenizer->normalizer.count ? (int)tokenizer->normalizer.steps[0].kind : -1;
        if (found != cases[i].normalizer) fail_msg("%s, %s: %d", cases[i].type, cases[i].named, found);
        snug_tokenizer_free(tokenizer);
    }
    /* Without tokenizer.json such a type has the files of the class that the folder names. */
    put_file(fixture, "tokenizer.json", NULL);
    put_file(fixture, "config.json", "{\"model_type\":\"olmo2\"}");
    put_file(fixture, "tokenizer_config.json", "{\"tokenizer_class\":\"GPT2Tokenizer\"}");
    expect_refusal(fixture, 0, SNUG_E_INPUT, "no tokenizer");
    put_file(fixture, "vocab.json", "{\"a\":0,\"<|endoftext|>\":1}");
    put_file(fixture, "merges.txt", "#version: 0.2\n");
    snug_tokenizer_free(load(fixture, fixture->folder));
    put_file(fixture, "tokenizer_config.json", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}");
    expect_refusal(fixture, 1, SNUG_E_INPUT, "vocab.txt");
}

/* ---- folders of tools/golden/tokenizer_folders.py ---- */

static void put_json(struct fixture *fixture, const char *name, const json_t *value) {
    size_t length = 0;
    char path[128], *text = NULL;
    if (json_is_string(value) || json_object_get(value, "hex"))
        text = golden_text(value, &length);
    else if ((text = json_dumps(value, JSON_COMPACT)))
        length = strlen(text);
    assert_non_null(text);
    snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
    assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, text, length), SNUG_OK);
    free(text);
}

/* Writes a golden folder's files; tokenizer.json gets the model of its kind. */
static void put_folder(struct fixture *fixture, const json_t *golden, json_t *folder) {
    const char *kind = json_string_value(json_object_get(folder, "kind")), *name;
    json_t *value, *files = json_object_get(folder, "files"), *whole = json_object_get(files, "tokenizer.json");
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) put_file(fixture, snug_tokenizer_file_names[file], NULL);
    put_file(fixture, "config.json", NULL);
    if (whole) json_object_set(whole, "model", json_object_get(json_object_get(golden, "models"), kind));
    json_object_foreach(files, name, value) put_json(fixture, name, value);
    if (!json_is_true(json_object_get(folder, "slow"))) return;
    json_object_foreach(json_object_get(json_object_get(golden, "vocabularies"), kind), name, value)
        put_json(fixture, name, value);
}

/* Row number i of a golden folder: that of text i, or after the texts of a pair of neighbours. */
static void check_row(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const json_t *folder, size_t i) {
    const json_t *texts = json_object_get(folder, "texts"), *right = json_array_get(json_object_get(folder, "rows"), i);
    const size_t count = json_array_size(texts), pair = i < count ? 0 : i - count;
    const char *name = json_string_value(json_object_get(folder, "name"));
    const json_t *parts[2] = {json_array_get(texts, i < count ? i : 2 * pair),
                              i < count ? NULL : json_array_get(texts, 2 * pair + 1)};
    struct snug_ids ids[2] = {0}, row = {0};
    size_t first_count;
    bool truncated;
    for (int part = 0; part < 2 && parts[part]; part++)
        encode(fixture, tokenizer, json_string_value(parts[part]), json_string_length(parts[part]), &ids[part]);
    assert_int_equal(snug_tokenizer_assemble(fixture->ctx, tokenizer, &ids[0], parts[1] ? &ids[1] : NULL, 1000, &row,
                                             &first_count, &truncated),
                     SNUG_OK);
    if (parts[1]) assert_int_equal(snug_tokenizer_types(tokenizer), first_count < row.count);
    bool same = row.count + 1 == json_array_size(right) &&
                (json_int_t)first_count == json_integer_value(json_array_get(right, 0));
    for (size_t k = 0; same && k < row.count; k++)
        same = row.ids[k] == json_integer_value(json_array_get(right, k + 1));
    if (!same) {
        char *text = json_dumps(right, JSON_COMPACT);
        print_message("found [%zu", first_count);
        for (size_t k = 0; k < row.count; k++) print_message(",%d", row.ids[k]);
        print_message("], expected %s\n", text);
        free(text);
        fail_msg("%s: row %zu differs", name, i);
    }
    for (int part = 0; part < 2; part++) free(ids[part].ids);
    free(row.ids);
}

/* Every place in which versions of transformers wrote tokens, with all flags: ids and token types of each class. */
FIXTURE_TEST(test_layouts) {
    json_t *golden;
    if (snug_json_read(fixture->ctx, NULL, SNUG_SOURCE_DIR "/tests/golden/tokenizer_folders.json", &golden) != SNUG_OK)
        fail_msg("%s", snug_error_message(fixture->ctx));
    json_t *folders = json_object_get(golden, "folders"), *folder;
    size_t number;
    assert_true(json_array_size(folders) > 150);
    json_array_foreach(folders, number, folder) {
        put_folder(fixture, golden, folder);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        for (size_t i = 0; i < json_array_size(json_object_get(folder, "rows")); i++)
            check_row(fixture, tokenizer, folder, i);
        assert_int_equal(snug_tokenizer_vocab_size(tokenizer), json_integer_value(json_object_get(folder, "size")));
        snug_tokenizer_free(tokenizer);
    }
    json_decref(golden);
}

TEST_MAIN(NULL, NULL)
