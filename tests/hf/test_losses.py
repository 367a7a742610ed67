"""Every key of config.json changed, left out, and left over from other families: mpc import refuses it, or the imported model
has transformers' own loss in double precision.  Some families; all with HF_KEYS=all."""
import json
import os
import re
import sys

import numpy as np
import pytest
from common import MPC, ROOT, read_tensors, run
from defaults import changed, leaves, plain
from families import FAMILIES, OTHERS, SEQ
from test_keys import left_over, map_of, refused_keys

sys.path.insert(0, str(ROOT / "tests"))
import cover  # noqa: E402

transformers = pytest.importorskip("transformers", reason="no transformers: make hf")
torch = pytest.importorskip("torch")

ALL = [*FAMILIES, *OTHERS]
SAMPLE = cover.some(["GPT-2", "Mistral", "Gemma 3 from 4B", "Mixtral"], 0, 2)
CHOSEN = [family for family in ALL if os.environ.get("HF_KEYS") == "all" or family.name in SAMPLE]
BATCH, TOLERANCE = 4, 2e-5
QUICK = {"CC": f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "1"}
torch.set_num_threads(1)


def own_logits(model):
    """T5 1.1 has a table of logits of its own, which some versions of transformers tie all the same."""
    if "T5" in type(model).__name__:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))


def make_model(family):
    torch.manual_seed(7)
    model = getattr(transformers, family.model)(getattr(transformers, family.config)(**family.arguments))
    own_logits(model)
    with torch.no_grad():  # large, so that everything is in the loss
        for parameter in model.parameters():
            parameter += (0.15 if parameter.dim() > 1 else 0.05) * torch.randn_like(parameter)
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer += 0.1 * torch.rand_like(buffer)
    return model


