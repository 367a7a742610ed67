"""A small DeepSeek-V3 against transformers' own, where that is installed: losses and gradient norms of ten steps.  The
bias of the experts, which transformers leaves as it is, is moved here by the load that its routers report.  Multi-token
prediction, which transformers lacks, is written here with its layers, from arXiv 2412.19437, section 2.2."""
import numpy as np
import pytest
import torch
from common import PLAIN_SGD, ROOT, batches, compile_model, follows_transformers, fused_experts, initial_weights, train, write_text

transformers = pytest.importorskip("transformers", minversion="5.0")

DENSE, LAYERS, EMBED, HEADS, NOPE, TURNED, VHEAD, QR, KVR, FF, EXPERT_FF = 1, 2, 48, 3, 8, 4, 10, 20, 12, 40, 24
EXPERTS, GROUPS, LIMIT, CHOICE, VOCAB, SEQ, BATCH, STEPS, PACE, WEIGHT = 8, 4, 2, 3, 256, 24, 4, 10, 0.02, 0.3
SIZES = dict(dense_layers=DENSE, layers=LAYERS, embed=EMBED, heads=HEADS, nope=NOPE, turned=TURNED, vhead=VHEAD, q_rank=QR,
             kv_rank=KVR, ff=FF, expert_ff=EXPERT_FF, experts=EXPERTS, groups=GROUPS, limit=LIMIT, choice=CHOICE,
             vocab=VOCAB, seq=SEQ, pace=PACE, mtp_weight=WEIGHT)


def reference_model():
    config = transformers.DeepseekV3Config(
        vocab_size=VOCAB, hidden_size=EMBED, intermediate_size=FF, moe_intermediate_size=EXPERT_FF,
        num_hidden_layers=DENSE + LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS, n_shared_experts=1,
        n_routed_experts=EXPERTS, routed_scaling_factor=2.5, kv_lora_rank=KVR, q_lora_rank=QR, qk_rope_head_dim=TURNED,
        v_head_dim=VHEAD, qk_nope_head_dim=NOPE, n_group=GROUPS, topk_group=LIMIT, num_experts_per_tok=CHOICE,
        first_k_dense_replace=DENSE, norm_topk_prob=True, rms_norm_eps=1e-6, rope_theta=10000.0, rope_interleave=True,
        attn_implementation="eager", experts_implementation="eager", tie_word_embeddings=False)
    return transformers.DeepseekV3ForCausalLM(config).train()


def joined(*parts):
    """Heads of several parts in one dim: [in, heads, each] to [out, in]."""
    whole = np.concatenate(parts, -1)
    return whole.reshape(whole.shape[0], -1).T


def attention_state(w, to, path):
    state = {"q_a_proj.weight": w[path + "w_dq"].T, "q_a_layernorm.weight": w[path + "q_gain"],
             "q_b_proj.weight": joined(w[path + "wq"], w[path + "wq_turned"]),
             "kv_a_proj_with_mqa.weight": np.concatenate([w[path + "w_dkv"], w[path + "wk_turned"][:, 0]], 1).T,
             "kv_a_layernorm.weight": w[path + "kv_gain"], "kv_b_proj.weight": joined(w[path + "wk"], w[path + "wv"]),
             "o_proj.weight": w[path + "wo"].reshape(-1, EMBED).T}
    return {f"{to}self_attn.{key}": value for key, value in state.items()}


def mlp_state(w, to, path):
    return {f"{to}{key}_proj.weight": w[f"{path}w_{key}"].T for key in ("gate", "up", "down")}


def layer_state(w, to, path):
    """Of a layer of the model, or of one for a further token."""
    dense = path.startswith("d.")
    state = attention_state(w, to, path + "attn.")
    state[to + "input_layernorm.weight"] = w[path + "attn_norm.gain"]
    state[to + "post_attention_layernorm.weight"] = w[path + ("mlp_norm.gain" if dense else "moe_norm.gain")]
    if dense:
        return state | mlp_state(w, to + "mlp.", path + "mlp.")
    state[to + "mlp.gate.weight"] = w[path + "routed.router"].T
    state[to + "mlp.gate.e_score_correction_bias"] = w[path + "routed.bias"]
    state |= mlp_state(w, to + "mlp.shared_experts.", path + "shared.")
    experts = fused_experts(*(w[f"{path}routed.w_{key}"] for key in ("gate", "up", "down")))
    return state | {f"{to}mlp.experts.{key}": value for key, value in experts.items()}


