#!/usr/bin/python3
"""Text to token numbers and back, with a tokenizer.json of Hugging Face (pip install tokenizers):

    tokens.py tokenizer.json encode < text > tokens.u16    a file for --data of a trainer: u16, or u32 for more tokens
    tokens.py tokenizer.json numbers < text                numbers with blanks between them, for --prompt
    tokens.py tokenizer.json text < numbers                what --sample prints, as text

`encode --end NUMBER` adds the token that ends a document; files of several documents may be joined as they are."""
import argparse
import sys

import numpy as np
from tokenizers import Tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("way", choices=["encode", "numbers", "text"])
    parser.add_argument("--end", type=int, help="the token that ends a document")
    given = parser.parse_args()
    tokenizer, text = Tokenizer.from_file(given.tokenizer), sys.stdin.read()
    if given.way == "encode":
        numbers = tokenizer.encode(text, add_special_tokens=False).ids + ([given.end] if given.end is not None else [])
        kind = "<u2" if tokenizer.get_vocab_size() <= 65536 else "<u4"
        sys.stdout.buffer.write(np.array(numbers, kind).tobytes())
    elif given.way == "numbers":
        print(*tokenizer.encode(text.rstrip("\n"), add_special_tokens=False).ids)
    else:
        print(tokenizer.decode([int(number) for number in text.split()]))


if __name__ == "__main__":
    main()
