/* SPDX-License-Identifier: Apache-2.0 */
/* BPE, Unigram and the parts of tokenizer.json against transformers' (tools/golden/tokenizer_parts.py), and refusals.
 */
#include "model/family.h"
#include "tokenizer_fixture.h"

#include "core/utf8.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/tokenizer_parts"

static void check_words(struct fixture *fixture, const struct snug_tokenizer *tokenizer, const char *name,
                        const json_t *rows) {
    struct snug_ids ids = {0}, of = {0}, row = {0}, row_of = {0};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *golden = json_array_get(rows, i), *list = json_array_get(golden, 0);
        struct snug_word words[16];
        size_t first_count;
        bool truncated;
        for (size_t k = 0; k < json_array_size(list); k++)
            words[k] = (struct snug_word){json_string_value(json_array_get(list, k)),
                                          json_string_length(json_array_get(list, k))};
        ids.count = of.count = row.count = row_of.count = 0;
        assert_int_equal(snug_tokenizer_encode_words(fixture->ctx, tokenizer, words, json_array_size(list), &ids, &of),
                         SNUG_OK);
        assert_int_equal(snug_tokenizer_assemble_words(fixture->ctx, tokenizer, &ids, &of,
                                                       (size_t)json_integer_value(json_array_get(golden, 1)), &row,
                                                       &row_of, &first_count, &truncated),
                         SNUG_OK);
        expect_ids(name, i, json_array_get(golden, 2), &row);
        expect_ids(name, i, json_array_get(golden, 3), &row_of);
    }
    free(ids.ids);
    free(of.ids);
    free(row.ids);
    free(row_of.ids);
}

static void check_special(const struct snug_tokenizer *tokenizer, const char *name, const json_t *special) {
    const struct snug_special_ids ids = snug_tokenizer_special(tokenizer);
    const int32_t found[] = {ids.cls, ids.sep, ids.pad, ids.unk, ids.mask};
    static const char *const names[] = {"cls", "sep", "pad", "unk", "mask"};
    for (size_t i = 0; i < 5; i++) {
        const json_t *expected = json_object_get(special, names[i]);
        /* A template's first and last token are reported as cls and sep, even if no file names them. */
        if (json_is_integer(expected) && json_integer_value(expected) != found[i])
            fail_msg("%s: %s is %d, expected %lld", name, names[i], found[i], json_integer_value(expected));
    }
}

FIXTURE_TEST(test_folders) {
    json_t *more = read_golden(fixture, GOLDEN_PARTS, "more"), *names = json_object_get(more, "names"),
           *texts = read_golden(fixture, GOLDEN_BERT, "texts");
    assert_true(json_array_size(names) >= 12);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_PARTS, name);
        json_t *golden = read_golden(fixture, GOLDEN_PARTS, name);
        check_texts(fixture, tokenizer, name, json_object_get(texts, "texts"), json_object_get(golden, "ids"));
        check_texts(fixture, tokenizer, name, json_object_get(more, "more"), json_object_get(golden, "more"));
        check_pairs(fixture, tokenizer, name, json_object_get(golden, "pairs"));
        check_words(fixture, tokenizer, name, json_object_get(golden, "words"));
        check_special(tokenizer, name, json_object_get(golden, "special"));
        assert_int_equal(snug_tokenizer_vocab_size(tokenizer), json_integer_value(json_object_get(golden, "size")));
        snug_tokenizer_free(tokenizer);
        json_decref(golden);
    }
    json_decref(more);
    json_decref(texts);
}

/* ---- every code point ---- */

static void hash_code_points(struct hashing *h, uint32_t block) {
    for (uint32_t code = block << 12; code < (block + 1) << 12; code++) {
        char text[8] = "a";
        if (code >= 0xd800 && code < 0xe000) continue;
        const size_t size = snug_utf8_put(text + 1, code);
        text[1 + size] = 'b';
        hash_text(h, text + 1, size);
        hash_text(h, text, size + 2);
    }
}

TEST_IN(test_every_code_point, void *fixture, set_up, tear_down) {
    check_code_points(fixture, GOLDEN_PARTS, 5, hash_code_points);
}
TEST_IN(test_random_texts, void *fixture, set_up, tear_down) { check_random_texts(fixture, GOLDEN_PARTS, 2); }

/* ---- single parts ---- */

/* tokenizer.json with these parts before ByteLevel, and byte-level BPE without merges. */
static void write_parts(struct fixture *fixture, const json_t *alphabet, const json_t *part) {
    char path[128];
    json_t *vocab = json_object();
    for (size_t i = 0; i < json_array_size(alphabet); i++)
        assert_int_equal(
            json_object_set_new(vocab, json_string_value(json_array_get(alphabet, i)), json_integer((json_int_t)i)), 0);
    json_t *value =
        json_pack("{s:O,s:O,s:{s:s,s:o,s:[]}}", "normalizer", json_object_get(part, "normalizer"), "pre_tokenizer",
                  json_object_get(part, "pre_tokenizer"), "model", "type", "BPE", "vocab", vocab, "merges");
    assert_non_null(value);
    snprintf(path, sizeof path, "%s/tokenizer.json", fixture->folder);
    assert_int_equal(snug_json_write(fixture->ctx, NULL, path, value), SNUG_OK);
    json_decref(value);
}