def load(model, w, depths):
    """Weights of the .mdl in the shapes of transformers."""
    state = {"model.embed_tokens.weight": w["embedding"], "model.norm.weight": w["norm_f.gain"],
             "lm_head.weight": w["head_out"].T}
    for i in range(DENSE + LAYERS):
        state |= layer_state(w, f"model.layers.{i}.", f"d.{i}." if i < DENSE else f"h.{i - DENSE}.")
    for i in range(depths):
        state |= layer_state(w, f"further.depths.{i}.layer.", f"mtp.{i}.layer.")
        state[f"further.depths.{i}.join.weight"] = w[f"mtp.{i}.join"].T
        state |= {f"further.depths.{i}.{name}.weight": w[f"mtp.{i}.{name}.gain"] for name in ("norm_x", "norm_token", "norm_f")}
    model.load_state_dict({key: torch.tensor(np.ascontiguousarray(value)) for key, value in state.items()})


class Further(torch.nn.Module):
    """The losses of tokens after the next one."""

    def __init__(self, model, depths):
        super().__init__()
        norm, layer = type(model.model.norm), type(model.model.layers[0])
        self.depths = torch.nn.ModuleList(torch.nn.ModuleDict({
            "norm_x": norm(EMBED, eps=1e-6), "norm_token": norm(EMBED, eps=1e-6), "norm_f": norm(EMBED, eps=1e-6),
            "join": torch.nn.Linear(2 * EMBED, EMBED, bias=False), "layer": layer(model.config, DENSE)}) for _ in range(depths))
        model.model.norm.register_forward_pre_hook(self.keep)

    def keep(self, _, args):
        self.x = args[0]

    def loss(self, model, labels):
        x, total = self.x, 0
        places = torch.arange(SEQ)[None]
        later = torch.full((SEQ, SEQ), -torch.inf, dtype=x.dtype).triu(1)[None, None]
        for k, depth in enumerate(self.depths, 1):
            token = torch.zeros_like(labels)
            token[:, :SEQ - k + 1] = labels[:, k - 1:]
            both = torch.cat([depth["norm_x"](x), depth["norm_token"](model.model.embed_tokens(token))], -1)
            x = depth["join"](both)
            x = depth["layer"](x, attention_mask=later, position_ids=places,
                               position_embeddings=model.model.rotary_emb(x, places))
            logits = model.lm_head(depth["norm_f"](x))[:, :SEQ - k]
            entropy = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, k:].flatten(), reduction="sum")
            total = total + WEIGHT / len(self.depths) * entropy / labels.numel()
        return total


def count_load(router, _, output):
    chosen = next(part for part in output if not part.is_floating_point())
    router.load = torch.bincount(chosen.flatten(), minlength=EXPERTS).float()


@pytest.mark.parametrize("depths", [0, 1, 2])
def test_deepseek_follows_transformers(depths, tmp_path):
    source = (ROOT / "examples" / "deepseek.mdl").read_text().replace("capacity = 1.5", "capacity = none")
    source = source.replace("normal(0.006)", "normal(0.05)")
    sizes = [word for key, value in SIZES.items() for word in ("-D", f"{key}={value}")] + ["-D", f"mtp={depths}"]
    out = compile_model(source, tmp_path, *sizes, *PLAIN_SGD, f"--set=train.batch={BATCH}")
    text = write_text(tmp_path / "text", 2000)
    model = reference_model()
    model.further = Further(model, depths)
    load(model, initial_weights(out, text), depths)
    model.double()
    routers = [m for m in model.modules() if hasattr(m, "e_score_correction_bias")]
    for router in routers:
        router.register_forward_hook(count_load)
    log = train(out, "--data", text, "--no-shuffle", "--steps", STEPS)

    @torch.no_grad()
    def move_bias():
        for router in routers:
            router.e_score_correction_bias += PACE * torch.sign(router.load.mean() - router.load)

    assert follows_transformers(log, model, batches(text, BATCH, SEQ), move_bias, model.further.loss) and len(log) == STEPS
    assert len(routers) == LAYERS + depths and all(router.e_score_correction_bias.abs().max() > PACE for router in routers)
