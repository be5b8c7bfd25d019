/* SPDX-License-Identifier: Apache-2.0 */
/* Files with a word a line: which columns they have, which of them are the words and the tags, and what is no word. */
#include <zlib.h>

#include "data/reader.h"
#include "scratch.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

struct text {
    char text[8192];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *to, const char *format, ...) {
    va_list values;
    va_start(values, format);
    to->used += (size_t)vsnprintf(to->text + to->used, sizeof to->text - to->used, format, values);
    va_end(values);
    assert_true(to->used < sizeof to->text);
}

/* Sentences as "word=tag word=tag / …"; without tags "word". */
static void put_row(struct text *to, const struct snug_conll *conll, const struct snug_row *row) {
    const struct snug_field *words = &row->fields[conll->words],
                            *tags = conll->tags == SNUG_CONLL_NONE ? NULL : &row->fields[conll->tags];
    const char *tag = tags && tags->kind == SNUG_FIELD_WORDS ? tags->text : NULL;
    assert_int_equal(words->kind, SNUG_FIELD_WORDS);
    put(to, "%s", row->index ? " /" : "");
    for (const char *word = words->text; word < words->text + words->length; word += strlen(word) + 1) {
        put(to, "%s%s", to->used ? " " : "", word);
        if (tag) put(to, "=%s", tag);
        if (tag) tag += strlen(tag) + 1;
    }
}

static snug_status read_file(struct scratch *s, const char *path, const struct snug_conll_choice *choice,
                             struct text *rows, struct text *log) {
    struct snug_reader *reader;
    struct snug_row row;
    const struct snug_reader_options options = {.words = true, .conll = choice};
    s->log[0] = '\0';
    RETURN_IF_ERROR(snug_reader_open(s->ctx, path, &options, &reader));
    const struct snug_conll *conll = snug_reader_conll(reader);
    snug_conll_tell(s->ctx, "", conll);
    put(log, "%s", s->log + 2);
    s->log[0] = '\0';
    snug_status status;
    while ((status = snug_reader_next(reader, &row)) == SNUG_OK) put_row(rows, conll, &row);
    if (*s->log) put(log, "%s", s->log + strlen(path));
    snug_reader_close(reader);
    return status == SNUG_END ? SNUG_OK : status;
}

struct example {
    const char *content, *told, *rows; /* rows NULL: told is a part of the error */
    const char *words, *tags;          /* arguments */
    const char *trained_words, *trained_tags;
    bool unlabelled; /* tags are not needed */
};