static void hash_texts(struct hashing *h, const json_t *texts) {
    for (size_t i = 0; i < json_array_size(texts); i++) {
        size_t length;
        char *text = golden_text(json_array_get(texts, i), &length);
        hash_text(h, text, length);
        free(text);
    }
}

/* Each text: 64 code points of the plane, with "a" after each. */
static void hash_plane(struct hashing *h, uint32_t plane) {
    for (uint32_t start = plane << 16; start < (plane + 1) << 16; start += 64) {
        char text[64 * 5];
        size_t length = 0;
        for (uint32_t code = start; code < start + 64; code++) {
            if (code >= 0xd800 && code < 0xe000) continue;
            length += snug_utf8_put(text + length, code);
            text[length++] = 'a';
        }
        hash_text(h, text, length);
    }
}

FIXTURE_TEST(test_parts) {
    json_t *golden = read_golden(fixture, GOLDEN_PARTS, "parts"), *cases = json_object_get(golden, "cases"),
           *more = read_golden(fixture, GOLDEN_PARTS, "more"), *texts = read_golden(fixture, GOLDEN_BERT, "texts");
    struct hashing h = {.fixture = fixture, .hash = XXH3_createState()};
    assert_true(json_array_size(cases) > 50);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *part = json_array_get(cases, i);
        char *what = json_dumps(json_object_get(part, i < 17 ? "normalizer" : "pre_tokenizer"), JSON_COMPACT);
        write_parts(fixture, json_object_get(golden, "alphabet"), part);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        h.tokenizer = tokenizer;
        XXH3_64bits_reset(h.hash);
        hash_texts(&h, json_object_get(texts, "texts"));
        hash_texts(&h, json_object_get(more, "more"));
        expect_hash(what, 99, h.hash, json_object_get(part, "texts"));
        static const uint32_t planes[] = {0, 1, 2, 14};
        for (size_t k = 0; k < (SANITIZED ? 1 : sizeof planes / sizeof *planes); k++) {
            XXH3_64bits_reset(h.hash);
            hash_plane(&h, planes[k]);
            expect_hash(what, planes[k], h.hash, json_array_get(json_object_get(part, "codes"), k));
        }
        snug_tokenizer_free(tokenizer);
        free(what);
    }
    free(h.ids.ids);
    XXH3_freeState(h.hash);
    json_decref(golden);
    json_decref(more);
    json_decref(texts);
}

/* ---- refusals ---- */

#define BPE_WITH(rest) "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}" rest "}"
#define BPE BPE_WITH(",\"merges\":[\"a b\"]")
#define UNIGRAM(pieces) "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[" pieces "]}"
#define WORDPIECE "\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"a\":1}}"
#define PART(section, part) "{\"" section "\":" part "," BPE "}"
#define ROWS(single, pair)                                                                                             \
    PART("post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"pair\":[" pair                  \
                           "],\"special_tokens\":{\"a\":{\"ids\":[0]},\"z\":{\"ids\":[9]},\"n\":{\"ids\":[-1]}}}")
#define A(type) "{\"Sequence\":{\"id\":\"A\",\"type_id\":" type "}}"
#define B(type) "{\"Sequence\":{\"id\":\"B\",\"type_id\":" type "}}"
#define T(name, type) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":" type "}}"

