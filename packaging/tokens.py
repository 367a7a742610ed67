#!/usr/bin/python3
"""Text to token numbers and back, with the tokenizer of a model:

    tokens.py TOKENIZER encode < text > tokens.u16    a file for --data of a trainer: u16, or u32 for more tokens
    tokens.py TOKENIZER numbers < text                numbers with blanks between them, for --prompt
    tokens.py TOKENIZER text < numbers                what --sample prints, as text

TOKENIZER is one of
    tokenizer.json      of Hugging Face              pip install tokenizers
    tokenizer.model     of sentencepiece             pip install sentencepiece
    tiktoken:NAME       an encoding such as gpt2     pip install tiktoken

`encode --end NUMBER` adds the token that ends a document; files of several documents may be joined as they are.  `--begin NUMBER`
puts one before the text, also before a prompt: what bos_token_id of config.json says, with which models of the families of Llama
and Gemma were trained."""
import argparse
import sys

import numpy as np


class HuggingFace:
    def __init__(self, path):
        from tokenizers import Tokenizer
        self.own = Tokenizer.from_file(path)
        self.size = self.own.get_vocab_size()

    def encode(self, text):
        return self.own.encode(text, add_special_tokens=False).ids

    def decode(self, numbers):
        return self.own.decode(numbers)


class SentencePiece:
    def __init__(self, path):
        from sentencepiece import SentencePieceProcessor
        self.own = SentencePieceProcessor(model_file=path)
        self.size = self.own.vocab_size()

    def encode(self, text):
        return self.own.encode(text)

    def decode(self, numbers):
        return self.own.decode(numbers)


class Tiktoken:
    def __init__(self, name):
        import tiktoken
        self.own = tiktoken.get_encoding(name)
        self.size = self.own.n_vocab

    def encode(self, text):
        return self.own.encode_ordinary(text)

    def decode(self, numbers):
        return self.own.decode(numbers)


def is_table_of_tiktoken(path):
    """Lines of a token in base 64 and its number, as in the tokenizer.model of Llama 3: how text is cut is not in there."""
    with open(path, "rb") as file:
        words = file.readline(200).split()
    return len(words) == 2 and words[1].isdigit()


def tokenizer_of(text):
    kind, _, name = text.partition(":")
    if kind == "tiktoken" and name:
        return Tiktoken(name)
    if text.endswith(".json"):
        return HuggingFace(text)
    if is_table_of_tiktoken(text):
        sys.exit(f"tokens.py: {text} is a table of tiktoken's, which does not say how text is cut into words: "
                 "give the tokenizer.json of the model, or tiktoken:NAME")
    return SentencePiece(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("way", choices=["encode", "numbers", "text"])
    parser.add_argument("--begin", type=int, help="the token that begins a document")
    parser.add_argument("--end", type=int, help="the token that ends a document")
    given = parser.parse_args()
    try:
        tokenizer = tokenizer_of(given.tokenizer)
    except ImportError as error:
        sys.exit(f"tokens.py: {error}: pip install {error.name}")
    except (OSError, ValueError) as error:
        sys.exit(f"tokens.py: cannot read {given.tokenizer}: {error}")
    text = sys.stdin.read()
    first = [] if given.begin is None else [given.begin]
    if given.way == "encode":
        numbers = first + tokenizer.encode(text) + ([given.end] if given.end is not None else [])
        kind = "<u2" if tokenizer.size <= 65536 else "<u4"
        sys.stdout.buffer.write(np.array(numbers, kind).tobytes())
    elif given.way == "numbers":
        print(*first, *tokenizer.encode(text.rstrip("\n")))
    else:
        print(tokenizer.decode([int(number) for number in text.split()]))


if __name__ == "__main__":
    main()
