#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer_folders.json: tokenizer folders in old and new layouts, and what transformers' AutoTokenizer
makes of odd strings.

A folder is the files of one of three kinds of vocabulary (WordPiece, byte-level BPE, Unigram), as files of their own, as
tokenizer.json or as both; a class, named in one of three ways or not at all; and added tokens in each place that a version of
transformers has written them to. kinds() has folders for each kind of layout and of flags; random_folder() draws others from a
number. The golden file has the vocabularies once ("vocabularies": files, "models" of tokenizer.json). "folders" has for each folder
its other files, texts, and a row for each text and for each pair of neighbours: the number of its token types 0, and the ids.
Folders that transformers refuses, and those in which two tokens are the same once normalised (it takes either, at random), are
left out. snug differs in two things on purpose: a "sep_token" or "cls_token" that is null is refused; and of a SentencePiece model,
pieces that a file names null keep fairseq's names, where transformers calls them "None".

Usage: tokenizer_folders.py [FILE]                                    (needs transformers, sentencepiece, protobuf)
       tokenizer_folders.py --compare build/snug [--first N] [--folders N]   compares that many folders with `snug tokenize`
"""
import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

SENTENCES = """the film was good . a bad story , it was bad ! we are running and they played cafe café naïve élan strasse new one
two tok good day hello world hello good film bad day the marker begins here and ends there a new film one two three""".split("\n")
WORDS = """the film was good bad a story it we are running ##s ##ing run ##ning and they play ##ed cafe café naive élan strasse straße new one
two tok day hello world İ i ı [ ] < > / ( ) . , ! ? - _ # é É ﬁ fi x ##x 1 2 a1 e1 mark ##er ##2""".split()
LETTERS = [c for c in "abcdefghijklmnopqrstuvwxyzABEGN"]
BERT = dict(unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]", mask_token="[MASK]")
FAIRSEQ = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>", cls_token="<s>",
               mask_token="<mask>")
CONTENTS = ["[A1]", "[/A1]", "<e1>", "</E1>", "<E2 >", "Éa", "éa", "New One", "new one", "tok", "good", "GOOD", "ﬁ", "İ", "Straße", "e\u0301x",
            " ", "  ", "   ", "\t", "\n", " \n", " ;", "; ", "a b", "<x>", "<X>", "x", "##s", "1", "[MASK]", "<mask>", "[SEP]", "</s>",
            "[PAD]", "<pad>", "中", "ing", "Ġgood", "▁good", "<mark>", "mark"]
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
CLASSES = {
    "wordpiece": ["BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast", "ElectraTokenizer", "ElectraTokenizerFast",
                  "MobileBertTokenizer", "ConvBertTokenizer", "SqueezeBertTokenizer", "MPNetTokenizer", "MPNetTokenizerFast",
                  "PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer"],
    "bpe": ["RobertaTokenizer", "RobertaTokenizerFast", "GPT2Tokenizer", "GPT2TokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend"],
    "unigram": ["XLMRobertaTokenizer", "XLMRobertaTokenizerFast", "CamembertTokenizer", "CamembertTokenizerFast", "PreTrainedTokenizerFast"],
    "spm": ["DebertaV2Tokenizer"],
}
TYPES = {"wordpiece": ["bert", "distilbert", "electra", "mpnet", "modernbert"], "bpe": ["roberta", "roberta-prelayernorm", "modernbert", "gpt2"],
         "unigram": ["xlm-roberta", "camembert"], "spm": ["deberta-v2"]}