/* tokenizer.json, tokenizer_config.json, the status and a part of the message, which names the file. */
static const struct {
    const char *json, *config;
    snug_status status;
    const char *message;
} refused[] = {
    {PART("normalizer", "{\"type\":\"ByteLevel\"}"), NULL, SNUG_E_UNSUPPORTED,
     "tokenizer.json: the normalizer ByteLevel is not supported, only BertNormalizer, Sequence, NFC,"},
    {PART("normalizer", "{\"type\":7}"), NULL, SNUG_E_UNSUPPORTED, "the normalizer without a type is not supported"},
    {PART("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"\"}"), NULL,
     SNUG_E_UNSUPPORTED, "tokenizer.json: the regular expression \"x*\" is not supported: byte 1: a pattern that can"},
    {PART("normalizer", "{\"type\":\"Replace\",\"pattern\":{},\"content\":\"\"}"), NULL, SNUG_E_INPUT,
     "\"pattern\" of the normalizer Replace must be an object"},
    {PART("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"), NULL, SNUG_E_INPUT,
     "\"pattern\" of the normalizer Replace must be not empty"},
    {PART("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}"), NULL, SNUG_E_INPUT,
     "\"content\" of the normalizer Replace must be a string"},
    {PART("normalizer", "{\"type\":\"Prepend\"}"), NULL, SNUG_E_INPUT, "\"prepend\" of the normalizer Prepend"},
    {PART("normalizer", "{\"type\":\"Strip\",\"strip_left\":1}"), NULL, SNUG_E_INPUT, "strip_left"},
    {PART("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}"), NULL, SNUG_E_INPUT,
     "tokenizer.json: precompiled_charsmap"},
    {PART("normalizer", "{\"type\":\"Precompiled\"}"), NULL, SNUG_E_INPUT, "precompiled_charsmap"},
    {PART("pre_tokenizer", "{\"type\":\"UnicodeScripts\"}"), NULL, SNUG_E_UNSUPPORTED,
     "tokenizer.json: the pre_tokenizer UnicodeScripts is not supported, only BertPreTokenizer,"},
    {PART("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x(\"},\"behavior\":\"Isolated\"}"), NULL,
     SNUG_E_UNSUPPORTED, "the regular expression \"x(\" is not supported: byte 2: a group without )"},
    {PART("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Torn\"}"), NULL,
     SNUG_E_UNSUPPORTED, "\"behavior\" Torn of the pre_tokenizer Split is not supported"},
    {PART("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"), NULL,
     SNUG_E_UNSUPPORTED, "\"prepend_scheme\" last of the pre_tokenizer Metaspace"},
    {PART("pre_tokenizer", "{\"type\":\"Metaspace\",\"prepend_scheme\":\"always\"}"), NULL, SNUG_E_INPUT,
     "\"replacement\" of the pre_tokenizer Metaspace must be a string"},
    {PART("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"\"}"), NULL, SNUG_E_INPUT,
     "\"replacement\" of the pre_tokenizer Metaspace must be a character"},
    {PART("pre_tokenizer",
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Whitespace\"},{\"type\":\"Metaspace\","
          "\"replacement\":\"_\",\"prepend_scheme\":\"first\"}]}"),
     NULL, SNUG_E_UNSUPPORTED, "\"prepend_scheme\" first after other pre-tokenizers"},
    {"{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
     "\"prepend_scheme\":\"first\"}," BPE "}",
     NULL, SNUG_E_UNSUPPORTED, "\"prepend_scheme\" first of the pre_tokenizer Metaspace is not supported after a norm"},
    {PART("pre_tokenizer",
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}"),
     NULL, SNUG_E_UNSUPPORTED, "the pre_tokenizer ByteLevel is not supported before another one"},
    {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," WORDPIECE "}", NULL, SNUG_E_UNSUPPORTED,
     "the pre_tokenizer ByteLevel is not supported with another model than BPE"},
    {PART("pre_tokenizer", "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\"}"), NULL, SNUG_E_INPUT, "delimiter"},
    {PART("pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":{}}"), NULL, SNUG_E_INPUT,
     "\"pretokenizers\" of the pre_tokenizer Sequence must be a list"},
    {"{" BPE_WITH("") "}", NULL, SNUG_E_INPUT, "\"model\" has no list \"merges\""},
    {"{" BPE_WITH(",\"merges\":[\"a b\",\"ab\"]") "}", NULL, SNUG_E_INPUT,
     "number 2 of \"merges\" is not two tokens with a space between them"},
    {"{" BPE_WITH(",\"merges\":[[\"a\",\"b\",\"c\"]]") "}", NULL, SNUG_E_INPUT, "number 1 of \"merges\""},
    {"{" BPE_WITH(",\"merges\":[\"a b c\"]") "}", NULL, SNUG_E_INPUT, "number 1 of \"merges\""},
    {"{" BPE_WITH(",\"merges\":[[\"a\",1]]") "}", NULL, SNUG_E_INPUT, "number 1 of \"merges\""},
    {"{" BPE_WITH(",\"merges\":[\"a c\"]") "}", NULL, SNUG_E_INPUT,
     "tokenizer.json: merge 1 needs the token \"c\", which the vocabulary lacks"},
    {"{" BPE_WITH(",\"merges\":[\"b a\"]") "}", NULL, SNUG_E_INPUT, "needs the token \"ba\""},
    {"{" BPE_WITH(",\"merges\":[\"c b\"]") "}", NULL, SNUG_E_INPUT, "needs the token \"c\""},
    {"{" BPE_WITH(",\"merges\":[],\"dropout\":0.1") "}", NULL, SNUG_E_UNSUPPORTED, "\"dropout\" 0.1 of the model BPE"},
    {"{" BPE_WITH(",\"merges\":[],\"continuing_subword_prefix\":\"##\"") "}", NULL, SNUG_E_UNSUPPORTED,
     "\"continuing_subword_prefix\" \"##\" of the model BPE is not supported"},
    {"{" BPE_WITH(",\"merges\":[],\"end_of_word_suffix\":\"</w>\"") "}", NULL, SNUG_E_UNSUPPORTED,
     "\"end_of_word_suffix\" \"</w>\" of the model BPE is not supported"},
    {"{" BPE_WITH(",\"merges\":[],\"unk_token\":\"?\"") "}", NULL, SNUG_E_INPUT, "the unknown token \"?\" is not"},
    {"{" UNIGRAM("") "}", NULL, SNUG_E_INPUT, "the vocabulary is empty"},
    {"{" UNIGRAM("[\"a\"]") "}", NULL, SNUG_E_INPUT, "number 0 of \"vocab\" is not a piece with a score"},
    {"{" UNIGRAM("[\"a\",0],[\"a\",-1]") "}", NULL, SNUG_E_INPUT, "token \"a\" is listed twice"},
    {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",0]]}}", NULL, SNUG_E_INPUT, "5"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", NULL, SNUG_E_INPUT, "has no list \"vocab\" of pieces"},
    {PART("decoder", "{\"type\":\"CTC\"}"), NULL, SNUG_E_UNSUPPORTED,
     "tokenizer.json: the decoder CTC is not supported, only WordPiece,"},
    {PART("post_processor", "{\"type\":\"Other\"}"), NULL, SNUG_E_UNSUPPORTED,
     "the post_processor Other is not supported, only BertProcessing, RobertaProcessing, TemplateProcessing,"},
    {PART("post_processor", "{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"z\",9]}"), NULL, SNUG_E_INPUT,
     "adds the id 9, which no token has"},
    {PART("post_processor", "{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0]}"), NULL, SNUG_E_INPUT,
     "there is no sep_token"},
    {ROWS(A("0"), A("0")), NULL, SNUG_E_UNSUPPORTED, "whose \"pair\" has not each sequence once"},
    {ROWS(T("a", "0"), A("0") "," B("0")), NULL, SNUG_E_UNSUPPORTED, "whose \"single\" has not each sequence once"},
    {ROWS(A("0") "," A("0"), A("0") "," B("0")), NULL, SNUG_E_UNSUPPORTED, "a sequence occurs twice, or B before A"},
    {ROWS(A("0"), B("0") "," A("0")), NULL, SNUG_E_UNSUPPORTED, "a sequence occurs twice, or B before A"},
    {ROWS(A("0"), A("1") "," B("0")), NULL, SNUG_E_UNSUPPORTED, "token types must be first 0, then 1"},
    {ROWS(A("2"), A("0") "," B("0")), NULL, SNUG_E_UNSUPPORTED, "piece 1 of \"single\" is neither"},
    {ROWS(A("-1"), A("0") "," B("0")), NULL, SNUG_E_UNSUPPORTED, "piece 1 of \"single\" is neither"},
    {ROWS("{\"Sequence\":{\"type_id\":0}}", A("0") "," B("0")), NULL, SNUG_E_UNSUPPORTED,
     "piece 1 of \"single\" is neither"},
    {ROWS("{\"Sequence\":{\"id\":\"C\",\"type_id\":0}}", A("0") "," B("0")), NULL, SNUG_E_UNSUPPORTED,
     "piece 1 of \"single\" is neither"},
    {ROWS(A("0") "," T("z", "0"), A("0") "," B("0")), NULL, SNUG_E_INPUT, "adds the id 9"},
    {ROWS(A("0") "," T("n", "0"), A("0") "," B("0")), NULL, SNUG_E_INPUT, "must be ids from 0"},
    {ROWS(A("0") "," T("y", "0"), A("0") "," B("0")), NULL, SNUG_E_UNSUPPORTED, "its token \"y\" has no \"ids\""},
    {"{" BPE "}", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}", SNUG_E_UNSUPPORTED,
     "the model BPE is not supported with the tokenizer class XLMRobertaTokenizer, only Unigram"},
    {"{" BPE "}", "{\"tokenizer_class\":\"RobertaTokenizer\",\"cls_token\":null}", SNUG_E_INPUT,
     "there is no cls_token"},
    {NULL, "{\"tokenizer_class\":\"CamembertTokenizer\"}", SNUG_E_INPUT, "has no tokenizer: neither vocab.txt, nor"},
};

