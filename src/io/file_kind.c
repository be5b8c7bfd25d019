/* SPDX-License-Identifier: Apache-2.0 */
#include "io/file_kind.h"

#include <string.h>
#include <strings.h>

/* ---- by the first bytes --------------------------------------------------------------------------------------- */

#define TO_JSON_LINES "write its rows as JSON Lines, in Python: "
#define PANDAS(reader) TO_JSON_LINES "pandas." reader "(FILE).to_json(\"FILE.jsonl\", orient=\"records\", lines=True)"
#define ARROW                                                                                                          \
    TO_JSON_LINES "datasets.Dataset.from_file(FILE).to_json(\"FILE.jsonl\"), or give the Dataset to snug's Python "    \
                  "package"
#define TEXTS "give the file with the texts"
#define UTF_8 "save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"

/* binary: the bytes could be text, and a control character among the first bytes shows that they are not. */
#define KIND(bytes, offset, binary, name, way)                                                                         \
    {                                                                                                                  \
        bytes, sizeof(bytes) - 1, offset, binary, { name, way, false }                                                 \
    }
static const struct signature {
    const char *bytes;
    size_t size, offset; /* where they are */
    bool binary;
    struct snug_file_kind kind;
} signatures[] = {
    KIND("version https://git-lfs.github.com/spec/", 0, false, "a Git LFS pointer, not the file itself",
         "run \"git lfs pull\""),
    KIND("version https://hawser.github.com/spec/", 0, false, "a Git LFS pointer, not the file itself",
         "run \"git lfs pull\""),
    KIND("/annex/objects/", 0, false, "a git-annex pointer, not the file itself", "run \"git annex get\""),
    KIND("\x1f\x8b", 0, false, "compressed by gzip", "decompress it (gunzip)"),
    KIND("\x1f\x9d", 0, false, "compressed by compress", "decompress it (gunzip)"),
    KIND("1AY&SY", 4, false, "compressed by bzip2", "decompress it (bunzip2)"),
    KIND("\xfd\67zXZ\0", 0, false, "compressed by xz", "decompress it (unxz)"),
    KIND("\x28\xb5\x2f\xfd", 0, false, "compressed by zstd", "decompress it (unzstd)"),
    KIND("\x04\x22\x4d\x18", 0, false, "compressed by lz4", "decompress it (unlz4)"),
    KIND("7z\xbc\xaf\x27\x1c", 0, false, "a 7-Zip archive", "unpack it (7z x)"),
    KIND("Rar!\x1a\x07", 0, false, "a RAR archive", "unpack it (unrar x)"),
    KIND("ustar", 257, true, "a tar archive", "unpack it (tar -xf)"),
    KIND("PAR1", 0, true, "a Parquet file", PANDAS("read_parquet")),
    KIND("ARROW1", 0, true, "an Arrow or Feather file", PANDAS("read_feather")),
    KIND("\xff\xff\xff\xff", 0, false, "an Arrow stream", ARROW),
    KIND("ORC", 0, true, "an ORC file", PANDAS("read_orc")),
    KIND("Obj\x01", 0, false, "an Avro file", "write its rows as JSON Lines (avro tojson)"),
    KIND("\x89HDF\r\n\x1a\n", 0, false, "an HDF5 file", "write rows as JSON Lines, weights as model.safetensors"),
    KIND("SQLite format 3\0", 0, false, "an SQLite database", "write its rows as CSV (sqlite3 -header -csv)"),
    KIND("\x93NUMPY", 0, false, "a NumPy array", "write its rows as JSON Lines or CSV"),
    KIND("%PDF-", 0, false, "a PDF document", "write its text into a text file (pdftotext)"),
    KIND("{\\rtf", 0, false, "an RTF document", "save it as plain text in UTF-8"),
    KIND("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0, false, "a document of Microsoft Office", "save it as CSV in UTF-8"),
    KIND("GGUF", 0, true, "a model in GGUF", "give the model's folder with config.json and model.safetensors"),
    KIND("\x89PNG\r\n\x1a\n", 0, false, "a picture", TEXTS),
    KIND("\xff\xd8\xff", 0, false, "a picture", TEXTS),
    KIND("\177ELF", 0, false, "a program", TEXTS),
    KIND("\xff\xfe", 0, false, "UTF-16 text", UTF_8),
    KIND("\xfe\xff", 0, false, "UTF-16 text", UTF_8),
};

static const struct snug_file_kind pickle = {"a pickled Python object, which may run any code when it is loaded",
                                             "write its rows as JSON Lines", true};
static const struct snug_file_kind html = {
    "an HTML page, not the file itself",
    "download the file again, by the address of the file and not of its page, and "
    "look for a message of the server in it",
    false};
static const struct snug_file_kind xml = {
    "an XML document",
    "if a server sent it, it holds its message: download the file again; else write its rows as JSON "
    "Lines, in Python: pandas.read_xml(FILE)",
    false};
static const struct snug_file_kind zip = {"a zip archive", "unpack it (unzip)", false};
static const struct snug_file_kind torch = {"a pickled PyTorch file, which may run any code when it is loaded",
                                            "give weights as model.safetensors in a model's folder, rows as JSON Lines",
                                            true};
static const struct snug_file_kind arrays = {"an archive of NumPy arrays", "write its rows as JSON Lines or CSV",
                                             false};
static const struct snug_file_kind office = {
    "a document of Microsoft Office (as .xlsx or .docx)",
    "save a table as CSV in UTF-8, or in Python: pandas.read_excel(FILE).to_csv(\"FILE.csv\", index=False)", false};
static const struct snug_file_kind open_document = {"a document of LibreOffice, or an e-book",
                                                    "save a table as CSV, a text as plain text, in UTF-8", false};

static bool has_control(const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] < '\b') return true;
    return false;
}

