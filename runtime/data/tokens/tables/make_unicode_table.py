#!/usr/bin/env python3
"""Writes unicode_table.cc: which class each character of Unicode 16 has, asked of tiktoken's regular expressions.

usage: make_unicode_table.py >unicode_table.cc    (a Python with tiktoken)
"""
import tiktoken

CLASSES = [r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\s"]
BYTES = {bytes([byte]): byte for byte in range(256)}


def members(pattern, text):
    encoding = tiktoken.Encoding("class", pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})
    return set(encoding.decode_bytes(encoding.encode_ordinary(text)).decode())


def main():
    text = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    kind = [0] * 0x110000
    for number, pattern in enumerate(CLASSES, 1):
        for character in members(pattern, text):
            kind[ord(character)] = number
    runs = [c << 4 | kind[c] for c in range(0x110000) if c == 0 or kind[c] != kind[c - 1]]
    print("// Written by make_unicode_table.py; not by hand. Unicode 16, as tiktoken and tokenizers have it.")
    print('#include "runtime/data/tokens/unicode.h"\n')
    print("namespace dtrain {\nnamespace {\n")
    print("// clang-format off")
    print("constexpr std::uint32_t kRuns[] = {")
    line = ""
    for run in runs:
        word = f"{run},"
        if len(line) + len(word) > 119:
            print(line)
            line = ""
        line += word
    print(line + "\n};\n// clang-format on\n")
    print("}  // namespace\n")
    print("std::span<const std::uint32_t> character_runs() noexcept { return kRuns; }\n")
    print("}  // namespace dtrain")


main()