FIXTURE_TEST(test_refused) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        put_file(fixture, "tokenizer.json", refused[i].json);
        put_file(fixture, "tokenizer_config.json", refused[i].config);
        expect_refusal(fixture, i, refused[i].status, refused[i].message);
    }
    /* Sequences nested too deeply. */
    char deep[4096] = "";
    for (int i = 0; i < 20; i++) strcat(deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 20; i++) strcat(deep, "]}");
    char text[8192];
    snprintf(text, sizeof text, "{\"normalizer\":%s," BPE "}", deep);
    put_file(fixture, "tokenizer.json", text);
    put_file(fixture, "tokenizer_config.json", NULL);
    expect_refusal(fixture, 1000, SNUG_E_UNSUPPORTED, "\"normalizers\" so deep of the normalizer Sequence");
    put_file(fixture, "tokenizer.json", NULL);
}

/* Files that are read where there is no tokenizer.json. */
FIXTURE_TEST(test_refused_files) {
    static const struct {
        const char *class, *vocab, *merges, *pieces, *message;
    } cases[] = {
        {"RobertaTokenizer", "{\"a\":0}", NULL, NULL, "neither tokenizer.json nor merges.txt exists"},
        {"RobertaTokenizer", NULL, NULL, "x", "neither tokenizer.json nor vocab.json exists"},
        {"XLMRobertaTokenizer", "{\"a\":0}", "", NULL, "neither tokenizer.json nor sentencepiece.bpe.model exists"},
        {"MPNetTokenizer", "{\"a\":0}", "", NULL, "neither tokenizer.json nor vocab.txt exists"},
        {"RobertaTokenizer", "[]", "", NULL, "vocab.json"},
        {"RobertaTokenizer", "{}", "", NULL, "vocab.json: the vocabulary is empty"},
        {"RobertaTokenizer", "{\"a\":\"x\"}", "", NULL, "vocab.json: the id of token \"a\" is not a number from 0"},
        {"RobertaTokenizer", "{\"a\":0}", "#version: 0.2\na\n", NULL,
         "merges.txt, line 2: not two tokens with a space between them"},
        {"RobertaTokenizer", "{\"a\":0}", "a  b\n", NULL, "merges.txt, line 1"},
        {"RobertaTokenizer", "{\"a\":0}", "a a\n", NULL, "merges.txt: merge 1 needs the token \"aa\""},
        {"RobertaTokenizer", "{\"a\":0}", "a \n", NULL, "merges.txt, line 1"},
        {"RobertaTokenizer", "{\"a\":0}", "\r\n\na a", NULL, "merges.txt: merge 1 needs the token \"aa\""},
        {"CamembertTokenizer", NULL, NULL, "\x0a\xff", "sentencepiece.bpe.model"},
        {"LlamaTokenizer", "{\"a\":0}", "", "\x0a\xff", "neither tokenizer.json nor tokenizer.model exists"},
    };
    static const struct {
        const char *class, *pieces, *message;
        snug_status status;
    } models[] = {
        {"LlamaTokenizer", "\x0a\xff", "tokenizer.model: byte", SNUG_E_INPUT},
        {"GemmaTokenizer",
         "\x0a\x03\x0a\x01"
         "a\x12\x02\x18\x01",
         "is of type UNIGRAM (trainer_spec.model_type 1); only BPE", SNUG_E_UNSUPPORTED},
        {"GemmaTokenizer",
         "\x0a\x03\x0a\x01"
         "a\x0a\x03\x0a\x01"
         "a\x12\x02\x18\x02",
         "\"a\"", SNUG_E_INPUT},
        {"LlamaTokenizer", "IQ== 0\nIg== 1\n", "perhaps tiktoken's", SNUG_E_UNSUPPORTED},
        {"LlamaTokenizer", "+w== 0\n", "perhaps tiktoken's", SNUG_E_UNSUPPORTED},
        {"LlamaTokenizer", "/w== 0\n", "perhaps tiktoken's", SNUG_E_UNSUPPORTED},
        {"PreTrainedTokenizerFast", "\x0a\xff", "tokenizer.model: byte", SNUG_E_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[128];
        snprintf(config, sizeof config, "{\"tokenizer_class\":\"%s\"}", cases[i].class);
        put_file(fixture, "tokenizer_config.json", config);
        put_file(fixture, "vocab.json", cases[i].vocab);
        put_file(fixture, "merges.txt", cases[i].merges);
        put_file(fixture, "sentencepiece.bpe.model", cases[i].pieces);
        expect_refusal(fixture, i, SNUG_E_INPUT, cases[i].message);
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char config[128];
        snprintf(config, sizeof config, "{\"tokenizer_class\":\"%s\"}", models[i].class);
        put_file(fixture, "tokenizer_config.json", config);
        put_file(fixture, "tokenizer.model", models[i].pieces);
        expect_refusal(fixture, 100 + i, models[i].status, models[i].message);
    }
    static const char nul[] = "\x0a\x04\x0a\x02"
                              "a\0\x12\x02\x18\x02";
    char path[128];
    put_file(fixture, "tokenizer_config.json", "{\"tokenizer_class\":\"LlamaTokenizer\"}");
    snprintf(path, sizeof path, "%s/tokenizer.model", fixture->folder);
    assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, nul, sizeof nul - 1), SNUG_OK);
    expect_refusal(fixture, 200, SNUG_E_INPUT, "piece 0 holds a NUL");
    put_file(fixture, "tokenizer_config.json", NULL);
    put_file(fixture, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n"); /* which PreTrainedTokenizer reads instead */
    snug_tokenizer_free(load(fixture, fixture->folder));
}

