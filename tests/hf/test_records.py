"""packaging/records.py: conversations, prompts and texts as packed records, against transformers' own rendering; and a trainer
that computes with packed records what it computes with one document in each."""
import contextlib
import io
import json
import math
import re
import sys
from unittest import mock

import numpy as np
import pytest
from common import MPC, ROOT, read_tensors, run

pytest.importorskip("tokenizers", reason="no tokenizers: make hf")
pytest.importorskip("jinja2", reason="no jinja2: make hf")

sys.path.insert(0, str(ROOT / "packaging"))
import records  # noqa: E402

WORDS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "user", "assistant", "system", "\n", *(f"w{i}" for i in range(40))]
# {% generation %}, which transformers alone can read, is where answers are: an independent mask.
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
            "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


@pytest.fixture
def tokenizer(tmp_path):
    special = [{"id": i, "content": WORDS[i], "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
               for i in range(4)]
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"\n|[^ \n]+"}, "behavior": "Removed", "invert": True}, "decoder": None,
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "w0"}}))
    (tmp_path / "model/tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}))
    return tmp_path / "model"


def draw(random, most):
    return " ".join(f"w{i}" for i in random.integers(1, 40, random.integers(1, most)))


def conversations(count, most=6):
    random = np.random.default_rng(count)
    rows = []
    for _ in range(count):
        turns = [{"role": role, "content": draw(random, most)} for _ in range(random.integers(1, 3)) for role in ("user", "assistant")]
        rows.append({"messages": [{"role": "system", "content": "w9"}] * int(random.integers(2)) + turns})
    return rows


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def convert(tokenizer, files, out, *options, status=0):
    """In this process: what it imports takes longer than what it does."""
    said, end = io.StringIO(), None
    words = ["records.py", tokenizer, *files, "-o", out, "--seq", 48, *options]
    with mock.patch.object(sys, "argv", list(map(str, words))), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            records.main()
        except SystemExit as error:
            end = error.code
    assert (end is not None) == bool(status), (end, said.getvalue())
    return said.getvalue() + (end or "")


def read_records(folder):
    files = [read_tensors(path) for path in sorted(folder.iterdir())]
    return {name: np.concatenate([file[name][1] for file in files]) for name in files[0]}


def documents(arrays):
    """What is packed, as sets of (tokens, labels); padding has no label that counts, and no document."""
    found = []
    for tokens, labels, counts, segment, position in zip(*(arrays[name] for name in ("tokens", "labels", "counts", "segment", "position"))):
        labels = np.where(counts, labels, -100)
        for number in np.unique(segment):
            at = np.flatnonzero(segment == number)
            assert (np.diff(at) == 1).all()
            if number == segment.max() and (labels[at] == -100).all():
                assert (tokens[at] == 0).all()
                continue
            assert np.array_equal(position[at], np.arange(len(at)))
            found.append((tuple(tokens[at]), tuple(labels[at])))
    return sorted(found)


@pytest.mark.parametrize("marks", [True, False])
def test_conversations_are_those_of_transformers(tokenizer, tmp_path, marks):
    """Also where the template does not say what is generated: then by what answers add to it."""
    transformers = pytest.importorskip("transformers", reason="no transformers: make hf")
    rows = conversations(60)
    theirs, wanted = transformers.AutoTokenizer.from_pretrained(tokenizer), []
    if not marks:
        (tokenizer / "chat_template.jinja").write_text(re.sub(r"{% (end)?generation %}", "", TEMPLATE))
    said = convert(tokenizer, [write_rows(tmp_path / "a.jsonl", rows)], tmp_path / "records")
    for row in rows:
        own = theirs.apply_chat_template(row["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = own["input_ids"], own["assistant_masks"]
        wanted.append((tuple(ids[:-1]), tuple(t if m else -100 for t, m in zip(ids[1:], mask[1:]))))
    arrays = read_records(tmp_path / "records")
    assert documents(arrays) == sorted(wanted)
    count, full = len(arrays["tokens"]), sum(len(tokens) for tokens, _ in wanted)
    assert f"60 rows: {full} tokens, of which {arrays['counts'].sum()} labels count, in {count} records of 48" in said
    assert full / (48 * count) > 0.8 and count < 60


def test_prompts_and_texts(tokenizer, tmp_path):
    rows = [{"prompt": "w1 w2", "completion": " w3 w4"}, {"text": "w5 w6 w7"}, {"other": 1}]
    said = convert(tokenizer, [write_rows(tmp_path / "a.jsonl", rows)], tmp_path / "records")
    at = {name: i for i, name in enumerate(WORDS)}
    w = [at[f"w{i}"] for i in range(8)]
    assert documents(read_records(tmp_path / "records")) == sorted([
        ((0, w[1], w[2], w[3], w[4]), (-100, -100, w[3], w[4], 1)), ((0, w[5], w[6], w[7]), (w[5], w[6], w[7], 1))])
    assert "note: 1 have no messages, prompt and completion, or text: left out" in said
    convert(tokenizer, [tmp_path / "a.jsonl"], tmp_path / "other", "--end", 3)
    assert {labels[-1] for _, labels in documents(read_records(tmp_path / "other"))} == {3}


def test_long_ones(tokenizer, tmp_path):
    """A text goes on in other documents, and each of its labels is there once; a conversation is cut."""
    text = " ".join(f"w{1 + i % 39}" for i in range(200))
    said = convert(tokenizer, [write_rows(tmp_path / "a.jsonl", [{"text": text}, {"prompt": "w1", "completion": " " + text}])], tmp_path / "records")
    found = documents(read_records(tmp_path / "records"))
    assert sorted(len(tokens) for tokens, _ in found) == [201 - 192, 48, 48, 48, 48, 48]
    assert sum(label != -100 for _, labels in found for label in labels) == 201 + 47 and "note: 1 are longer than 48 tokens: cut" in said


def test_parquet_and_several_files(tokenizer, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="no pyarrow: make hf")
    from pyarrow import parquet
    rows = conversations(30)
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    convert(tokenizer, [write_rows(tmp_path / "a.jsonl", rows)], tmp_path / "of_json")
    convert(tokenizer, [tmp_path / "a.parquet"], tmp_path / "of_parquet", "--in-a-file", 2)
    assert len(list((tmp_path / "of_parquet").iterdir())) > 1 == len(list((tmp_path / "of_json").iterdir()))
    one, other = read_records(tmp_path / "of_json"), read_records(tmp_path / "of_parquet")
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_template_that_shows_old_answers_otherwise(tokenizer, tmp_path):
    """As those that drop the thoughts of earlier turns: only the last answer counts."""
    (tokenizer / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role + '\\n' + (m.content if loop.last or m.role == 'user' else 'w0') + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant\\n' }}{% endif %}")
    turns = [{"role": role, "content": word} for role, word in (("user", "w1"), ("assistant", "w2"), ("user", "w3"), ("assistant", "w4"))]
    said = convert(tokenizer, [write_rows(tmp_path / "a.jsonl", [{"messages": turns}])], tmp_path / "records")
    assert "note: 1 answers of the assistant that the template shows otherwise: no labels" in said
    (_, labels), = documents(read_records(tmp_path / "records"))
    assert [label for label in labels if label != -100] == [WORDS.index("w4")]


@pytest.mark.parametrize("text, message", [("{\n", "a.jsonl:1: no JSON"), ("[1]\n", "a.jsonl:1: a row is an object"),
                                           ('{"messages": [{"role": "user", "content": "w1"}]}\n', "1 rows, and none of them has a label")])
def test_rows_that_are_none(tokenizer, tmp_path, text, message):
    (tmp_path / "a.jsonl").write_text(text)
    assert message in convert(tokenizer, [tmp_path / "a.jsonl"], tmp_path / "records", status=1)


def test_a_folder_with_files_stays(tokenizer, tmp_path):
    assert "is there, and not an empty folder" in convert(tokenizer, [write_rows(tmp_path / "a.jsonl", conversations(2))], tmp_path, status=1)


def test_packed_records_have_the_loss_of_documents_alone(tokenizer, tmp_path):
    """And the trainer learns from them."""
    path = write_rows(tmp_path / "a.jsonl", conversations(40))
    convert(tokenizer, [path], tmp_path / "packed")
    convert(tokenizer, [path], tmp_path / "alone", "--alone")
    sizes = dict(layers=2, vocab=48, seq=48, embed=16, kv_heads=2, group=2, head=6, ff=24)
    run(MPC, "compile", ROOT / "examples/chat.mdl", *(word for name, value in sizes.items() for word in ("-D", f"{name}={value}")), "--set",
        "train.precision=fp32", "--set", "train.batch=4", "--set", "train.microbatch=4", "--set", "train.optimizer.lr=0.003",
        "-o", tmp_path / "out", "--cflags=-O1")
    trainer = [tmp_path / "out/trainer", "--eval-batches", 1000]
    losses = []
    for name in ("packed", "alone"):
        said = run(*trainer, "--steps", 0, "--eval-data", tmp_path / name)
        losses.append(float(re.search(r"eval loss (\S+)", said)[1]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0] == pytest.approx(math.log(48), abs=0.2)
    steps = run(*trainer[:1], "--data", tmp_path / "packed", "--steps", 40, "--print-every", 40, MPC_PEAK_FLOPS="1e9")
    first, last = (float(re.search(rf"step {n}/40  loss (\S+)", steps)[1]) for n in (1, 40))
    assert last < first - 0.2  # one label of four is the token that ends an answer
