/* SPDX-License-Identifier: Apache-2.0 */
/* Files and folders of the wrong kind are recognised wherever they are opened, and the message has the way out. */
#include <sys/stat.h>
#include <zlib.h>

#include "data/data_file.h"
#include "data/reader.h"
#include "io/file_kind.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/weights.h"
#include "scratch.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234567\n";

/* ---- files ---- */

/* The header of a zip archive's first entry. */
#define ZIP(length) "PK\3\4\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" length "\0\0\0"
#define BYTES(text) text, sizeof(text) - 1

static const struct {
    const char *bytes;
    size_t size;
    const char *says;
} kinds[] = {
    {BYTES("version https://git-lfs.github.com/spec/v1\n"), "is a Git LFS pointer, not the file itself: run \"git lfs"},
    {BYTES("version https://hawser.github.com/spec/v1\n"), "is a Git LFS pointer"},
    {BYTES("/annex/objects/SHA256E-s30\n"), "is a git-annex pointer, not the file itself: run \"git annex get\""},
    {BYTES("BZh91AY&SY\x11\x22"), "is compressed by bzip2: decompress it (bunzip2)"},
    {BYTES("\xfd\67zXZ\0\0\4"), "is compressed by xz: decompress it (unxz)"},
    {BYTES("\x28\xb5\x2f\xfd\x04\x58"), "is compressed by zstd: decompress it (unzstd)"},
    {BYTES("\x04\x22\x4d\x18\x64"), "is compressed by lz4"},
    {BYTES("\x1f\x9d\x90"), "is compressed by compress"},
    {BYTES("7z\xbc\xaf\x27\x1c\0\4"), "is a 7-Zip archive"},
    {BYTES("Rar!\x1a\x07\1\0"), "is a RAR archive"},
    {BYTES(ZIP("\x09") "data/train.csv"), "is a zip archive: unpack it (unzip)"},
    {BYTES("PK\5\6\0\0\0\0"), "is a zip archive"},
    {BYTES("PK\3\4\0\0"), "is a zip archive"},
    {BYTES(ZIP("\x10") "archive/data.pkl"), "is a pickled PyTorch file"},
    {BYTES(ZIP("\x0a") "arr_00.npyMORE"), "is an archive of NumPy arrays"},
    {BYTES(ZIP("\x13") "[Content_Types].xml"), "(as .xlsx or .docx): save a table as CSV"},
    {BYTES(ZIP("\x0b") "_rels/.rels"), "(as .xlsx or .docx)"},
    {BYTES(ZIP("\x08") "mimetypeapplication/vnd.oasis"), "a document of LibreOffice, or an e-book"},
    {BYTES(ZIP("\xff") "a"), "is a zip archive"},
    {BYTES("PAR1\x15\4\x15"), "is a Parquet file: write its rows as JSON Lines, in Python: pandas.read_parquet("},
    {BYTES("ARROW1\0\0\xff\xff\xff\xff"), "is an Arrow or Feather file"},
    {BYTES("\xff\xff\xff\xff\x10\0\0\0"), "is an Arrow stream: write its rows as JSON Lines, in Python: datasets."},
    {BYTES("ORC\x0a\3\1"), "is an ORC file"},
    {BYTES("Obj\1\4"), "is an Avro file"},
    {BYTES("\x89HDF\r\n\x1a\n\0"), "is an HDF5 file"},
    {BYTES("SQLite format 3\0\x10"), "is an SQLite database: write its rows as CSV"},
    {BYTES("\x93NUMPY\1\0"), "is a NumPy array"},
    {BYTES("\x80\4\x95\x1f\0"), "is a pickled Python object, which may run any code when it is loaded: write its rows"},
    {BYTES("%PDF-1.7\n"), "is a PDF document: write its text into a text file (pdftotext)"},
    {BYTES("{\\rtf1\\ansi"), "is an RTF document"},
    {BYTES("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0"), "is a document of Microsoft Office: save it as CSV"},
    {BYTES("GGUF\3\0\0\0"), "is a model in GGUF"},
    {BYTES("\x89PNG\r\n\x1a\n\0"), "is a picture"},
    {BYTES("\xff\xd8\xff\xe0"), "is a picture"},
    {BYTES("\177ELF\2\1\1"), "is a program"},
    {BYTES("\xff\xfet\0e\0"), "is UTF-16 text: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
    {BYTES("\xfe\xff\0t\0e"), "is UTF-16 text"},
    {BYTES("<!DOCTYPE html>\n<html lang=\"en\">"), "is an HTML page, not the file itself: download the file again"},
    {BYTES("\n\n  \r\n<html><head>"), "is an HTML page"},
    {BYTES("\xef\xbb\xbf<!doctype HTML>"), "is an HTML page"},
    {BYTES("<?xml version=\"1.0\"?><Error><Code>AccessDenied"), "is an XML document: if a server sent it"},
};

static snug_status read_data(struct scratch *s, const char *path, const char *format) {
    struct snug_reader *reader;
    const struct snug_reader_options options = {.format = format};
    RETURN_IF_ERROR(snug_reader_open(s->ctx, path, &options, &reader));
    snug_reader_close(reader);
    return SNUG_OK;
}

FIXTURE_TEST(kinds_of_files) {
    static const char *const formats[] = {"csv", "tsv", "jsonl", "txt", "conll"};
    char *text;
    size_t size;
    json_t *json;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *path = scratch_write(s, "a.file", kinds[i].bytes, kinds[i].size), *says = kinds[i].says;
        assert_fails(s, snug_file_read(s->ctx, NULL, path, &text, &size), SNUG_E_INPUT, says);
        assert_null(text);
        assert_fails(s, snug_json_read(s->ctx, NULL, path, &json), SNUG_E_INPUT, says);
        const char *format = formats[i % 5];
        if (strcmp(format, "conll") != 0) assert_fails(s, read_data(s, path, format), SNUG_E_INPUT, says);
        assert_fails(s, read_data(s, path, NULL), SNUG_E_INPUT, says); /* its name tells no format */
    }
    /* gzip is for data alone */
    const char *path = scratch_write(s, "vocab.txt", BYTES("\x1f\x8b\x08\0"));
    assert_fails(s, snug_file_read(s->ctx, NULL, path, &text, &size), SNUG_E_INPUT, "compressed by gzip: decompress");
}