/* What SentencePiece's own settings are not read of: pieces, trainer_spec and normalizer_spec. */
FIXTURE_TEST(test_unusual_pieces) {
#define PIECE_A                                                                                                        \
    "\x0a\x03\x0a\x01"                                                                                                 \
    "a"
#define PIECE_UNKNOWN                                                                                                  \
    "\x0a\x09\x0a\x05"                                                                                                 \
    "<unk>"                                                                                                            \
    "\x18\x02"
#define TRAINED "\x12\x05\x18\x02\x98\x02\x01"
#define KEEPS "\x1a\x02\x20\x00"
#define MODEL(text)                                                                                                    \
    { (text), sizeof(text) - 1 }
    static const struct {
        const char *data;
        size_t size;
    } models[] = {MODEL(PIECE_UNKNOWN PIECE_A TRAINED KEEPS), /* the usual one */
                  MODEL(PIECE_UNKNOWN PIECE_A TRAINED),       /* extra spaces are removed */
                  MODEL(PIECE_UNKNOWN PIECE_A "\x12\x02\x18\x02" KEEPS),
                  MODEL(PIECE_UNKNOWN PIECE_A TRAINED "\x1a\x04\x20\x00\x18\x00"), /* no prefix */
                  MODEL(PIECE_UNKNOWN PIECE_A TRAINED "\x1a\x04\x20\x00\x28\x00"), /* spaces stay */
                  MODEL(PIECE_UNKNOWN PIECE_A TRAINED "\x1a\x05\x20\x00\x12\x01x"),
                  MODEL(PIECE_UNKNOWN "\x0a\x05\x0a\x01"
                                      "a"
                                      "\x18\x04" TRAINED KEEPS)};
    char path[128];
    snprintf(path, sizeof path, "%s/tokenizer.model", fixture->folder);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, models[i].data, models[i].size), SNUG_OK);
        if (i)
            expect_refusal(fixture, i, SNUG_E_UNSUPPORTED, "write a tokenizer.json with transformers");
        else
            snug_tokenizer_free(load(fixture, fixture->folder));
    }
}