class Vocabularies:
    def __init__(self):
        self.words = list(dict.fromkeys([*BERT.values(), "<s>", "</s>", "<pad>", "<mask>", *WORDS, *LETTERS, *("##" + c for c in LETTERS[:26])]))
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bpe.train_from_iterator(SENTENCES, trainers.BpeTrainer(
            vocab_size=320, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        self.bpe = json.loads(bpe.to_str())["model"]
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "texts.txt")
            source.write_text("\n".join(SENTENCES), encoding="utf-8")
            rules = Path(folder, "rules.tsv")
            rules.write_text("9\t20\nA\t20\nA0\t20\nFB01\t66 69\n65 301\tE9\nDF\t73 73\n")
            sentencepiece.SentencePieceTrainer.train(
                input=str(source), model_prefix=str(Path(folder, "m")), model_type="unigram", vocab_size=50, num_threads=1,
                normalization_rule_tsv=str(rules), user_defined_symbols=["<q>"], minloglevel=2)
            model = sentencepiece_model_pb2.ModelProto.FromString(Path(folder, "m.model").read_bytes())
        for name in ("input", "model_prefix"):  # paths of the temporary folder
            model.trainer_spec.ClearField(name)
        model.normalizer_spec.ClearField("normalization_rule_tsv")
        self.unigram = model.SerializeToString(deterministic=True)
        for i, content in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]"]):  # as DeBERTa-v3's, whose mask token is not in the file
            piece = model.pieces.add() if i == 3 else model.pieces[i]
            piece.piece, piece.score, piece.type = content, 0, 2 if i == 3 else 3
        model.pieces.insert(3, model.pieces.pop())
        model.trainer_spec.unk_id, model.trainer_spec.pad_id, model.trainer_spec.bos_id, model.trainer_spec.eos_id = 3, 0, 1, 2
        self.spm = model.SerializeToString(deterministic=True)

    def slow_files(self, kind):
        if kind == "wordpiece":
            return {"vocab.txt": "".join(word + "\n" for word in self.words)}
        if kind == "bpe":
            return {"vocab.json": self.bpe["vocab"], "merges.txt": "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in self.bpe["merges"])}
        return {"spm.model": self.spm} if kind == "spm" else {"sentencepiece.bpe.model": self.unigram}

    def json_file(self, kind, rng):
        """tokenizer.json with parts of its own, without added tokens."""
        if kind == "wordpiece":
            tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(self.words)}, unk_token="[UNK]"))
            tokenizer.normalizer = normalizers.BertNormalizer(lowercase=rng.random() < 0.7)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.WordPiece()
            tokenizer.post_processor = processors.TemplateProcessing(
                "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", self.words.index("[CLS]")), ("[SEP]", self.words.index("[SEP]"))])
        elif kind == "bpe":
            tokenizer = Tokenizer(models.BPE(self.bpe["vocab"], [tuple(m) for m in self.bpe["merges"]]))
            if rng.random() < 0.3:
                tokenizer.normalizer = rng.choice([normalizers.NFC(), normalizers.Lowercase(), normalizers.Strip()])
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.3)
            tokenizer.decoder = decoders.ByteLevel()
            tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0)) if rng.random() < 0.7 else processors.ByteLevel()
        elif kind == "spm":
            model = sentencepiece_model_pb2.ModelProto.FromString(self.spm)
            tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], 3, False))
            tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
            tokenizer.decoder = decoders.Metaspace()
            tokenizer.post_processor = processors.TemplateProcessing(
                "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 1), ("[SEP]", 2)])
        else:
            pieces = sentencepiece.SentencePieceProcessor(model_proto=self.unigram)
            vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
            vocab += [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(3, pieces.vocab_size())] + [("<mask>", 0.0)]
            tokenizer = Tokenizer(models.Unigram(vocab, 3, False))
            tokenizer.normalizer = rng.choice([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Nmt()])
            tokenizer.pre_tokenizer = rng.choice([pre_tokenizers.Metaspace(), pre_tokenizers.Sequence([
                pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])])
            tokenizer.decoder = decoders.Metaspace()
            tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)])
        return json.loads(tokenizer.to_str())


def flags(rng, given=0.7):
    """Flags of a token, of which some are not given."""
    return {name: rng.random() < (0.3 if name != "normalized" else 0.6) for name in FLAGS if rng.random() < given}


def as_object(rng, content, special=None, typed=False):
    value = {"content": content, **flags(rng)}
    if special is not None or rng.random() < 0.3:
        value["special"] = rng.random() < 0.5 if special is None else special
    if typed:
        value["__type"] = "AddedToken"
    return value


def named_tokens(rng, kind, chance, typed):
    named, out = BERT if kind == "wordpiece" else FAIRSEQ, {}
    for key, content in named.items():
        if rng.random() < chance:
            out[key] = content if rng.random() < 0.6 else as_object(rng, content, typed=typed)
    if rng.random() < 0.1:
        out["mask_token"] = rng.choice(["<M>", "[A1]"])
    if rng.random() < 0.1:
        out[rng.choice(["pad_token", "bos_token", "sep_token"])] = None
    return out


