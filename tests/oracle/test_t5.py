"""A small T5 against transformers' own, where that is installed: losses and gradient norms of ten steps."""

import numpy as np
import pytest
import torch
from common import PLAIN_SGD, compile_model, follows_transformers, read_safetensors, train

transformers = pytest.importorskip("transformers")
T5ForConditionalGeneration = pytest.importorskip("transformers", minversion="5.0").T5ForConditionalGeneration

LAYERS, SOURCE, SEQ, VOCAB, EMBED, HEADS, HEAD, FF, BUCKETS, DISTANCE = 2, 30, 14, 60, 24, 3, 8, 40, 8, 20
SIZES = dict(layers=LAYERS, source=SOURCE, seq=SEQ, vocab=VOCAB, embed=EMBED, heads=HEADS, head=HEAD, ff=FF,
             buckets=BUCKETS, distance=DISTANCE)
BATCH, RECORDS, STEPS = 4, 40, 10


class PairsModel(T5ForConditionalGeneration):
    """Takes what the encoder and what the decoder reads."""

    def forward(self, pair):
        return super().forward(input_ids=pair[0], decoder_input_ids=pair[1])


def reference_model():
    model = PairsModel(transformers.T5Config(
        vocab_size=VOCAB, d_model=EMBED, d_kv=HEAD, d_ff=FF, num_layers=LAYERS, num_heads=HEADS, dropout_rate=0.0,
        relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=DISTANCE, layer_norm_epsilon=1e-6,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, use_cache=False))
    model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCAB, EMBED))  # some versions tie it all the same
    return model


def tower(w, to, layers):
    """Weights of one tower, in the shapes of transformers: [out, in], heads in one dim.  layers: what the .mdl calls each."""
    state = {f"{to}.final_layer_norm.weight": w[f"{to[:3]}_norm_f.gain"], f"{to}.embed_tokens.weight": w["embedding"],
             f"{to}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": w[f"{to[:3]}_bias.table"]}
    for i in range(LAYERS):
        for n, (name, kind) in enumerate(layers.items()):
            at, own = f"{to}.block.{i}.layer.{n}.", f"{to[:3]}_{name}.{i}."
            state[at + "layer_norm.weight"] = w[f"{to[:3]}_norm_{n + 1}.{i}.gain"]
            if kind == "DenseReluDense":
                state |= {f"{at}{kind}.{key}.weight": w[own + name].T
                          for key, name in (("wi_0", "w_gate"), ("wi_1", "w_up"), ("wo", "w_down"))}
                continue
            state |= {f"{at}{kind}.{key}.weight": w[f"{own}w{key}"].reshape(EMBED, -1).T for key in "qkv"}
            state[f"{at}{kind}.o.weight"] = w[own + "wo"].reshape(-1, EMBED).T
    return state


def load(model, w):
    state = {"shared.weight": w["embedding"], "lm_head.weight": w["head_out"].T}
    state |= tower(w, "encoder", {"attn": "SelfAttention", "mlp": "DenseReluDense"})
    state |= tower(w, "decoder", {"attn": "SelfAttention", "read": "EncDecAttention", "mlp": "DenseReluDense"})
    model.load_state_dict({key: torch.tensor(np.ascontiguousarray(value)) for key, value in state.items()})


def pairs(text, tokens):
    for step in range(10**9):
        at = [(step * BATCH + n) % RECORDS for n in range(BATCH)]
        yield (torch.tensor(text[at]), torch.tensor(tokens[at, :-1])), torch.tensor(tokens[at, 1:])


def test_t5_follows_transformers(tmp_path):
    sizes = [word for key, value in SIZES.items() for word in ("-D", f"{key}={value}")]
    out = compile_model("t5", tmp_path, *sizes, *PLAIN_SGD, f"--set=train.batch={BATCH}")
    draw = np.random.default_rng(1)
    text = draw.integers(0, 8, (RECORDS, SOURCE))  # so that there is something to learn
    tokens = np.concatenate([text[:, :SEQ], text[:, :1]], 1)  # to be copied
    np.save(out / "text.npy", text)
    np.save(out / "tokens.npy", tokens)
    data = ["--data", f"text={out / 'text.npy'}", "--data", f"tokens={out / 'tokens.npy'}"]
    train(out, *data, "--steps", 0, "--save", out / "init.safetensors")
    weights = read_safetensors(out / "init.safetensors")
    model = reference_model()
    load(model, {name: value for name, value in weights.items() if not name.startswith("optimizer.")})
    log = train(out, *data, "--no-shuffle", "--steps", STEPS)
    assert follows_transformers(log, model, pairs(text, tokens)) and len(log) == STEPS