/* A byte that no token has is left out, whatever byte_fallback says, and a merge that is listed twice counts once. */
FIXTURE_TEST(test_unknown_bytes) {
    struct snug_ids ids = {0};
    put_file(fixture, "tokenizer.json",
             "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," BPE_WITH(
                 ",\"byte_fallback\":true,\"merges\":[[\"a\",\"b\"],[\"a\",\"b\"]]") "}");
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    encode(fixture, tokenizer, "zabz", 4, &ids);
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.ids[0], 2);
    free(ids.ids);
    snug_tokenizer_free(tokenizer);
}

/* Ids without a token, an empty token, a token that begins with a merged one, and words that are tokens although no
   merges make them: those are unknown, the second time, too. */
FIXTURE_TEST(test_words_and_holes) {
    static const struct {
        const char *model, *text;
        int32_t id;
    } cases[] = {
        {"{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"merges\":[\"a b\"],"
         "\"vocab\":{\"<unk>\":0,\"abc\":1,\"xy\":3,\"a\":4,\"b\":5,\"ab\":6,\"\u2581\":7,\"\":8}}}",
         "xy", 0},
        {NULL, "xy", 0},
        {NULL, "ab", 6},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
         "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"b\":2}}}",
         "b", 2},
    };
    struct snug_tokenizer *tokenizer = NULL;
    struct snug_ids ids = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].model) {
            snug_tokenizer_free(tokenizer);
            put_file(fixture, "tokenizer.json", cases[i].model);
            tokenizer = load(fixture, fixture->folder);
        }
        ids.count = 0;
        encode(fixture, tokenizer, cases[i].text, strlen(cases[i].text), &ids);
        assert_int_equal(ids.count, 1);
        assert_int_equal(ids.ids[0], cases[i].id);
    }
    free(ids.ids);
    snug_tokenizer_free(tokenizer);
}

/* ---- fingerprints, saving, long words ---- */

/* Each change of a part changes the fingerprint. */
FIXTURE_TEST(test_fingerprints) {
    static const char *const files[] = {
        "{" BPE "}",
        "{" BPE_WITH(",\"merges\":[]") "}",
        "{" BPE_WITH(",\"merges\":[\"a b\"],\"ignore_merges\":true") "}",
        "{" BPE_WITH(",\"merges\":[\"a b\"],\"fuse_unk\":true") "}",
        "{" BPE_WITH(",\"merges\":[\"a b\"],\"byte_fallback\":true") "}",
        "{" BPE_WITH(",\"merges\":[\"a b\"],\"unk_token\":\"a\"") "}",
        PART("normalizer", "{\"type\":\"NFC\"}"),
        PART("normalizer", "{\"type\":\"NFD\"}"),
        PART("normalizer", "{\"type\":\"NFKC\"}"),
        PART("normalizer", "{\"type\":\"Strip\",\"strip_left\":false}"),
        PART("normalizer", "{\"type\":\"Strip\",\"strip_right\":false}"),
        PART("normalizer", "{\"type\":\"Prepend\",\"prepend\":\"a\"}"),
        PART("normalizer", "{\"type\":\"Prepend\",\"prepend\":\"b\"}"),
        PART("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}"),
        PART("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"\"}"),
        PART("pre_tokenizer", "{\"type\":\"ByteLevel\"}"),
        PART("pre_tokenizer", "{\"type\":\"ByteLevel\",\"use_regex\":false}"),
        PART("pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"),
        PART("pre_tokenizer", "{\"type\":\"Digits\"}"),
        PART("pre_tokenizer", "{\"type\":\"Digits\",\"individual_digits\":true}"),
        PART("pre_tokenizer", "{\"type\":\"Punctuation\"}"),
        PART("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\"}"),
        PART("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"b\"},\"behavior\":\"Isolated\"}"),
        PART("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"b\"},\"behavior\":\"Isolated\"}"),
        PART("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"c\"},\"behavior\":\"Isolated\"}"),
        PART("pre_tokenizer",
             "{\"type\":\"Split\",\"pattern\":{\"String\":\"b\"},\"behavior\":\"Isolated\",\"invert\":true}"),
        ROWS(A("0"), A("0") "," B("0")),
        ROWS(A("0") "," T("a", "0"), A("0") "," B("0")),
        "{" UNIGRAM("[\"a\",0],[\"b\",-1]") "}",
        "{" UNIGRAM("[\"a\",0],[\"b\",-2]") "}",
        "{" WORDPIECE "}",
    };
    enum { FILES = sizeof files / sizeof *files };
    uint64_t prints[FILES];
    for (size_t i = 0; i < FILES; i++) {
        put_file(fixture, "tokenizer.json", files[i]);
        put_file(fixture, "tokenizer_config.json", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}");
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        prints[i] = snug_tokenizer_fingerprint(tokenizer);
        for (size_t k = 0; k < i; k++)
            if (prints[k] == prints[i]) fail_msg("files %zu and %zu have the same fingerprint", k, i);
        snug_tokenizer_free(tokenizer);
    }
    /* Token types, which the class does not return. */
    put_file(fixture, "tokenizer_config.json",
             "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"model_input_names\":[\"token_type_ids\"]}");
    struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
    assert_true(prints[FILES - 1] != snug_tokenizer_fingerprint(tokenizer));
    snug_tokenizer_free(tokenizer);
}