class Small:
    """A small model of a family, in a folder, whose config.json is changed."""

    def __init__(self, family, folder):
        self.family, self.folder, self.there, self.found = family, folder, folder / "there", {}
        model = make_model(family)
        model.save_pretrained(self.there)
        self.weights = {name: value.double() if value.is_floating_point() else value for name, value in model.state_dict().items()}
        self.config = {**plain(model.config), "id2label": {str(n): str(n) for n in range(model.config.num_labels)}}
        self.file = ROOT / family.file
        if family.edit:
            self.file = folder / "model.mdl"
            self.file.write_text((ROOT / family.file).read_text().replace(*family.edit))
        self.options = [word for key, value in family.defines.items() for word in ("-D", f"{key}={value}")]
        self.seq = SEQ
        self.make_data()

    def make_data(self):
        """The words for the trainer, and the arrays for PyTorch."""
        draw = np.random.default_rng(3)
        family, vocab = self.family, self.config.get("vocab_size", 0)
        if family.name == "T5 1.1":
            arrays = {"text": draw.integers(0, vocab, (BATCH, 30)), "tokens": draw.integers(0, vocab, (BATCH, 15))}
        elif family.name == "DistilBERT":
            arrays = {"tokens": draw.integers(0, vocab, (BATCH, 18)), "seen": np.arange(18) < np.array([[18], [9], [5], [13]]),
                      "label": draw.integers(0, 3, BATCH).astype(np.int32)}
            arrays["tokens"] = arrays["tokens"].astype(np.int32)
        elif family.name == "ResNet":
            arrays = {"image": draw.standard_normal((BATCH, 64, 64, 3)).astype(np.float32), "label": draw.integers(0, 5, BATCH).astype(np.int32)}
        else:
            self.write_tokens(SEQ)
            return
        self.data = []
        for name, array in arrays.items():
            np.save(self.folder / f"{name}.npy", array)
            self.data += ["--eval-data", f"{name}={self.folder / name}.npy"]
        self.arrays = {name: torch.tensor(array) for name, array in arrays.items()}

    def write_tokens(self, seq):
        self.seq = seq
        tokens = np.random.default_rng(3).integers(0, 100, BATCH * seq + 1)  # none of them is a pad_token_id
        (self.folder / "tokens.u16").write_bytes(tokens.astype("<u2").tobytes())
        self.data = ["--eval-data", self.folder / "tokens.u16"]
        self.arrays = {"tokens": torch.tensor(tokens)}

    def loss_of(self, model):
        a, cross_entropy = self.arrays, torch.nn.functional.cross_entropy
        if "text" in a:
            logits, labels = model(input_ids=a["text"], decoder_input_ids=a["tokens"][:, :-1]).logits, a["tokens"][:, 1:]
        elif "seen" in a:
            logits, labels = model(input_ids=a["tokens"].long(), attention_mask=a["seen"].long()).logits, a["label"].long()
        elif "image" in a:
            logits, labels = model(a["image"].double().movedim(-1, 1)).logits, a["label"].long()
        else:
            tokens, labels = (a["tokens"][k:k + BATCH * self.seq].view(BATCH, self.seq) for k in (0, 1))
            if self.family.masked:
                masked = (torch.arange(self.seq) % 7 == 3).expand_as(tokens)
                tokens, labels = torch.where(masked, self.family.masked, tokens), torch.where(masked, tokens, -100)
            logits = model(tokens).logits
        return float(cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)))

    def there_loss(self, config):
        """transformers' loss with these weights; None where it refuses the configuration, or has other weights."""
        (self.there / "config.json").write_text(json.dumps(config))
        try:
            made = getattr(transformers, self.family.config).from_pretrained(self.there, attn_implementation="eager")
            made._experts_implementation = "eager"
            model = getattr(transformers, self.family.model)(made).double()
            model.train("Rwkv" in self.family.model)  # there, evaluation takes the size of states from hidden_size
            own_logits(model)
            model.load_state_dict(self.loaded(made))
            with torch.no_grad():
                loss = self.loss_of(model)
        except Exception:  # of many kinds
            return None
        return loss if np.isfinite(loss) else None

    def loaded(self, made):
        """The weights as from_pretrained has them with this configuration, which may change what it has read."""
        there = getattr(transformers, self.family.model).from_pretrained(self.there, config=made, dtype=torch.float64).state_dict()
        return {name: value if name == "lm_head.weight" else there.get(name, value) for name, value in self.weights.items()}

    def imported(self, config):
        """The words of mpc compile; None where it is refused."""
        (self.there / "config.json").write_text(json.dumps(config))
        try:
            said = run(MPC, "import", self.there, "--model", self.file, "--map", map_of(self.family), "-o",
                       self.folder / "w.safetensors", *self.options)
        except AssertionError as error:
            assert re.search(r"\berror: ", str(error)), error
            return None
        assert "warning" not in said, said
        return tuple(re.search(r"^next: mpc compile \S+ (.*) -o OUT$", said, re.M)[1].split())

    def here_loss(self, words):
        """The imported model's loss; it is compiled once for the same words.  None: it has another length of sequences, which
        the data now have."""
        if words not in self.found:
            out = self.folder / f"out{len(self.found)}"
            settings = [word for text in ("train.precision=fp32", f"train.batch={BATCH}", f"train.microbatch={BATCH}") for word in ("--set", text)]
            said = run(MPC, "compile", self.file, *words, *settings, "--cflags", "-O0", "-o", out, **QUICK)
            length = re.search(r"sequences? of (\d+)$", said, re.M)
            self.found[words] = out / "trainer", int(length[1]) if length else self.seq, {}
        trainer, seq, losses = self.found[words]
        if seq != self.seq:
            self.write_tokens(seq)
            return None
        weights = seq, (self.folder / "w.safetensors").read_bytes()  # lists of config.json are among them
        if weights not in losses:
            said = run(trainer, "--load", self.folder / "w.safetensors", "--weights-only", "--steps", 0, *self.data, **QUICK)
            losses[weights] = float(re.search(r"eval loss (\S+)", said)[1])
        return losses[weights]


