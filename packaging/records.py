#!/usr/bin/python3
"""Text, prompts or conversations as packed records for a trainer:

    records.py TinyLlama train.jsonl -o records --seq 1024
    records.py TinyLlama train/*.parquet -o records --seq 1024

TinyLlama is a folder with the tokenizer.json of a model of Hugging Face, its tokenizer_config.json and, where the template of
conversations is not in there, chat_template.jinja.  A row of a file (.jsonl, .parquet) has one of

    messages     [{"role": "user", "content": "..."}, ...]      by the template; what the assistant says counts
    prompt, completion                                          two texts; the completion counts
    text                                                        all of it counts, and the token that ends it

The folder `records` has files of arrays [records, seq] for the inputs of examples/chat.mdl, --data records/:

    tokens       the documents one after the other, each cut after --seq tokens (a text is continued in another document)
    labels       the token after each one
    counts       whether that one counts, as bool: cross_entropy(logits, where(counts, labels, -100), vocab)
    segment      the number of the document in its record: attend(..., segment = segment)
    position     where the token is in its document: rope(..., position = position)

Needs pip install numpy tokenizers jinja2, and pyarrow for Parquet."""
import argparse
import datetime
import json
import re
import sys
from pathlib import Path

import numpy as np

INPUTS = {"tokens": "I32", "labels": "I32", "segment": "I32", "position": "I32", "counts": "BOOL"}


class Template:
    """The template of conversations as transformers renders it.

    What the assistant says is between {% generation %} and {% endgeneration %}, in whose places the text gets two characters that
    no text has; in a template without them it is what an answer adds to the text that asks for it."""

    BEGIN, END = "\ue000", "\ue001"

    def __init__(self, text, special):
        import jinja2.sandbox
        own = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        own.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        own.globals["raise_exception"] = self.refuse
        own.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        self.has_marks = bool(re.search(r"\{%-?\s*generation\s*-?%\}", text))
        for tag, mark in (("generation", self.BEGIN), ("endgeneration", self.END)):
            text = re.sub(r"\{%(-?)\s*" + tag + r"\s*(-?)%\}\n?", r"{{\1 '" + mark + r"' \2}}", text)
        self.own = own.from_string(text)
        self.special = special

    @staticmethod
    def refuse(message):
        import jinja2
        raise jinja2.TemplateError(message)

    def render(self, messages, prompt=False):
        return self.own.render(messages=messages, add_generation_prompt=prompt, tools=None, documents=None, **self.special)

    def marked(self, messages):
        text, spans, begin = "", [], 0
        for part in re.split(f"([{self.BEGIN}{self.END}])", self.render(messages)):
            if part == self.BEGIN:
                begin = len(text)
            elif part == self.END:
                spans.append((begin, len(text)))
            else:
                text += part
        return text, spans, 0

    def spans(self, messages):
        """The text, from where to where each answer is in it with the token that ends it, and how many are not found."""
        if self.has_marks:
            return self.marked(messages)
        text, spans, lost = self.render(messages), [], 0
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before, after = self.render(messages[:i], prompt=True), self.render(messages[:i + 1])
            if text.startswith(before) and text.startswith(after) and len(before) < len(after):
                spans.append((len(before), len(after.rstrip())))
            else:  # a template that shows it otherwise once the conversation has gone on
                lost += 1
        return text, spans, lost


class Tokenizer:
    def __init__(self, folder):
        from tokenizers import Tokenizer as Own
        folder = Path(folder)
        self.own = Own.from_file(str(folder / "tokenizer.json"))
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text()) if path.exists() else {}
        special = {name: value["content"] if isinstance(value, dict) else value for name, value in config.items()
                   if name.endswith("_token") and isinstance(value, (str, dict))}
        self.end = self.own.token_to_id(special["eos_token"]) if "eos_token" in special else None
        file, text = folder / "chat_template.jinja", config.get("chat_template")
        if isinstance(text, list):  # several, by name
            text = {entry["name"]: entry["template"] for entry in text}.get("default")
        text = file.read_text() if file.exists() else text
        self.template = Template(text, special) if text else None

    def document(self, row, end):
        """(tokens, which of them count, is it a text?, answers that are lost); None: the row has nothing of this kind."""
        if "messages" in row:
            if not self.template:
                sys.exit("records.py: a row has messages, and the tokenizer has no chat_template")
            text, spans, lost = self.template.spans(row["messages"])
            own = self.own.encode(text, add_special_tokens=False)
            counts = [any(begin <= at[0] < end for begin, end in spans) for at in own.offsets]
            return own.ids, counts, False, lost
        if "prompt" in row and "completion" in row:
            prompt = self.own.encode(row["prompt"]).ids
            rest = self.own.encode(row["completion"], add_special_tokens=False).ids + end
            return prompt + rest, [False] * len(prompt) + [True] * len(rest), False, 0
        if "text" in row:
            tokens = self.own.encode(row["text"]).ids + end
            return tokens, [True] * len(tokens), True, 0
        return None


def rows_of(path):
    if path.endswith(".parquet"):
        from pyarrow import parquet
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
        return
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError as error:
                sys.exit(f"records.py: {path}:{number}: no JSON: {error}")
            if row is not None and not isinstance(row, dict):
                sys.exit(f"records.py: {path}:{number}: a row is an object, as {{\"text\": \"...\"}}")
            if row is not None:
                yield row