/* Texts that begin like one of them. */
TEST(kinds_that_are_texts) {
    static const char *const texts[] = {
        "",           "version 1 of the text\n", "PK\nis a name\n",   "GGUF is a format\n",  "PAR1,label\n",
        "ORC\nan\n",  "ARROW1 and 2\n",          "<h1>a title\n",     "html> is no tag\n",   "/annex\n",
        "BZh9\nno\n", "Rar! is a word\n",        "{\"a\": \"PK\"}\n", "\x80 is malformed\n", "\xef\xbb\xbftext\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (snug_file_kind(texts[i], strlen(texts[i])))
            fail_msg("%s is no %s", texts[i], snug_file_kind(texts[i], strlen(texts[i]))->name);
    assert_null(snug_file_kind("\n\0<html", 7));
    assert_null(snug_file_kind("\x80\1", 2));
    char tar[SNUG_KIND_BYTES] = "train.csv";
    memcpy(tar + 257, "ustar", 6);
    assert_string_equal(snug_file_kind(tar, sizeof tar)->name, "a tar archive");
    assert_null(snug_file_kind(tar, 261));
}

/* A pointer within gzip, through a pipe that gives it byte by byte, and where weights are expected. */
FIXTURE_TEST(ways_of_opening) {
    unsigned char packed[256] = {0};
    z_stream stream = {.next_in = (unsigned char *)pointer,
                       .avail_in = sizeof pointer - 1,
                       .next_out = packed,
                       .avail_out = sizeof packed};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    const char *path = scratch_write(s, "a.csv.gz", packed, sizeof packed - stream.avail_out);
    assert_fails(s, read_data(s, path, NULL), SNUG_E_INPUT, "a.csv.gz is a Git LFS pointer");

    int ends[2];
    struct snug_reader *reader;
    const struct snug_reader_options options = {.format = "txt"};
    assert_int_equal(pipe(ends), 0);
    for (const char *at = pointer; *at; at++) assert_int_equal(write(ends[1], at, 1), 1);
    close(ends[1]);
    assert_fails(s, snug_reader_open_file(s->ctx, "-", ends[0], &options, &reader), SNUG_E_INPUT,
                 "- is a Git LFS pointer");
    close(ends[0]);

    struct snug_safetensors files;
    path = scratch_write(s, "model.safetensors", BYTES(pointer));
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, path, &files), SNUG_E_INPUT, "model.safetensors is a Git LFS");
    path = scratch_write(s, "model.safetensors", BYTES("\n<!doctype html>"));
    assert_fails(s, snug_safetensors_open(s->ctx, NULL, path, &files), SNUG_E_INPUT, "is an HTML page");
}

/* ---- folders ---- */

static void make_file(struct scratch *s, const char *name, const char *text) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(s, name));
    *strrchr(folder, '/') = '\0';
    assert_ok(s, snug_folder_create(s->ctx, folder));
    scratch_write(s, name, text, strlen(text));
}

static void make_model(struct scratch *s, const char *folder) {
    char name[128];
    snprintf(name, sizeof name, "%s/config.json", folder);
    make_file(s, name, "{\"model_type\": \"bert\"}");
    snprintf(name, sizeof name, "%s/model.safetensors", folder);
    make_file(s, name, "");
}

static void refuses_model(struct scratch *s, const char *name, const char *says) {
    struct snug_config config;
    assert_fails(s, snug_config_read(s->ctx, scratch_path(s, name), &config), SNUG_E_INPUT, says);
}

