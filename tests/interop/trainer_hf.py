"""trainer_hf.py - transformers' Trainer trains a small Llama with others.

use: trainer_hf.py --init DIR                 write the Llama that a run begins with
     trainer_hf.py --join URI DIR TEXT OUT    be a peer; OUT: the model at the end
"""
import os
import sys

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, Trainer,
                          TrainingArguments)

import loco.hf

SEQ, BATCH = 64, 4 // int(os.environ.get("WORLD_SIZE", "1"))  # of a process


def init(folder):
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=SEQ, tie_word_embeddings=True,
    )).save_pretrained(folder)


class Windows(torch.utils.data.Dataset):
    def __init__(self, path):
        with open(path, "rb") as f:
            self.text = torch.tensor(list(f.read()), dtype=torch.int64)

    def __len__(self):
        return len(self.text) // SEQ

    def __getitem__(self, i):
        row = self.text[i * SEQ:(i + 1) * SEQ]
        return {"input_ids": row, "labels": row}


def train(uri, folder, text, out):
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    args = TrainingArguments(
        output_dir=out + ".work", max_steps=1000000, learning_rate=1e-3,
        per_device_train_batch_size=BATCH, report_to=[], save_strategy="no",
        logging_strategy="no", use_cpu=True, disable_tqdm=True,
        ddp_backend="gloo" if "RANK" in os.environ else None)
    peer = loco.hf.Callback(uri, tokens=BATCH * SEQ,
                            args=["--listen", "127.0.0.1:0", "--keep", "100",
                                  "--checkpoint-percent", "100"])
    Trainer(model, args, train_dataset=Windows(text), callbacks=[peer]).train()
    if int(os.environ.get("RANK", "0")) == 0:
        model.save_pretrained(out)


if __name__ == "__main__":
    if sys.argv[1] == "--init":
        init(sys.argv[2])
    else:
        train(*sys.argv[2:])
