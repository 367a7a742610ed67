"""One training of transformers' own MixtralForCausalLM, for experts.py: SIZES BATCH EXPERTS STEPS THREADS -> one JSON line
{ms, bytes, versions}.

EXPERTS is transformers' experts_implementation: grouped_mm, or eager.  fp32, sdpa attention, fused AdamW, the auxiliary loss.
"""

import json
import resource
import statistics
import sys
import time

import torch
import transformers


def config_of(sizes, experts):
    return transformers.MixtralConfig(
        vocab_size=sizes["vocab"], hidden_size=sizes["embed"], intermediate_size=sizes["ff"], num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["kv_heads"] * sizes["group"], num_key_value_heads=sizes["kv_heads"], head_dim=sizes["head"],
        num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=sizes["seq"], output_router_logits=True,
        attn_implementation="sdpa", experts_implementation=experts, use_cache=False)


def main():
    sizes, batch, experts, steps, threads = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:6])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = transformers.MixtralForCausalLM(config_of(sizes, experts))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    tokens, times = torch.randint(0, sizes["vocab"], (batch, sizes["seq"])), []
    for _ in range(steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps(dict(ms=statistics.median(times[2:]), bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                          versions=f"transformers {transformers.__version__}, PyTorch {torch.__version__}")))


if __name__ == "__main__":
    main()