def other_values(path, value):
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [2 * value if value else 1, value + 1, *([value // 2] if value > 1 else []), None]
    if isinstance(value, float):
        return [2 * value if value else 0.5, None]
    if value is None:
        return [1, 2.0, True]
    if isinstance(value, str):
        return [None] + [other for other in ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu") if "act" in path[-1] and other != value] + [
            other for other in ("default", "linear", "yarn", "llama3", "dynamic") if path[-1] == "rope_type" and other != value]
    if isinstance(value, list):
        return [value[1:] + value[:1], ["full_attention"] * len(value), value[:-1], None]
    return [None]


def changes(config):
    """(what is said of it, configuration)"""
    for path, value in leaves(config):
        key = ".".join(path)
        yield f"without {key}", changed(config, path, remove=True)
        for other in other_values(path, value):
            yield f"{key}={other!r}", changed(config, path, other)


def older(config):
    """The same rotation as older versions of transformers wrote it, and a mixture of both."""
    rope = config.get("rope_parameters", {})
    rest = {key: value for key, value in config.items() if key != "rope_parameters"}
    if "rope_type" in rope:
        scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
        plain_rope = {key: value for key, value in scaling.items() if key != "rope_type"}
        for theta in ({"rope_theta": rope["rope_theta"]}, {"rope_theta": 77.0}, {}, {"rotary_emb_base": 77.0}):
            yield f"older {theta}", {**rest, **theta, "rope_scaling": None}
            yield f"older scaling {theta}", {**rest, **theta, "rope_scaling": scaling}
            yield f"older type {theta}", {**rest, **theta, "rope_scaling": {**plain_rope, "type": rope["rope_type"]}}
            yield f"both {theta}", {**config, **theta, "rope_scaling": {**scaling, "factor": 3.0}}
            yield f"both the same {theta}", {**config, **theta, "rope_scaling": rope}
    elif rope:
        full = {key: value for key, value in rope["full_attention"].items() if key != "rope_theta"}
        names = {"rope_theta": 77.0}, {"rope_theta": 77.0, "rope_local_base_freq": 9.0}, {}, {"global_rope_theta": 77.0, "local_rope_theta": 9.0}
        for thetas in names:
            for scaling in (None, full, {"rope_type": "linear", "factor": 3.0}, {"type": "linear", "factor": 3.0}):
                yield f"older {thetas} {scaling}", {**rest, **thetas, "rope_scaling": scaling}
    for count in (2, 3, 6):
        without = {key: value for key, value in config.items() if key not in ("layer_types", "_sliding_window_pattern")}
        yield f"pattern {count}", {**without, "sliding_window_pattern": count, "global_attn_every_n_layers": count}


def verdict(small, base, here, config):
    """None: refused, or right; else the losses here and there."""
    words = small.imported(config)
    if words is None:
        return None
    there = small.there_loss(config)
    if there is None or (words == here[0] and abs(there - base) < 1e-9 * base):
        return None
    loss = small.here_loss(words)
    if loss is None:
        there, loss = small.there_loss(config), small.here_loss(words)
        small.write_tokens(SEQ)
    return None if abs(loss - there) < TOLERANCE * there else (loss, there)


@pytest.mark.parametrize("family", CHOSEN, ids=lambda family: family.name)
def test_a_changed_key_is_refused_or_right(family, tmp_path):
    small = Small(family, tmp_path)
    base, words = small.there_loss(small.config), small.imported(small.config)
    assert words and base and abs(small.here_loss(words) - base) < TOLERANCE * base
    wrong = {}
    for what, config in [*changes(small.config), *older(small.config)]:
        said = verdict(small, base, (words,), config)
        if said:
            wrong[what] = said
    extra = left_over(family)
    refused = refused_keys(tmp_path, family, small.config, extra)
    for path, value in extra.items():
        for other in [value, *other_values(path, value)] if path not in refused else []:
            config = changed(small.config, path, other)
            said = config and verdict(small, base, (words,), config)
            if said:
                wrong[f"left over {'.'.join(path)}={other!r}"] = said
    assert not wrong, wrong