static void check(struct scratch *s, const char *name, const struct example *example) {
    struct text rows = {"", 0}, log = {"", 0};
    const struct snug_conll_choice choice = {.words = example->words,
                                             .tags = example->tags,
                                             .trained_words = example->trained_words,
                                             .trained_tags = example->trained_tags,
                                             .need_tags = !example->unlabelled};
    char path[sizeof s->path];
    snprintf(path, sizeof path, "%s", scratch_write(s, name, example->content, strlen(example->content)));
    const snug_status status = read_file(s, path, &choice, &rows, &log);
    if (!example->rows) {
        if (status != SNUG_E_USAGE) assert_fails(s, status, SNUG_E_INPUT, example->told);
        assert_true(status != SNUG_E_USAGE || strstr(snug_error_message(s->ctx), example->told));
        snug_clear_error(s->ctx);
        return;
    }
    assert_ok(s, status);
    assert_string_equal(rows.text, example->rows);
    if (strcmp(log.text, example->told) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", example->content, log.text, example->told);
}

#define CHECK(s, examples)                                                                                             \
    for (size_t i_ = 0; i_ < sizeof(examples) / sizeof *(examples); i_++) check(s, "w.conll", &(examples)[i_])

TEST_IN(test_columns, void *fixture, scratch_setup, scratch_teardown) {
    static const struct example examples[] = {
        {.content = "a O\nb B-X\n", "words: column 1 of 2, tags: column 2", "a=O b=B-X"},
        /* CoNLL-2003, also in German; CoNLL-2000; parts of speech. */
        {.content = "EU NNP I-NP B-ORG\n. . O O\n", "words: column 1 of 4, tags: column 4", "EU=B-ORG .=O"},
        {.content = "EU NNP I-NP O\n. . O O\n", "words: column 1 of 4, tags: column 4", "EU=O .=O"},
        {.content = "EU EU NE I-NC I-ORG\n. . $. O O\n", "words: column 1 of 5, tags: column 5", "EU=I-ORG .=O"},
        {.content = "EU NNP B-NP\nis VBZ B-VP\n", "words: column 1 of 3, tags: column 3", "EU=B-NP is=B-VP"},
        {.content = "EU eu NNP\nis be VBZ\n", "words: column 1 of 3, tags: column 3", "EU=NNP is=VBZ"},
        {.content = "EU -X- _ O\nis -X- _ O\n", "words: column 1 of 4, tags: column 4", "EU=O is=O"},
        /* Running numbers, from 0, over the whole file, or before all the columns of 2003. */
        {.content = "0\tEU\tB-ORG\n1\tis\tO\n",
         "words: column 2 of 3, tags: column 3; column 1 has running numbers",
         "EU=B-ORG is=O"},
        {.content = "1\tEU\tB-ORG\n2\tis\tO\n\n3\tIt\tO\n",
         "words: column 2 of 3, tags: column 3; column 1 has running numbers",
         "EU=B-ORG is=O / It=O"},
        {.content = "1 EU NNP I-NP B-ORG\n2 . . O O\n",
         "words: column 2 of 5, tags: column 5; column 1 has running numbers",
         "EU=B-ORG .=O"},
        {.content = "1 EU I-NP B-ORG\n2 . O O\n",
         "words: column 2 of 4, tags: column 4; column 1 has running numbers",
         "EU=B-ORG .=O"},
        /* Tags before words, offsets and scores after them. */
        {.content = "B-PER Orla\nO bakes\n", "words: column 2 of 2, tags: column 1", "Orla=B-PER bakes=O"},
        {.content = "Orla\tB-PER\t0\t4\nbakes\tO\t5\t10\n",
         "words: column 1 of 4, tags: column 2",
         "Orla=B-PER bakes=O"},
        {.content = "Orla NNP 0.98\nbakes VBZ 0.5\n", "words: column 1 of 3, tags: column 2", "Orla=NNP bakes=VBZ"},
        {.content = "0.98 O\n7 O\n", "words: column 1 of 2, tags: column 2", "0.98=O 7=O"},
        {.content = "a 1\nb 0\n", "words: column 1 of 2, tags: column 2", "a=1 b=0"},
        {.content = "1 B-NUM\n2 B-NUM\n", "words: column 1 of 2, tags: column 2", "1=B-NUM 2=B-NUM"},
        {.content = "B-X\nO\n", "words: column 1 of 1, no tags", "B-X O", .unlabelled = true},
        {.content = "O B-X\nI-X B-X\n",
         "words: column 1 of 2, tags: column 2",
         "O=B-X I-X=B-X",
         .words = "1",
         .tags = "2"},
        /* Other separators: a word may hold a blank. */
        {.content = "Port Elmo\tB-LOC\nis \tO\n 3 1/2\t O\n",
         "words: column 1 of 2, tags: column 2",
         "Port Elmo=B-LOC is=O 3 1/2=O"},
        {.content = "a\xC2\xA0"
                    "b\tx y\tO\nc\t\tO\n",
         "words: column 1 of 3, tags: column 3",
         "a\xC2\xA0"
         "b=O c=O"},
        {.content = "a\tO\t\nb\tO\t\n", "words: column 1 of 3, tags: column 2", "a=O b=O"},
        {.content = "a\tO\r\n\r\nb\tO\r\n", "words: column 1 of 2, tags: column 2", "a=O / b=O"},
        /* Words alone, or with columns that say nothing. */
        {.content = "a\nb\n\n#c\n#\n", "words: column 1 of 1, no tags", "a b / #c #", .unlabelled = true},
        {.content = "a _\nb _\n", "words: column 1 of 2, no tags", "a b", .unlabelled = true},
        {.content = "a\t\nb\t\n", "words: column 1 of 2, no tags", "a b", .unlabelled = true},
        {.content = "a\tO\n\nb\t\nc\t\n", "words: column 1 of 2, tags: column 2", "a=O / b c"},
        {.content = "1\tO\tB-X\n2\tB-X\tO\n",
         "words: column 2 of 3, tags: column 3; column 1 has running numbers",
         "O=B-X B-X=O"},
        {.content = "I PRP\nB NN\n", "words: column 1 of 2, tags: column 2", "I=PRP B=NN"},
        {.content = "1 EU NNP B-ORG\n2 is VBZ O\n",
         "words: column 2 of 4, tags: column 4; column 1 has running numbers",
         "EU=B-ORG is=O"},
        {.content = "1 a X\n2 b Y\n", "words: column 2 of 3, tags: column 3; column 1 has running numbers", "a=X b=Y"},
        {.content = "a _ O\nb - B-X\n", "words: column 1 of 3, tags: column 3", "a=O b=B-X"},
        {.content = "1234567890 O\n1- O\n1:2 O\n1:x O\n",
         "words: column 1 of 2, tags: column 2",
         "1234567890=O 1-=O 1:2=O 1:x=O"},
        {.content = "a 1 2 3 4 5 6 7 8 X\nb 1 2 3 4 5 6 7 8 Y\n",
         "words: column 1 of 10, tags: column 10",
         "a=X b=Y",
         .tags = "10"},
        {.content = "1 a X X X X X X X Y\n2 b X X X X X X X Z\n",
         "words: column 2 of 10, tags: column 10; column 1 has running numbers",
         "a=Y b=Z"},
    };
    CHECK(fixture, examples);
}

TEST_IN(test_formats, void *fixture, scratch_setup, scratch_teardown) {
    static const struct example examples[] = {
        {.content = "# sent_id = 1\n# text = im "
                    "Haus\n1-2\tim\t_\t_\t_\t_\t_\t_\t_\t_\n1\tin\tin\tADP\tAPPR\t_\t3\tcase\t_\t_\n"
                    "2\tdem\tder\tDET\tART\t_\t3\tdet\t_\t_\n3\tHaus am See\tHaus\tNOUN\tNN\t_\t0\troot\t_\t_\n"
                    "3.1\tist\tsein\tAUX\t_\t_\t_\t_\t_\t_\n",
         "CoNLL-U: words: FORM (column 2 of 10), tags: UPOS (column 4); column 1 has running numbers: skipped 2 "
         "comment "
         "lines; 1 line of a multiword token, whose words follow; 1 empty node",
         "in=ADP dem=DET Haus am See=NOUN"},
        {.content = "1\ta\ta\t_\tX\t_\t0\troot\t_\t_\n2\tb\tb\t_\tY\t_\t1\tdep\t_\t_\n",
         "CoNLL-U: words: FORM (column 2 of 10), tags: XPOS (column 5); column 1 has running numbers",
         "a=X b=Y",
         .tags = "xpos"},
        {.content = "# global.columns = ID FORM UPOS NER\n1\ta\tX\tO\n2\tb\tY\tB-Z\n",
         "CoNLL-U Plus: words: FORM (column 2 of 4), tags: NER (column 4); column 1 has running numbers: skipped 1 "
         "comment line",
         "a=O b=B-Z"},
        {.content =
             "#\tpage 4\t[2031-05-06]\n1\tDer\tO\tO\n2\tChor\tB-ORG\tO\n\n#\tpage 5\t[2031-05-07]\n1\tEr\tO\tB-X\n",
         "GermEval 2014, outer entities: words: column 2 of 4, tags: column 3; column 1 has running numbers: skipped 2 "
         "comment lines",
         "Der=O Chor=B-ORG / Er=O"},
        {.content = "1\tDer\tO\tO\n2\tChor\tO\tB-X\n",
         "words: column 2 of 4, tags: column 4; column 1 has running numbers",
         "Der=O Chor=B-X",
         .tags = "4"},
        {.content =
             "#begin document (a/b); part 000\na/b 0 0 In IN (TOP* - - - Ann * -\na/b 0 1 the DT * - - - Ann (DATE* -\n"
             "a/b 0 2 May NNP * - - - Ann *) (1)\na/b 0 3 Ann NNP * - - - Ann (PERSON) -\n\n"
             "a/b 0 0 She PRP (TOP* - - - Ann * (ARG0*) (1)\na/b 0 1 ran VBD *) run 01 1 Ann * (V*) -\n\n#end "
             "document\n",
         "CoNLL-2012: words: word (column 4 of 11), tags: ner (column 11); brackets are read as B-, I- and O: skipped "
         "2 "
         "comment lines",
         "In=O the=B-DATE May=I-DATE Ann=B-PERSON / She=O ran=O"},
        {.content = "#begin document (a/b); part 000\na/b 0 0 In IN (TOP* - - - Ann * -\n",
         "CoNLL-2012: words: word (column 4 of 11), tags: pos (column 5): skipped 1 comment line",
         "In=IN",
         .tags = "5"},
        {.content = "#begin document\nIn O\nMay B-DATE\n",
         "words: column 1 of 2, tags: column 2: skipped 1 comment line",
         "In=O May=B-DATE"},
        {.content = "en:Port\tB-LOC\nen::\tO\n\nen:he\tO\n",
         "WikiAnn: words: column 1 of 2, tags: column 2; each word's \"en:\" is left out",
         "Port=B-LOC :=O / he=O"},
        {.content = "be-x-old:a\tO\nbe-x-old:b\tO\n",
         "WikiAnn: words: column 1 of 2, tags: column 2; each word's \"be-x-old:\" is left out",
         "a=O b=O"},
        {.content = "http://a\tO\nhttp://b\tO\n", "words: column 1 of 2, tags: column 2", "http://a=O http://b=O"},
        {.content = "en:a\tO\nb\tO\n", "words: column 1 of 2, tags: column 2", "en:a=O b=O"},
        {.content = "en:a\tO\n", "words: column 1 of 2, tags: column 2", "en:a=O"},
        {.content = "simple:a\tO\nsimple:b\tO\n",
         "WikiAnn: words: column 1 of 2, tags: column 2; each word's \"simple:\" is left out",
         "a=O b=O"},
        {.content = "-DOCSTART- (1)\n\na\tO\n-DOCSTART-\nb\tO\n", "words: column 1 of 2, tags: column 2", "a=O / b=O"},
        {.content = "1\ta\ta\t_\tX\t_\t0\troot\t_\t_\n2\tb\tb\t_\tY\t_\t1\tdep\t_\t_\n",
         "CoNLL-U: words: FORM (column 2 of 10), tags: XPOS (column 5); column 1 has running numbers",
         "a=X b=Y"},
        {.content = "# global.columns = ID FORM NER\n1\ta\tX\tO\n2\tb\tY\tB-Z\n",
         "words: column 2 of 4, tags: column 4; column 1 has running numbers: skipped 1 comment line",
         "a=O b=B-Z"},
        {.content = "{a O\n{b O\n", "words: column 1 of 2, tags: column 2", "{a=O {b=O"},
        {.content = "ab.c O\nab.d O\n", "words: column 1 of 2, tags: column 2", "ab.c=O ab.d=O"},
        {.content = "en:a O\nde:b O\n", "words: column 1 of 2, tags: column 2", "en:a=O de:b=O"},
        {.content = "ab-aaaaaaaaaaaaaaaaaaaaaaaaaaa:x O\nab-aaaaaaaaaaaaaaaaaaaaaaaaaaa:y O\n",
         "words: column 1 of 2, tags: column 2",
         "ab-aaaaaaaaaaaaaaaaaaaaaaaaaaa:x=O ab-aaaaaaaaaaaaaaaaaaaaaaaaaaa:y=O"},
    };
    CHECK(fixture, examples);
}

TEST_IN(test_headers, void *fixture, scratch_setup, scratch_teardown) {
    static const struct example examples[] = {
        {.content = "word\ttag\na\tO\n",
         "words: word (column 1 of 2), tags: tag (column 2); the first line is a header",
         "a=O"},
        {.content = "Token Label\n\na O\nb O\n",
         "words: Token (column 1 of 2), tags: Label (column 2); the first line is a header",
         "a=O b=O"},
        {.content = "label,token\n", "words: column 1 of 1, no tags", "label,token", .unlabelled = true},
        {.content = "labels tokens\nO a\n",
         "words: tokens (column 2 of 2), tags: labels (column 1); the first line is a header",
         "a=O"},
        {.content = "id token pos chunk ner\n1 a X B-NP O\n2 b Y O O\n",
         "words: token (column 2 of 5), tags: ner (column 5); column 1 has running numbers; the first line is a header",
         "a=O b=O"},
        {.content = "id word lemma mine\n7 a a X\n9 b b Y\n",
         "words: word (column 2 of 4), tags: mine (column 4); the first line is a header",
         "a=X b=Y"},
        {.content = "tokens pos_tags start\na X 0\nb Y 2\n",
         "words: tokens (column 1 of 3), tags: pos_tags (column 2); the first line is a header",
         "a=X b=Y"},
        {.content = "tokens pos_tags ner_tags tags\na X O B\n",
         "words: tokens (column 1 of 4), tags: ner_tags (column 3); the first line is a header",
         "a=O"},
        {.content = "word pos chunk\na X B-NP\nb Y O\n",
         "words: word (column 1 of 3), tags: chunk (column 3); the first line is a header",
         "a=B-NP b=O"},
        {.content = "word pos upos\na X Y\nb Y Z\n",
         "words: word (column 1 of 3), tags: upos (column 3); the first line is a header",
         "a=Y b=Z"},
        {.content = "word pos xpos\na X Y\nb Y Z\n",
         "which column has the tags: 2 (pos) or 3 (xpos): give its number or name"},
        {.content = "word tag label\na X Y\n",
         "which column has the tags: 2 (tag) or 3 (label): give its number or name with "
         "--label_column_name. Line 2 has: 1 word \"a\", 2 tag \"X\", 3 label \"Y\""},
        {.content = "word tag label\na X Y\n",
         "words: word (column 1 of 3), no tags (--label_column_name says which column has them: 2 (tag) or 3 (label)); "
         "the first line is a header",
         "a",
         .unlabelled = true},
        {.content = "word tag label\na X Y\n",
         "words: word (column 1 of 3), tags: tag (column 2); the first line is a header",
         "a=X",
         .tags = "TAG"},
        /* A sentence that begins like a header: its tag is that of other words, too. */
        {.content = "word tag\nis tag\n", "words: column 1 of 2, tags: column 2", "word=tag is=tag"},
        {.content = "word O\na O\n", "words: column 1 of 2, tags: column 2", "word=O a=O"},
        {.content = "word tag\na O\n\nword tag\n", "w.conll:4: this is the header again"},
        /* Names that do not tell columns apart. */
        {.content = "word tag tag\na X O\nb Y O\n",
         "words: column 1 of 3, tags: column 3; the first line is a header",
         "a=O b=O"},
        {.content = "word tag tag pos\na X O 1\nb Y O 0\n",
         "words: column 1 of 4, tags: column 3; the first line is a header",
         "a=O b=O"},
    };
    CHECK(fixture, examples);
}

TEST_IN(test_comments, void *fixture, scratch_setup, scratch_teardown) {
    static const struct example examples[] = {
        {.content = "# id 1\nOrla\tB-PER\n\n# newdoc\n# text = a b\n\nb\tO\n",
         "words: column 1 of 2, tags: column 2: skipped 3 comment lines",
         "Orla=B-PER / b=O"},
        {.content = "# newdoc id = 1\na O\n\n# x\nb O\n",
         "words: column 1 of 2, tags: column 2: skipped 2 comment lines",
         "a=O / b=O"},
        {.content = "# id 1\na X O\n\n# id 2\nb Y B-X\n",
         "words: column 1 of 3, tags: column 3: skipped 2 comment lines",
         "a=O / b=B-X"},
        {.content = "# id 7af2\tdomain=en\nit _ _ O\nruns _ _ B-X\n",
         "words: column 1 of 4, tags: column 4: skipped 1 comment line",
         "it=O runs=B-X"},
        /* A word. */
        {.content = "a\tO\n#\tO\n\n#\tB-X\nb\tI-X\n", "words: column 1 of 2, tags: column 2", "a=O #=O / #=B-X b=I-X"},
        {.content = "#MeToo O\nis O\n\n#x B-X\n", "words: column 1 of 2, tags: column 2", "#MeToo=O is=O / #x=B-X"},
        {.content = "#a O\n#b O\n", "words: column 1 of 2, tags: column 2", "#a=O #b=O"},
        {.content = "#\tSYM\na\tX\n", "words: column 1 of 2, tags: column 2", "#=SYM a=X"},
        {.content = "# X\na X\n", "words: column 1 of 2, tags: column 2", "#=X a=X"},
        {.content = "1\t#\tO\n2\ta\tB-X\n\n#\tb\tO\n1\tc\tO\n",
         "words: column 2 of 3, tags: column 3; column 1 has running numbers: skipped 1 comment line",
         "#=O a=B-X / c=O",
         .words = "2",
         .tags = "3"},
        {.content = "# 1\na X\n", "w.conll:1: is \"# 1\" a comment, or the word # with its tag?"},
        {.content = "# 1\na X\n", "words: column 1 of 2, no tags", "# a", .tags = "7", .unlabelled = true},
        {.content = "a\tO\n# id 1\nb\tO\n",
         "w.conll:2: the line has 1 column, and the file has 2, with tabs between them; a "
         "comment must be before a sentence"},
        {.content = "# id 1\na X\n", "words: column 1 of 2, tags: column 2: skipped 1 comment line", "a=X"},
    };
    CHECK(fixture, examples);
}

TEST_IN(test_refused, void *fixture, scratch_setup, scratch_teardown) {
    static const struct example examples[] = {
        /* Ragged lines. */
        {.content = "a O\nb\nc O\n", "w.conll:2: the line has 1 column, and the file has 2, with blanks between them"},
        {.content = "a\nb O\nc O\n", "w.conll:1: the line has 1 column, and the file has 2"},
        {.content = "a X O\n\nb X\nc X O\n", "w.conll:3: the line has 2 columns, and the file has 3"},
        {.content = "a\tO\nb O\n", "w.conll:2: the line has 1 column, and the file has 2, with tabs between them"},
        {.content = "1\ta\tX\tO\n2\tb\tO\n3\tc\tX\tO\n", "w.conll:2: the line has 3 columns, and the file has 4"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A * -\na/b 0 1 it IN * - - - A * * -\n",
         "w.conll:3: the line has 13 columns, and the sentence has 12"},
        /* What is missing. */
        {.content = "a\tO\n\tO\n", "w.conll:2: the word is missing: column 1 is empty"},
        {.content = "a\tX\tO\n \tX\tO\n", "w.conll:2: the word is missing: column 1 is empty"},
        {.content = "en:a\tO\nen:\tO\n", "w.conll:2: the word is missing"},
        {.content = "a\tO\nb\t\n", "w.conll:2: the word has no tag: column 2 has the tags, and is empty"},
        {.content = "c\tO\n\na\t \nb\tO\n", "w.conll:4: the words before have no tag"},
        {.content = "a\nb\n",
         "w.conll: its words are in column 1 of 1, and no column has tags: give its number with "
         "--label_column_name. Line 1 has: 1 \"a\""},
        {.content = "a 0.5\nb 0.7\n", "no column has tags"},
        {.content = "a _\nb _\n", "no column has tags"},
        /* Choices. */
        {.content = "a B-X O\nb I-X B-Y\nc O O\n",
         "which column has the tags: 2 or 3: give its number with --label_column_name. "
         "Line 1 has: 1 \"a\", 2 \"B-X\", 3 \"O\""},
        {.content = "a B-X X\nb O Y\n", "which column has the tags: 2 or 3"},
        {.content = "a X 1\nb Y 0\n", "which column has the tags: 2 or 3"},
        {.content = "a 3 1\nb 2 0\n", "which column has the tags: 2 or 3"},
        {.content = "1\ta\tO\t-\tann\n2\tb\tB-X\t-\tann\n", "which column has the tags: 3 or 5"},
        {.content = "1 a\n2 b\n",
         "which column has the words: give its number with --text_column_name. Line 1 has: 1 \"1\""},
        {.content = "7 a O\n5 b O\n", "which column has the words"},
        {.content = "B-X a\nI-X b\n", "which column has the words"},
        {.content = "a O\n", "there is no column \"3\": the file has 2, which are counted from 1", .tags = "3"},
        {.content = "a O\n", "--text_column_name: there is no column \"0\"", .words = "0"},
        {.content = "a O\n", "--text_column_name: there is no column \"word\"", .words = "word"},
        {.content = "\n\n", "there is no column \"3\": the file has 2", .tags = "3"},
        {.content = "a O\n", "column 1 cannot have both the words and the tags", .words = "1", .tags = "1"},
        /* Lines. */
        {.content = "a O\rb O\r\rc O\r", "w.conll:1: a carriage return within a line; end lines with"},
        {.content = "# x\ry\na O\n", "w.conll:1: a carriage return within a line"},
        {.content = "a O\n1 O\n2 O\nx\rO\n", "w.conll:4: a carriage return within a line"},
        /* Brackets. */
        {.content = "#begin document\na/b 0 0 In IN * - - - A (X* -\n\n",
         "an entity of the sentence, X, is not closed"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A *) -\n\n", "\"*)\" is no tag here"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A (X -\n\n", "\"(X\" is no tag here"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A ( -\n\n", "\"(\" is no tag here"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A B-X -\n\n", "\"B-X\" is no tag here"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A (X* -\na/b 0 1 it IN * - - - A (Y) -\n",
         "\"(Y)\" is no tag here"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A X* -\n\n", "\"X*\" is no tag here"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A "
                    "(XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX) -\n\n",
         "XXX)\" is no tag here"},
        {.content = "#begin document\na/b 0 0 In IN * - - - A * -\n",
         "9 sense \"-\", 10 speaker \"A\", 11 ner \"*\"",
         .tags = "12"},
        {.content = "a B-X O B-Z\nb I-X B-Y O\nc O O O\n", "which column has the tags: 2, 3 or 4"},
        {.content = "abcdefghijklmnopqrstuvwxyz 1\n", "Line 1 has: 1 \"abcdefghijklmnopqrstuvwx\"", .tags = "5"},
        {.content = "abcdefghijklmnopqrstuvw\xC3\xA4 1\n", "Line 1 has: 1 \"abcdefghijklmnopqrstuvw\"", .tags = "5"},
    };
    CHECK(fixture, examples);
}

/* What a training used, and the names that columns have in JSON. */
TEST_IN(test_trained, void *fixture, scratch_setup, scratch_teardown) {
    static const struct example examples[] = {
        {.content = "1\ta\tO\tO\n2\tb\tO\tB-X\n",
         "words: column 2 of 4, tags: column 4; column 1 has running numbers",
         "a=O b=B-X",
         .trained_words = "column 2 of 4",
         .trained_tags = "column 4 of 4"},
        {.content = "1\ta\tO\tO\n",
         "words: column 2 of 4, tags: column 3",
         "a=O",
         .trained_words = "column 2 of 4",
         .trained_tags = "column 3 of 4"},
        {.content = "a O\n",
         "words: column 1 of 2, tags: column 2",
         "a=O",
         .trained_words = "column 2 of 4",
         .trained_tags = "column 3 of 4"},
        {.content = "a O\n",
         "words: column 1 of 2, tags: column 2",
         "a=O",
         .trained_words = "tokens",
         .trained_tags = "ner_tags"},
        {.content = "a O\n", "words: column 1 of 2, tags: column 2", "a=O", .words = "tokens", .tags = "ner_tags"},
        {.content = "word pos ner_tags\na X O\n",
         "words: word (column 1 of 3), tags: pos (column 2); the first line is a header",
         "a=X",
         .trained_tags = "pos"},
        {.content = "a\n", "words: column 1 of 1, no tags", "a", .tags = "column 2 of 2", .unlabelled = true},
        {.content = "a O X\n", "words: column 1 of 3, tags: column 2", "a=O", .tags = "2", .unlabelled = true},
        {.content = "\n", "words: column 1 of 2, tags: column 2", "", .tags = "2"},
        {.content = "\n", "words: column 2 of 2, tags: column 1", "", .words = "2"},
    };
    CHECK(fixture, examples);
}

/* The status of all rows. */
static snug_status read_rest(struct scratch *s, const char *path) {
    struct snug_reader *reader;
    struct snug_row row;
    snug_status status;
    assert_ok(s, snug_reader_open(s->ctx, path, &(struct snug_reader_options){.words = true}, &reader));
    while ((status = snug_reader_next(reader, &row)) == SNUG_OK)
        ;
    snug_reader_close(reader);
    return status;
}

/* Beyond the lines by which columns are decided, in a pipe and in gzip. */
FIXTURE_TEST(test_streams) {
    enum { LINES = 5000 };
    struct text rows = {"", 0}, log = {"", 0};
    char *text = malloc(1 << 19), path[2][sizeof s->path];
    size_t size = (size_t)sprintf(text, "\n# first\n");
    for (int i = 0; i < LINES; i++) size += (size_t)sprintf(text + size, "# id %d\nw%d X O\n\n", i, i);
    const struct {
        const char *line, *error;
    } ends[] = {{"a X\n", "15003: the line has 2 columns, and the file has 3"},
                {"a\tX\tO\n", "15003: the line has a tab, and in the lines before it blanks separate"},
                {"a X O\rb X O\r", "15003: a carriage return within a line"},
                {"# X O\nlast X B-Y\n", NULL}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t whole = size + (size_t)sprintf(text + size, "%s", ends[i].line);
        struct snug_reader *reader;
        struct snug_row row = {0};
        snprintf(path[0], sizeof *path, "%s", scratch_path(s, "w.conll.gz"));
        gzFile file = gzopen(path[0], "w");
        assert_int_equal(gzwrite(file, text, (unsigned)whole), whole);
        gzclose(file);
        assert_ok(s, snug_reader_open(s->ctx, path[0], &(struct snug_reader_options){.words = true}, &reader));
        snug_status status;
        while ((status = snug_reader_next(reader, &row)) == SNUG_OK)
            assert_int_equal(row.line, row.index < LINES ? 3 * row.index + 4 : 15003);
        if (ends[i].error)
            assert_fails(s, status, SNUG_E_INPUT, ends[i].error);
        else
            assert_string_equal(row.fields[0].text, "#");
        snug_reader_close(reader);
    }
    assert_contains(s->log, "skipped 5001 comment lines");
    /* A sentence that is narrower than the others, and a word without its language, after thousands. */
    size = (size_t)sprintf(text, "#begin document x\n");
    for (int i = 0; i < LINES; i++) size += (size_t)sprintf(text + size, "a 0 %d w X * - - - A * -\n", i);
    sprintf(text + size, "\na 0 0 w X * - - - A\n");
    snprintf(path[1], sizeof *path, "%s", scratch_write(s, "d.conll", text, strlen(text)));
    assert_fails(s, read_rest(s, path[1]), SNUG_E_INPUT, "d.conll:5003: the line has 10 columns, and the file has 11");
    size = 0;
    for (int i = 0; i < LINES; i++) size += (size_t)sprintf(text + size, "en:w\tO\n");
    sprintf(text + size, "de:w\tO\n");
    snprintf(path[1], sizeof *path, "%s", scratch_write(s, "e.conll", text, strlen(text)));
    assert_fails(s, read_rest(s, path[1]), SNUG_E_INPUT,
                 "e.conll:5001: the word \"de:w\" does not begin with \"en:\", as those before it do");
    sprintf(text + size, "e\tO\n");
    scratch_write(s, "e.conll", text, strlen(text));
    assert_fails(s, read_rest(s, path[1]), SNUG_E_INPUT, "the word \"e\" does not begin");
    /* A number that is none. */
    size = 0;
    for (int i = 0; i < LINES; i++) size += (size_t)sprintf(text + size, "%d\tw%d\tO\n", i + 1, i);
    sprintf(text + size, "x\tw\tO\n");
    snprintf(path[1], sizeof *path, "%s", scratch_write(s, "n.conll", text, strlen(text)));
    assert_fails(s, read_rest(s, path[1]), SNUG_E_INPUT,
                 "n.conll:5001: \"x\" is no number, and column 1 has running numbers");
    /* Comments alone, more than are looked at. */
    for (size = 0; size < (1 << 18) + 100;) size += (size_t)sprintf(text + size, "# a comment\n");
    sprintf(text + size, "\nx O\n");
    snprintf(path[1], sizeof *path, "%s", scratch_write(s, "c.conll", text, strlen(text)));
    assert_ok(s, read_file(s, path[1], NULL, &rows, &log));
    assert_string_equal(rows.text, "x=O");
    free(text);
}

FIXTURE_TEST(test_names) {
    static const char *const names[] = {"a.conllu", "a.CONLLUP", "a.iob2", "a.iob", "a.bio.gz", "a.v4_gold_conll"};
    static const struct example example = {.content = "a O\n", "words: column 1 of 2, tags: column 2", "a=O"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check(s, names[i], &example);
    struct example many = {.told = "w.conll:1: the line has over 1024 columns"};
    char text[4096] = "";
    for (int i = 0; i < 1030; i++) strcat(text, "x ");
    many.content = text;
    check(s, "w.conll", &many);
    for (char *at = text; (at = strchr(at, ' ')); at++) *at = '\t';
    check(s, "w.conll", &many);
    /* A message that is cut. */
    strcpy(text, "a");
    for (int i = 0; i < 300; i++) strcat(text, " B-X");
    strcat(text, "\nb");
    for (int i = 0; i < 300; i++) strcat(text, " O");
    strcat(text, "\n");
    many = (struct example){.content = text, .told = "which column has the tags: 2, 3, 4, 5"};
    check(s, "w.conll", &many);
    assert_true(snug_conll_is_position("column 12 of 14"));
    static const char *const others[] = {"tokens", "column", "column A", "column 2", "column 2 of A"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(snug_conll_is_position(others[i]));
    /* Names of JSON. */
    struct snug_reader *reader;
    scratch_write(s, "w.conll", "1\ta\tO\n2\tb\tO\n", strlen("1\ta\tO\n2\tb\tO\n"));
    assert_ok(s, snug_reader_open(s->ctx, s->path, &(struct snug_reader_options){.words = true}, &reader));
    assert_int_equal(snug_reader_find(reader, "tokens", 6), 1);
    assert_int_equal(snug_reader_find(reader, "ner_tags", 8), 2);
    assert_int_equal(snug_reader_find(reader, "COLUMN 1 of 3", 13), 0);
    assert_true(snug_reader_find(reader, "4", 1) == SIZE_MAX);
    snug_reader_close(reader);
}

TEST_MAIN(NULL, NULL)
