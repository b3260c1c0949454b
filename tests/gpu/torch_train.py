#!/usr/bin/env python3
"""torch_train.py - the models of tests/gpu/run.sh in PyTorch on the same GPU.

LlamaForCausalLM in bf16 with SDPA, torch.compile and fused AdamW: whole steps
on random tokens, the median of ten after the compiling ones. Prints
"torch NAME: TOKENS tokens/s, MS ms a step".
"""
import statistics
import time

import torch
import transformers

SHAPES = (
    ("150M", 64, 1024, dict(hidden_size=1024, num_hidden_layers=12,
                            num_attention_heads=16, num_key_value_heads=16,
                            intermediate_size=2688)),
    ("1.1B", 16, 2048, dict(hidden_size=2048, num_hidden_layers=22,
                            num_attention_heads=32, num_key_value_heads=4,
                            intermediate_size=5632)),
)


def measure(name, batch, seq, shape):
    config = transformers.LlamaConfig(
        vocab_size=32000, max_position_embeddings=seq, tie_word_embeddings=False,
        attn_implementation="sdpa", use_cache=False, **shape)
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    step_of = torch.compile(lambda x: model(input_ids=x, labels=x).loss)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 32000, (batch, seq), device="cuda")
    took = []
    for i in range(15):
        torch.cuda.synchronize()
        began = time.monotonic()
        step_of(tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= 5:
            took.append(time.monotonic() - began)
    ms = statistics.median(took) * 1e3
    print(f"torch  {name}: {batch * seq / ms * 1e3:.0f} tokens/s, "
          f"{ms:.1f} ms a step (torch {torch.__version__})", flush=True)


for args in SHAPES:
    try:
        measure(*args)
    except RuntimeError as error:
        print(f"torch  {args[0]}: {str(error).splitlines()[0]}", flush=True)
    torch.cuda.empty_cache()