FIXTURE_TEST(folders_of_models) {
    make_file(s, "lora/adapter_config.json", "{\"base_model_name_or_path\": \"org/base\"}");
    make_file(s, "lora/adapter_model.safetensors", "");
    refuses_model(s, "lora",
                  "lora: there is no config.json: it is the folder of a PEFT adapter for the model org/base.");
    make_file(s, "odd/adapter_config.json", "{\"base_model_name_or_path\": 1}");
    refuses_model(s, "odd", "\"base_model_name_or_path\" must be a string");
    make_file(s, "cut/adapter_config.json", "{");
    refuses_model(s, "cut", "adapter_config.json:1");

    make_model(s, "old/0_Transformer");
    make_file(s, "old/1_Pooling/config.json", "{}");
    make_file(s, "old/modules.json", "[]");
    refuses_model(s, "old", "old/0_Transformer has a model (sentence-transformers' older layout): give that one");

    make_model(s, "runs/checkpoint-900");
    make_model(s, "runs/checkpoint-1000");
    make_model(s, "runs/best");
    make_model(s, "runs/checkpoint-20");
    make_file(s, "runs/checkpoint-2000/config.json", "{}"); /* without weights */
    refuses_model(s, "runs", "runs/checkpoint-1000 has a model: give that one");
    make_model(s, "two/b");
    make_model(s, "two/a");
    make_model(s, "two/c");
    make_file(s, "two/0/model.safetensors", ""); /* without a config.json */
    refuses_model(s, "two", "two/a has a model: give that one");
    make_model(s, "models--org--name/snapshots/0123");
    refuses_model(s, "models--org--name", "models--org--name/snapshots/0123 has a model: give that one");
    make_file(s, "models--org--none/snapshots/x", "");
    refuses_model(s, "models--org--none", "there is no config.json: it is not the folder of a model");

    static const char *const others[][2] = {{"zero_to_fp32.py", "a checkpoint of DeepSpeed"},
                                            {"pytorch_model_fsdp_0/x", "a checkpoint of FSDP"},
                                            {"tf_model.h5", "from_tf=True"},
                                            {"flax_model.msgpack", "from_flax=True"},
                                            {"model.onnx", "it has an ONNX model"},
                                            {"dataset_info.json", "it has a data set, not a model"},
                                            {"notes.txt", "there is neither model.safetensors nor"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char name[128];
        struct snug_folder folder;
        snprintf(name, sizeof name, "other%zu/%s", i, others[i][0]);
        make_file(s, name, "");
        *strchr(name, '/') = '\0';
        assert_ok(s, snug_folder_open(s->ctx, NULL, scratch_path(s, name), &folder));
        assert_fails(s, snug_weights_look(s->ctx, &folder), SNUG_E_INPUT, others[i][1]);
        snug_folder_close(&folder);
    }
    struct snug_folder whole; /* a model and an adapter */
    make_model(s, "whole");
    make_file(s, "whole/adapter_config.json", "{}");
    assert_ok(s, snug_folder_open(s->ctx, NULL, scratch_path(s, "whole"), &whole));
    assert_ok(s, snug_weights_look(s->ctx, &whole));
    assert_contains(s->log, "whole/adapter_config.json: the adapter is not used");
    snug_folder_close(&whole);
    struct snug_config config;
    make_file(s, "packed.zip", "PK\5\6");
    assert_fails(s, snug_config_read(s->ctx, scratch_path(s, "packed.zip"), &config), SNUG_E_INPUT, "is a zip archive");
}

FIXTURE_TEST(folders_of_data) {
    make_file(s, "saved/dataset_info.json", "{}");
    make_file(s, "splits/dataset_dict.json", "{}");
    make_file(s, "files/a.csv", "text,label\n");
    make_file(s, "empty", "");
    assert_int_equal(mkfifo(scratch_path(s, "pipe"), 0600), 0);
    assert_fails(s, read_data(s, scratch_path(s, "empty"), NULL), SNUG_E_USAGE, "the name does not tell the format");
    assert_fails(s, read_data(s, scratch_path(s, "pipe"), NULL), SNUG_E_USAGE, "the name does not tell the format");
    assert_fails(s, read_data(s, scratch_path(s, "nothing"), NULL), SNUG_E_IO, "No such file or directory");
    assert_fails(s, read_data(s, scratch_path(s, "saved"), NULL), SNUG_E_INPUT,
                 "saved is a folder of datasets.save_to");
    assert_fails(s, read_data(s, scratch_path(s, "splits"), "csv"), SNUG_E_INPUT, "datasets.load_from_disk(FOLDER)");
    assert_fails(s, read_data(s, scratch_path(s, "files"), "jsonl"), SNUG_E_INPUT, "files is a folder: give a file");
    assert_fails(s, snug_data_look(s->ctx, scratch_path(s, "files"), "csv"), SNUG_E_INPUT, "files is a folder");
}

TEST_MAIN(NULL, NULL)