/* A saved tokenizer loads as the same tokenizer. */
FIXTURE_TEST(test_saved) {
    static const char *const names[] = {"roberta_files", "roberta", "camembert", "xlm_roberta_json", "mpnet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char to[128], config[64];
        struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_PARTS, names[i]);
        snprintf(to, sizeof to, "%s/%s", fixture->folder, names[i]);
        assert_int_equal(snug_folder_create(fixture->ctx, to), SNUG_OK);
        assert_int_equal(tokenizer_save(fixture->ctx, tokenizer, to), SNUG_OK);
        /* Its class is saved, also if it followed from the model's type: here it is beside another model. */
        snprintf(config, sizeof config, "%s/config.json", names[i]);
        put_file(fixture, config, "{\"model_type\":\"electra\"}");
        struct snug_tokenizer *again = load(fixture, to);
        assert_true(snug_tokenizer_fingerprint(tokenizer) == snug_tokenizer_fingerprint(again));
        snug_tokenizer_free(tokenizer);
        snug_tokenizer_free(again);
    }
}

/* ---- failing allocations ------ */

static int64_t allocations_left = INT64_MAX; /* until one fails */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) { return allocations_left-- > 0 ? __real_calloc(count, size) : NULL; }
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size) { return allocations_left-- > 0 ? __real_realloc(memory, size) : NULL; }

/* Decodes ids, together and one by one. */
static snug_status decode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const struct snug_ids *ids) {
    struct snug_text text = {0};
    struct snug_decode_stream stream = {.tokenizer = tokenizer};
    const char *part;
    size_t length;
    snug_status status = snug_tokenizer_decode(ctx, tokenizer, ids->ids, ids->count, true, &text);
    for (size_t i = 0; i < ids->count && status == SNUG_OK; i++)
        status = snug_decode_stream_push(ctx, &stream, ids->ids[i], &part, &length);
    if (status == SNUG_OK) status = snug_decode_stream_end(ctx, &stream, &part, &length);
    snug_decode_stream_free(&stream);
    free(text.text);
    return status;
}

/* Loads a folder, encodes a text and words, assembles rows of them, and decodes one. */
static snug_status load_and_encode(snug_context *ctx, const char *folder, struct snug_tokenizer **tokenizer,
                                   struct snug_ids *ids, struct snug_ids *word_of) {
    static const char text[] = "  xa b\xc3\xa9 e\xcc\x81  film's 12, <mask> \xe4\xb8\xad unbelievable";
    const struct snug_word words[] = {{text, sizeof text - 1}, {"a", 1}};
    struct snug_ids *const row = &ids[1];
    size_t first_count;
    bool truncated;
    RETURN_IF_ERROR(snug_tokenizer_load(ctx, folder, snug_family_tokenizer_class, tokenizer));
    RETURN_IF_ERROR(snug_tokenizer_encode_words(ctx, *tokenizer, words, 2, ids, word_of));
    RETURN_IF_ERROR(
        snug_tokenizer_assemble_words(ctx, *tokenizer, ids, word_of, 512, row, &word_of[1], &first_count, &truncated));
    RETURN_IF_ERROR(snug_tokenizer_assemble(ctx, *tokenizer, ids, ids, 512, row, &first_count, &truncated));
    return decode(ctx, *tokenizer, row);
}