def further_tokens(rng, key, contents, typed):
    def one(content):
        return content if rng.random() < 0.7 else as_object(rng, content, typed=typed)
    if key == "extra_special_tokens" and rng.random() < 0.4:
        return {f"k{i}_token": one(content) for i, content in enumerate(contents)}
    return [one(content) for content in contents]


def random_folder(vocabularies, number):
    """The files of a folder by name, apart from the vocabulary's own; the kind; whether it has those, and tokenizer.json."""
    rng = random.Random(number)
    kind = rng.choice(["wordpiece", "wordpiece", "bpe", "unigram"])
    slow, fast = rng.choice([(True, False), (True, False), (False, True), (True, True)])
    size = {"wordpiece": len(vocabularies.words), "bpe": len(vocabularies.bpe["vocab"]), "unigram": 52}[kind]
    files, config = {}, {}
    pool = rng.sample(CONTENTS, rng.randint(0, 7))
    part = lambda chance: [content for content in pool if rng.random() < chance]
    named = rng.choice(["class", "class", "class", "config", "type", "both"])
    model = {}
    if named in ("class", "both"):
        config["tokenizer_class"] = rng.choice(CLASSES[kind])
    if named == "config":
        model["tokenizer_class"] = rng.choice(CLASSES[kind])
    if named in ("type", "both") or rng.random() < 0.3:
        model["model_type"] = rng.choice(TYPES[kind])
    if model or named != "class":
        files["config.json"] = model
    if kind == "wordpiece" and rng.random() < 0.6:
        config["do_lower_case"] = rng.random() < 0.6
    if kind == "wordpiece" and rng.random() < 0.2:
        config["strip_accents"] = rng.choice([True, False, None])
    if kind != "wordpiece" and rng.random() < 0.3:
        config["add_prefix_space"] = rng.random() < 0.5
    if rng.random() < 0.2:
        config["model_input_names"] = rng.choice([["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]])
    if rng.random() < 0.05:
        config[rng.choice(["add_bos_token", "add_eos_token"])] = rng.random() < 0.5
    if rng.random() < 0.1:
        config["split_special_tokens"] = True
    config |= named_tokens(rng, kind, rng.choice([0, 0.3, 1]), typed=True)
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if rng.random() < 0.2:
            config[key] = further_tokens(rng, key, part(0.4), typed=True)
    if rng.random() < 0.15:
        config["image_token"] = rng.choice(pool or ["<i>"])
    if rng.random() < 0.3:
        config["added_tokens_decoder"] = {str(size + i): as_object(rng, content) for i, content in enumerate(part(0.8))}
    if rng.random() < 0.9 or "tokenizer_class" in config:
        files["tokenizer_config.json"] = config
    if rng.random() < 0.5:
        files["special_tokens_map.json"] = named_tokens(rng, kind, rng.choice([0, 0.3, 1]), typed=False)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            if rng.random() < 0.35:
                files["special_tokens_map.json"][key] = further_tokens(rng, key, part(0.5), typed=False)
        if rng.random() < 0.1:
            files["special_tokens_map.json"]["my_token"] = rng.choice(pool or ["<i>"])
    if rng.random() < 0.5:
        order = part(0.8)
        rng.shuffle(order)
        files["added_tokens.json"] = {content: size + i for i, content in enumerate(order)}
    if fast:
        files["tokenizer.json"] = vocabularies.json_file(kind, rng)
        ids = {word: i for i, word in enumerate(vocabularies.words)} if kind == "wordpiece" else vocabularies.bpe["vocab"] if kind == "bpe" else {
            "<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        special = [*(BERT if kind == "wordpiece" else FAIRSEQ).values()]
        listed, following = [], size
        for content in dict.fromkeys([*(c for c in special if rng.random() < 0.8), *part(0.6)]):
            token = {"single_word": False, "lstrip": False, "rstrip": False, "special": content in special, **flags(rng, 0.3)}
            token.setdefault("normalized", not token["special"])
            number_ = ids.get(content)
            if number_ is None:
                number_, following = following, following + 1
            listed.append({"id": number_, "content": content, **token})
        files["tokenizer.json"]["added_tokens"] = sorted(listed, key=lambda token: token["id"])
    return kind, slow, fast, files, pool


def kinds(vocabularies):
    """Folders for each kind: name, kind of vocabulary, files, texts."""
    size = {"wordpiece": len(vocabularies.words), "bpe": len(vocabularies.bpe["vocab"]), "unigram": 52}
    marks = ["[A1]", "</e1>", "<\u00c9 2>", "New One", "mark"]
    texts = ["a [A1] good </e1> day", "a [a1] good </E1> day", "x[A1]y[a1]</e1>z", "<\u00c9 2> <\u00e9 2><e 2>", "new one New One NEW ONE new  one",
             "marker mark, Mark remark", "[A1]", " [A1]  [A1] ", "good[A1] good", "\u4e2d[A1]\u4e2dmark\u4e2d"]
    by_class = (("wordpiece", "BertTokenizer"), ("wordpiece", "DistilBertTokenizerFast"), ("wordpiece", "MPNetTokenizer"), ("bpe", "RobertaTokenizer"),
                ("bpe", "GPT2Tokenizer"), ("unigram", "XLMRobertaTokenizer"), ("unigram", "CamembertTokenizer"))
    for kind, name in by_class:
        ids = {content: size[kind] + i for i, content in enumerate(marks)}
        config, named = {"tokenizer_class": name}, BERT if kind == "wordpiece" else FAIRSEQ
        yield f"{name}, only added_tokens.json", kind, {"tokenizer_config.json": config, "added_tokens.json": ids}, texts
        yield f"{name}, special_tokens_map.json with additional_special_tokens", kind, {
            "tokenizer_config.json": config, "added_tokens.json": ids,
            "special_tokens_map.json": {**named, "additional_special_tokens": marks[:3]}}, texts
        yield f"{name}, tokenizer_config.json with additional_special_tokens", kind, {
            "tokenizer_config.json": {**config, "additional_special_tokens": marks[1:]}, "added_tokens.json": ids}, texts
        yield f"{name}, extra_special_tokens in both", kind, {
            "tokenizer_config.json": {**config, "extra_special_tokens": marks[:2]}, "added_tokens.json": ids,
            "special_tokens_map.json": {"extra_special_tokens": marks[1:4], "additional_special_tokens": marks[4:]}}, texts
        yield f"{name}, added_tokens_decoder", kind, {
            "tokenizer_config.json": {**config, "added_tokens_decoder": {str(i): {"content": content} for content, i in ids.items()}},
            "added_tokens.json": {"ignored": size[kind]}, "special_tokens_map.json": {"additional_special_tokens": marks}}, texts
    for name in CLASSES["wordpiece"][:10]:
        yield f"{name}, token types", "wordpiece", {"tokenizer_config.json": {"tokenizer_class": name}}, texts[:2]
        for names in (["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]):
            yield f"{name}, model_input_names", "wordpiece", {
                "tokenizer_config.json": {"tokenizer_class": name, "model_input_names": names}}, texts[:2]
    for flag in FLAGS[:3]:
        for kind, name in by_class[::2]:
            tokens = [{"content": content, flag: True, "normalized": normalized} for content, normalized in zip(marks, (True, False) * 3)]
            yield f"{name}, {flag} in added_tokens_decoder", kind, {"tokenizer_config.json": {
                "tokenizer_class": name, "added_tokens_decoder": {str(size[kind] + i): token for i, token in enumerate(tokens)}}}, texts
            yield f"{name}, {flag} in special_tokens_map.json", kind, {
                "tokenizer_config.json": {"tokenizer_class": name},
                "special_tokens_map.json": {"mask_token": {"content": "[A1]", flag: True}, "my_token": {"content": "mark", flag: True}}}, texts
    blanks = ["a  b", "[A1]   x", "[A1] \t\n x", "   ", "x [A1]  ", "[A1][A1]  [A1]", "good\u00a0 [A1]\u00a0\u00a0b", "  [A1]", "a\tb", "\n\na"]
    for kind, name in by_class[::3]:
        for flags_ in ({}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}):
            for normalized in (True, False):
                tokens = [{"content": "[A1]", "rstrip": True, "normalized": False}, {"content": " ", **flags_, "normalized": normalized},
                          {"content": "  ", **flags_, "normalized": normalized}, {"content": "\n\n", "normalized": False}]
                yield f"{name}, blanks with {flags_}", kind, {"tokenizer_config.json": {
                    "tokenizer_class": name, "added_tokens_decoder": {str(size[kind] + i): token for i, token in enumerate(tokens)}}}, blanks
    spaces = ["the  film\t was", " good \n day ", "caf\u00e9 cafe\u0301, (a) x", "GOOD Film \u00a0 a", "[CLS] [MASK] the <q> film", "\ufb01lm  ", ""]
    for name, config in (("plain", {}), ("lower case", {"do_lower_case": True}), ("punctuation", {"split_by_punct": True}),
                         ("both", {"do_lower_case": True, "split_by_punct": True})):
        for files in ({"tokenizer_config.json": {"tokenizer_class": "DebertaV2Tokenizer", **config}},
                      {"tokenizer_config.json": {"vocab_type": "spm", **config}, "config.json": {"model_type": "deberta-v2"}}):
            yield f"DebertaV2Tokenizer, {name}", "spm", files, spaces
            json_file = {**vocabularies.json_file("spm", random.Random(0)), "added_tokens": [
                {"id": 51, "content": "[MASK]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]}
            yield f"DebertaV2Tokenizer, {name}, tokenizer.json", "spm", {**files, "tokenizer.json": json_file}, spaces
    for bos in (True, False):
        yield "GPT2Tokenizer with bos_token and eos_token", "bpe", {"tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": bos, "add_eos_token": True}}, texts[:2]


def strings(number, pool, count):
    rng = random.Random(number)
    words = ["the", "good", "film", "a", "Good", "x", "café", "b", "New", "one", "中", "[", "]", "[MASK]", "[mask]", "<mask>", "</s>", "[SEP]", "a1"]
    blanks = [" ", " ", "", "  ", "\t", "\n", "   ", "\u00a0"]
    texts = []
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(1, 6)):
            piece = rng.choice(pool) if pool and rng.random() < 0.6 else rng.choice(words)
            change = rng.random()
            piece = piece.lower() if change < 0.2 else piece.upper() if change < 0.3 else piece.title() if change < 0.35 else piece
            text += piece + rng.choice(blanks)
        texts.append(text)
    return texts


def write_folder(vocabularies, folder, kind, slow, files):
    for name, content in ((vocabularies.slow_files(kind) if slow else {}) | files).items():
        path = Path(folder, name)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), encoding="utf-8")


def is_random(tokenizer):
    """Whether two added tokens are the same once normalised."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    contents = [token.content for token in tokenizer.added_tokens_decoder.values() if token.normalized]
    normalized = [normalizer.normalize_str(content) if normalizer else content for content in contents]
    return len(set(normalized)) < len(normalized)


def expected(folder, texts):
    """Rows of [ids, types] for each text and each pair of neighbours; or the exception as a text."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            tokenizer = AutoTokenizer.from_pretrained(folder)
            if is_random(tokenizer):
                return "two tokens are the same once normalised"
            rows = []
            for parts in [(text,) for text in texts] + [*zip(texts[::2], texts[1::2])]:
                # Lists, as data sets are tokenized: a single call takes an empty second text for none.
                row = tokenizer(*([part] for part in parts), padding=False, truncation=False)
                ids = row["input_ids"][0]
                rows.append([ids, row["token_type_ids"][0] if "token_type_ids" in row else [0] * len(ids)])
            return {"size": len(tokenizer), "rows": rows}
    except BaseException as error:  # also Rust's panics
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"[:300]


def found(snug, folder, texts):
    rows = []
    for file, parts in (("a", [{"text": text} for text in texts]),
                        ("b", [{"sentence1": a, "sentence2": b} for a, b in zip(texts[::2], texts[1::2])])):
        path = Path(folder, file + ".jsonl")
        path.write_text("".join(json.dumps(part) + "\n" for part in parts))
        run = subprocess.run([snug, "tokenize", "--model_name_or_path", folder, "--test_file", str(path), "--max_seq_length", "512"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        path.unlink()
        if run.returncode:
            return run.stderr.decode().strip()
        rows += [[row["input_ids"], row["token_type_ids"]] for row in map(json.loads, run.stdout.decode().split("\n")[:-1])]
    return rows


def compare(arguments, vocabularies):
    counts = dict.fromkeys(("same", "differ", "refused", "both fail", "transformers fails"), 0)
    for number in range(arguments.first, arguments.first + arguments.folders):
        kind, slow, fast, files, pool = random_folder(vocabularies, number)
        texts = strings(number, pool, 24)
        with tempfile.TemporaryDirectory() as folder:
            write_folder(vocabularies, folder, kind, slow, files)
            right, rows = expected(folder, texts), found(arguments.compare, folder, texts)
        if isinstance(right, str):
            result = "both fail" if isinstance(rows, str) else "transformers fails"
        elif isinstance(rows, str):
            result = "refused"
        else:
            result = "same" if rows == right["rows"] else "differ"
        counts[result] += 1
        if result in arguments.show:
            shown = {name: content for name, content in files.items() if name != "tokenizer.json"}
            print(f"\n{number} {result}: {kind} {'slow ' * slow}{'json' * fast} {json.dumps(shown, ensure_ascii=False)}")
            if "tokenizer.json" in files:
                print("  json:", json.dumps(files["tokenizer.json"]["added_tokens"], ensure_ascii=False))
            if isinstance(right, str) or isinstance(rows, str):
                print("  expected", right if isinstance(right, str) else "ids", "\n  found", rows if isinstance(rows, str) else "ids")
            else:
                for i, (one, other) in enumerate(zip(right["rows"], rows)):
                    if one != other:
                        print("  text", ascii(texts[i] if i < len(texts) else (texts[2 * (i - len(texts))], texts[2 * (i - len(texts)) + 1])),
                              "\n   expected", one, "\n   found   ", other)
                        break
    print(counts)
    sys.exit(counts["differ"] > 0)


def golden_folder(vocabularies, name, kind, slow, files, texts):
    """None: transformers refuses the folder."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(vocabularies, folder, kind, slow, files)
        right = expected(folder, texts)
    if isinstance(right, str):
        return None
    if "tokenizer.json" in files:
        files = {**files, "tokenizer.json": {**files["tokenizer.json"], "model": None}}
    rows = [[types.count(0), *ids] for ids, types in right["rows"]]
    return {"name": name, "kind": kind, "slow": slow, "files": files, "texts": texts, "size": right["size"], "rows": rows}


def golden(vocabularies, drawn=60):
    folders = []
    for name, kind, files, texts in kinds(vocabularies):
        folders.append(golden_folder(vocabularies, name, kind, True, files, texts))
        if not folders[-1]:
            folders.pop()
            print("left out:", name, files, file=sys.stderr)
    number = 0
    while drawn:
        kind, slow, fast, files, pool = random_folder(vocabularies, number)
        folder = None
        if not any(value is None for file in files.values() for key, value in file.items() if key in ("sep_token", "cls_token")):
            folder = golden_folder(vocabularies, f"random {number}", kind, slow, files, strings(number, pool, 8))
        number += 1
        if folder:
            folders.append(folder)
            drawn -= 1
    models_ = {kind: vocabularies.json_file(kind, random.Random(0))["model"] for kind in CLASSES}
    files = {kind: {name: {"hex": content.hex()} if isinstance(content, bytes) else content
                    for name, content in vocabularies.slow_files(kind).items()} for kind in CLASSES}
    return {"vocabularies": files, "models": models_, "folders": folders}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", metavar="SNUG")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--folders", type=int, default=1000)
    parser.add_argument("--show", nargs="*", default=["differ", "refused"])
    parser.add_argument("file", nargs="?", default="tests/golden/tokenizer_folders.json")
    arguments = parser.parse_args()
    vocabularies = Vocabularies()
    if arguments.compare:
        compare(arguments, vocabularies)
    Path(arguments.file).write_text(json.dumps(golden(vocabularies), separators=(",", ":")) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