class Records:
    """Puts each document into the fullest of some open records that has room for it, and writes full ones to files."""

    def __init__(self, folder, seq, alone, in_a_file, open_at_once=64):
        self.folder, self.seq, self.alone, self.in_a_file, self.open_at_once = folder, seq, alone, in_a_file, open_at_once
        self.open, self.full, self.files, self.count, self.tokens, self.labels = [], [], 0, 0, 0, 0

    def add(self, tokens, counts):
        """One document: of n tokens, n - 1 are inputs, each with the next one as label."""
        tokens, counts = np.asarray(tokens, "<i4"), np.asarray(counts, bool)
        n = len(tokens) - 1
        fitting = [record for record in self.open if record["used"] + n <= self.seq]
        record = max(fitting, key=lambda record: record["used"]) if fitting else self.begin()
        place = slice(record["used"], record["used"] + n)
        record["arrays"][:, place] = tokens[:-1], tokens[1:], np.full(n, record["documents"]), np.arange(n), counts[1:]
        record["used"] += n
        record["documents"] += 1
        record["arrays"][2, record["used"]:] = record["documents"]  # what is left over is a segment of its own
        self.tokens += n
        self.labels += int(counts[1:].sum())
        if self.alone or record["used"] == self.seq:
            self.close(record)

    def begin(self):
        if len(self.open) == self.open_at_once:
            self.close(max(self.open, key=lambda record: record["used"]))
        self.open.append({"arrays": np.zeros((len(INPUTS), self.seq), "<i4"), "used": 0, "documents": 0})
        return self.open[-1]

    def close(self, record):
        self.open = [other for other in self.open if other is not record]
        self.full.append(record["arrays"])
        self.count += 1
        if len(self.full) == self.in_a_file:
            self.write()

    def write(self):
        """A file of safetensors: a header of 8 bytes for its length and JSON, then the arrays."""
        arrays = [array.astype("?" if dtype == "BOOL" else "<i4") for array, dtype in zip(np.stack(self.full, 1), INPUTS.values())]
        ends = np.cumsum([array.nbytes for array in arrays]).tolist()
        header = json.dumps({name: {"dtype": dtype, "shape": list(array.shape), "data_offsets": [end - array.nbytes, end]}
                             for (name, dtype), array, end in zip(INPUTS.items(), arrays, ends)}).encode()
        header += b" " * (-len(header) % 8)
        path = self.folder / f"{self.files:05d}.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"".join(array.tobytes() for array in arrays))
        self.full, self.files = [], self.files + 1

    def end(self):
        for record in list(self.open):
            self.close(record)
        if self.full:
            self.write()


def pieces_of(tokens, counts, seq, is_text):
    """What fits into a record: of a text all of it, in pieces; of a conversation the beginning."""
    for begin in range(0, max(len(tokens) - 1, 0), seq):
        if begin == 0 or is_text:
            yield tokens[begin:begin + seq + 1], counts[begin:begin + seq + 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="the folder of a model")
    parser.add_argument("files", nargs="+", help=".jsonl or .parquet")
    parser.add_argument("-o", "--output", required=True, help="the folder of records, which must not be there or be empty")
    parser.add_argument("--seq", type=int, required=True, help="tokens of a record: dim seq of the model")
    parser.add_argument("--end", type=int, help="the token that ends a text (default: eos_token of the tokenizer)")
    parser.add_argument("--alone", action="store_true", help="one document in each record")
    parser.add_argument("--in-a-file", type=int, default=65536, help="records of a file (default: 65536)")
    given = parser.parse_args()
    folder = Path(given.output)
    if given.seq < 1 or given.in_a_file < 1:
        parser.error("--seq and --in-a-file must be above 0")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        sys.exit(f"records.py: {folder} is there, and not an empty folder")
    try:
        tokenizer = Tokenizer(given.tokenizer)
        convert(tokenizer, given, folder)
    except ImportError as error:
        sys.exit(f"records.py: {error}: pip install {error.name}")


def convert(tokenizer, given, folder):
    end = given.end if given.end is not None else tokenizer.end
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder, given.seq, given.alone, given.in_a_file)
    rows = unknown = cut = without = lost = 0
    for path in given.files:
        for row in rows_of(path):
            rows += 1
            found = tokenizer.document(row, [] if end is None else [end])
            if found is None:
                unknown += 1
                continue
            tokens, counts, is_text, lost_here = found
            lost += lost_here
            cut += len(tokens) > given.seq + 1 and not is_text
            kept = [piece for piece in pieces_of(tokens, counts, given.seq, is_text) if any(piece[1][1:])]
            without += not kept
            for piece in kept:
                records.add(*piece)
    records.end()
    if records.count == 0:
        sys.exit(f"records.py: {rows} rows, and none of them has a label")
    print(f"{rows} rows: {records.tokens} tokens, of which {records.labels} labels count, in {records.count} records of {given.seq}, "
          f"{100 * records.tokens / (records.count * given.seq):.1f} % full")
    for count, what in ((unknown, "have no messages, prompt and completion, or text: left out"), (cut, f"are longer than {given.seq} tokens: cut"),
                        (without, "have no label that counts: left out"), (lost, "answers of the assistant that the template shows otherwise: no labels")):
        if count:
            print(f"note: {count} {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