static bool has_bytes(const unsigned char *bytes, size_t size, const struct signature *signature) {
    return size >= signature->offset + signature->size &&
           memcmp(bytes + signature->offset, signature->bytes, signature->size) == 0 &&
           (!signature->binary || has_control(bytes, size));
}

static bool ends_with(const char *text, size_t length, const char *end) {
    const size_t size = strlen(end);
    return length >= size && memcmp(text + length - size, end, size) == 0;
}

/* The name of a zip archive's first entry shows which program wrote it. */
static const struct snug_file_kind *zip_kind(const unsigned char *bytes, size_t size) {
    enum { HEADER = 30 }; /* bytes before the name; its length is at 26 */
    const size_t stored = size < HEADER ? 0 : bytes[26] | (size_t)bytes[27] << 8;
    const size_t length = size < HEADER ? 0 : stored < size - HEADER ? stored : size - HEADER;
    const char *name = (const char *)bytes + HEADER;
    const struct {
        const char *end;
        const struct snug_file_kind *kind;
    } names[] = {{"/data.pkl", &torch},       {".npy", &arrays},      {"[Content_Types].xml", &office},
                 {"_rels/.rels", &office},    {"docProps/", &office}, {"docProps/app.xml", &office},
                 {"mimetype", &open_document}};
    for (size_t i = 0; length && i < sizeof names / sizeof *names; i++)
        if (ends_with(name, length, names[i].end)) return names[i].kind;
    return &zip;
}

/* Pages of servers may begin with empty lines. */
static const struct snug_file_kind *markup_kind(const char *text, size_t size) {
    static const struct {
        const char *start;
        const struct snug_file_kind *kind;
    } starts[] = {{"<!doctype html", &html}, {"<html", &html}, {"<?xml", &xml}};
    size_t at = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < size && text[at] && strchr(" \t\r\n", text[at])) at++;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const size_t length = strlen(starts[i].start);
        if (size - at >= length && strncasecmp(text + at, starts[i].start, length) == 0) return starts[i].kind;
    }
    return NULL;
}

const struct snug_file_kind *snug_file_kind(const void *bytes, size_t size) {
    const unsigned char *start = bytes;
    if (size >= 4 && (!memcmp(start, "PK\3\4", 4) || !memcmp(start, "PK\5\6", 4))) return zip_kind(start, size);
    if (size >= 2 && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5) return &pickle; /* its protocols */
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (has_bytes(start, size, &signatures[i])) return &signatures[i].kind;
    return markup_kind(bytes, size);
}

snug_status snug_file_check_kind(snug_context *ctx, const char *path, const void *bytes, size_t size) {
    const struct snug_file_kind *kind = snug_file_kind(bytes, size);
    return kind ? snug_fail(ctx, SNUG_E_INPUT, "%s is %s: %s", path, kind->name, kind->way) : SNUG_OK;
}