static void fail_each_allocation(const char *folder) {
    snug_status status = SNUG_E_MEMORY;
    for (int64_t number = 0; status != SNUG_OK; number++) {
        struct snug_tokenizer *tokenizer = NULL;
        struct snug_ids ids[2] = {{0}}, word_of[2] = {{0}};
        snug_context *ctx;
        assert_int_equal(snug_context_create(&ctx), SNUG_OK);
        allocations_left = number;
        status = load_and_encode(ctx, folder, &tokenizer, ids, word_of);
        allocations_left = INT64_MAX;
        if (status != SNUG_OK && status != SNUG_E_MEMORY)
            fail_msg("%s, allocation %lld: %s", folder, (long long)number, snug_error_message(ctx));
        snug_tokenizer_free(tokenizer);
        for (int i = 0; i < 2; i++) {
            free(ids[i].ids);
            free(word_of[i].ids);
        }
        snug_context_destroy(ctx);
        assert_true(number < 10000);
    }
}

FIXTURE_TEST(test_failing_allocations) {
    static const char *const files[] = {
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\",\"pattern\":"
        "{"
        "\"String\":\"x\"},\"content\":\"yy\"},{\"type\":\"Prepend\",\"prepend\":\"z\"},{\"type\":\"Replace\","
        "\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}]},\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-c](?i:b|[^c])+|(?>d)\"},\"behavior\":"
        "\"Isolated\"},{\"type\":"
        "\"ByteLevel\"}]}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"decoder\":{\"type\":\"Sequence\","
        "\"decoders\":["
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"_+\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
        "\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}," UNIGRAM(
            "[\"a\",0],[\"b\",-1.5],[\"<0xFF>\",-2]") "}",
        "{\"normalizer\":{\"type\":\"BertNormalizer\"}," WORDPIECE "}",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put_file(fixture, "tokenizer.json", files[i]);
        put_file(fixture, "tokenizer_config.json", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}");
        fail_each_allocation(fixture->folder);
    }
    fail_each_allocation(GOLDEN "/camembert");
    fail_each_allocation(GOLDEN "/roberta_prefix");
    fail_each_allocation(GOLDEN "/mpnet");
}

/* Words of a million letters, with merges in every order: quadratic time would take minutes. */
FIXTURE_TEST(test_long_words) {
    static const char *const names[] = {"roberta", "bpe_characters", "unigram", "xlm_roberta", "mpnet"};
    enum { LETTERS = SANITIZED ? 100000 : 1000000 };
    char *text = malloc(LETTERS);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct snug_tokenizer *tokenizer = load_golden(fixture, GOLDEN_PARTS, names[i]);
        struct snug_ids ids = {0};
        for (int kind = 0; kind < 3; kind++) {
            for (size_t k = 0; k < LETTERS; k++)
                text[k] = kind == 0 ? 'a' : kind == 1 ? "the"[k % 3] : (char)('a' + k * k % 26);
            const double begin = snug_seconds();
            encode(fixture, tokenizer, text, LETTERS, &ids);
            assert_true(snug_seconds() - begin < 30);
            assert_true(ids.count > 0);
        }
        free(ids.ids);
        snug_tokenizer_free(tokenizer);
    }
    free(text);
}

/* Pieces that tokenizer_config.json names null keep fairseq's names. */
FIXTURE_TEST(test_unnamed_pieces) {
    static const char *const classes[][2] = {{"xlm_roberta", "XLMRobertaTokenizer"},
                                             {"camembert", "CamembertTokenizer"}};
    for (size_t i = 0; i < 2; i++) {
        char path[512], config[256], *data;
        size_t size;
        snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/tokenizer_parts/%s/sentencepiece.bpe.model",
                 classes[i][0]);
        assert_int_equal(snug_file_read(fixture->ctx, NULL, path, &data, &size), SNUG_OK);
        snprintf(path, sizeof path, "%s/sentencepiece.bpe.model", fixture->folder);
        assert_int_equal(snug_file_replace(fixture->ctx, NULL, path, data, size), SNUG_OK);
        free(data);
        snprintf(config, sizeof config,
                 "{\"tokenizer_class\":\"%s\",\"mask_token\":null,\"pad_token\":null,\"unk_token\":null}",
                 classes[i][1]);
        put_file(fixture, "tokenizer_config.json", config);
        struct snug_tokenizer *tokenizer = load(fixture, fixture->folder);
        const struct snug_special_ids special = snug_tokenizer_special(tokenizer);
        assert_string_equal(snug_tokenizer_token(tokenizer, 1), "<pad>");
        assert_string_equal(snug_tokenizer_token(tokenizer, 3), "<unk>");
        assert_int_equal(special.pad, -1);
        assert_int_equal(special.mask, -1);
        int32_t last = 0;
        for (int32_t id = 0; id < snug_tokenizer_vocab_size(tokenizer); id++)
            if (!strcmp(snug_tokenizer_token(tokenizer, id), "<mask>")) last = id;
        assert_true(last > 1000);
        snug_tokenizer_free(tokenizer);
    }
}

TEST_MAIN(NULL, NULL)
