#!/usr/bin/env python3
"""torch_train.py - the models of tests/gpu/run.sh in PyTorch on the same GPU.

LlamaForCausalLM in bf16 with SDPA, torch.compile and fused AdamW: whole steps
on random tokens, the median of ten after the compiling ones. Prints
"torch NAME: TOKENS tokens/s, MS ms a step". Its weights and moments are bf16
alone, where loco keeps them in fp32: torch moves fewer bytes an optimizer step.
Then its attention by library, forward and with backward, at the shapes of
gpu_speed. --warm compiles only, for a cache that the measured run finds.
"""
import statistics
import sys
import time

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = (
    ("150M", 64, 1024, dict(hidden_size=1024, num_hidden_layers=12,
                            num_attention_heads=16, num_key_value_heads=16,
                            intermediate_size=2688)),
    ("1.1B", 16, 2048, dict(hidden_size=2048, num_hidden_layers=22,
                            num_attention_heads=32, num_key_value_heads=4,
                            intermediate_size=5632)),
)
WARM = "--warm" in sys.argv


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
    for i in range(2 if WARM else 13):
        torch.cuda.synchronize()
        began = time.monotonic()
        step_of(tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= 3:
            took.append(time.monotonic() - began)
    if WARM:
        return
    ms = statistics.median(took) * 1e3
    memory = torch.cuda.max_memory_allocated() / 1e9
    print(f"torch  {name}: {batch * seq / ms * 1e3:.0f} tokens/s, "
          f"{ms:.1f} ms a step, {memory:.1f} GB at most "
          f"(torch {torch.__version__})", flush=True)


def attention(name, backend, b, t, heads, kv, d):
    """ms of forward, and of backward alone."""
    def rand(h):
        return torch.randn(b, h, t, d, device="cuda", dtype=torch.bfloat16,
                           requires_grad=True)
    q, k, v, dout = rand(heads), rand(kv), rand(kv), rand(heads)
    pairs = b * heads * d * t * t

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=heads != kv)

    def time_of(body):
        for _ in range(3):
            body()
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        ends[0].record()
        for _ in range(20):
            body()
        ends[1].record()
        torch.cuda.synchronize()
        return ends[0].elapsed_time(ends[1]) / 20

    with sdpa_kernel(backend):
        out = forward()
        fwd = time_of(forward)
        bwd = time_of(lambda: torch.autograd.grad(out, (q, k, v), dout,
                                                  retain_graph=True))
    print(f"torch  {name}, {backend.name}: forward {fwd:.3f} ms "
          f"({2 * pairs / fwd * 1e-9:.0f} TFLOP/s), backward {bwd:.3f} ms "
          f"({5 * pairs / bwd * 1e-9:.0f} TFLOP/s)", flush=True)


def tried(what, body, *args):
    try:
        body(*args)
    except RuntimeError as error:
        print(f"torch  {what}: {str(error).splitlines()[0]}", flush=True)
    torch.cuda.empty_cache()


for args in SHAPES:
    tried(args[0], measure, *args)
    torch.cuda.reset_peak_memory_stats()
if not WARM:
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        for library in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            for what, *shape in (("attention B 64 T 1024", 64, 1024, 16, 16, 64),
                                 ("attention B 16 T 2048", 16, 2048, 32, 4, 64),
                                 ("heads of 128, B 8", 8, 2048, 16, 16, 128)):
                what += ", deterministic" if deterministic else ""
                tried(what, attention, what, library, *shape)
