#!/usr/bin/env python3
"""Writes bert_table.cc: what BERT's normalizer and pre-tokenizer make of each character, asked of Hugging Face's tokenizers.

usage: make_bert_table.py >bert_table.cc    (a Python with tokenizers)
"""
from tokenizers import normalizers, pre_tokenizers

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def normalizer(**wanted):
    kinds = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    return normalizers.BertNormalizer(**{kind: wanted.get(kind, False) for kind in kinds}).normalize_str


def runs(holds):
    """[(first, last)] of the characters for which that holds; the surrogates between are no characters."""
    found = []
    for c in filter(holds, CHARACTERS):
        if found and found[-1][1] in (c - 1, 0xD7FF if c == 0xE000 else None):
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def steps(mapping):
    """[(first, last, step, difference)] of a mapping of characters."""
    found = []
    for c, to in sorted(mapping.items()):
        last = found[-1] if found else None
        if last and last[3] == to - c and (c - last[1] in (1, 2)) and (last[2] in (0, c - last[1])):
            last[1], last[2] = c, c - last[1]
        else:
            found.append([c, c, 0, to - c])
    return [(first, last, max(step, 1), difference) for first, last, step, difference in found]


def write(kind, name, rows):
    print(f"constexpr {kind} {name}[] = {{")
    line = ""
    for row in rows:
        word = "{" + ", ".join(str(number) for number in row) + "},"
        if len(line) + len(word) > 119:
            print(line)
            line = ""
        line += word
    print(line + "};")


def main():
    clean, strip, lower, nfd = normalizer(clean_text=True), normalizer(strip_accents=True), normalizer(lowercase=True), normalizers.NFD()
    cut = pre_tokenizers.BertPreTokenizer()
    lowered = {c: lower(chr(c)) for c in CHARACTERS if lower(chr(c)) != chr(c)}
    assert [c for c, text in lowered.items() if len(text) != 1] == [0x130]  # to two characters: in bert_text.cc
    print("// Written by make_bert_table.py; not by hand. As Hugging Face's tokenizers have it.")
    print('#include "runtime/data/tokens/bert_text.h"\n')
    print("namespace dtrain::bert {\nnamespace {\n")
    print("// clang-format off")
    write("CharacterRun", "kRemoved", runs(lambda c: clean(f"a{chr(c)}b") == "ab"))
    write("CharacterRun", "kPunctuation", runs(lambda c: len(cut.pre_tokenize_str(f"a{chr(c)}b")) == 3))
    write("CharacterRun", "kAccents", runs(lambda c: nfd.normalize_str(chr(c)) == chr(c) and strip(f"a{chr(c)}b") == "ab"))
    write("LowerRun", "kLower", steps({c: ord(text) for c, text in lowered.items() if len(text) == 1}))
    print("// clang-format on\n")
    print("}  // namespace\n")
    print("std::span<const CharacterRun> removed_characters() noexcept { return kRemoved; }")
    print("std::span<const CharacterRun> punctuation() noexcept { return kPunctuation; }")
    print("std::span<const CharacterRun> accents() noexcept { return kAccents; }")
    print("std::span<const LowerRun> lower_letters() noexcept { return kLower; }\n")
    print("}  // namespace dtrain::bert")


main()
