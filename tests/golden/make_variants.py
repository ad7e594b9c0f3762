#!/usr/bin/env python3
"""Makes tests/golden/variants: small random qwen4_exp checkpoints of unusual geometry, as HF
transformers saves them, and what HF computes from them in float32 on the CPU, attention eager.

    make_variants.py make FOLDER [NAME...]    needs torch and transformers 5.17
    make_variants.py check FOLDER [NAME...]   needs only numpy: goldens against the reference below

What is made: variants/README.md. Each sequence is drawn again until nothing in it hangs on
rounding, see EDGES. The program stops with an error if HF's cached and uncached greedy
continuations differ or HF and the reference do not agree.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np

# Smallest distances that a sequence with its greedy continuation may have to a decision that could
# fall the other way (float32 against float64 is about 1e-5 here).
EDGES = {
    "block": 5e-4,  # (K-th minus (K+1)-th block score) / best block score of that query
    "expert": 1e-4,  # k-th minus (k+1)-th router probability
    "gate": 5e-4,  # |z| of the n-gram gate, whose square root is steep around 0
    "argmax": 5e-3,  # best minus second logit of each greedy step
}
AGREEMENT = 1e-4  # logits and hidden states, HF in float32 against the reference in float64
LENGTHS = (1, 2, 9, 60, 130)
HIDDEN_OF = 3  # hidden.i.l is stored for this sequence
GREEDY = 24

BASE = {
    "attention_bias": False,
    "bos_token_id": None,
    "hidden_act": "silu",
    "indexer_kv_heads": 1,
    "max_position_embeddings": 4096,
    "pad_token_id": None,
}

# "weights" is the seed of weights and ids, "config" is what HF gets. Afterwards the saved
# config.json is edited: "drop" keys are removed (HF's default is the value in "config"), "set" keys
# replaced (they mean the same). The goldens are computed from a model loaded again from the edited
# folder.
VARIANTS = {
    "v1": {
        "weights": 15,
        "config": {
            "hidden_size": 32, "num_hidden_layers": 5, "vocab_size": 67, "rms_norm_eps": 1e-6,
            "hc_count": 2, "hc_lowrank": 5,
            "layer_types": [
                "full_attention", "linear_attention", "linear_attention", "full_attention",
                "linear_attention",
            ],
            "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 24,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5,
                "mrope_section": [2, 2, 2], "mrope_interleaved": True,
            },
            "indexer_n_heads": 3, "indexer_head_dim": 16, "indexer_compress_ratio": 3,
            "indexer_budget": 6, "linear_num_key_heads": 3, "linear_num_value_heads": 6,
            "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 3,
            "output_gate_type": "silu", "num_experts": 5, "num_experts_per_tok": 2,
            "moe_intermediate_size": 20, "shared_expert_intermediate_size": 12,
            "ple_layer_ids": [5], "ngram_size": 4, "heads_per_ngram": 2, "ple_embed_dim": 36,
            "ngram_vocab_size_base": 31, "make_ngram_vocab_size_divisible_by": 9,
            "split_ngram_parts": 3, "seed": 99, "eos_token_id": 2, "tie_word_embeddings": True,
        },
        "drop": ["norm_topk_prob", "ple_conv_kernel_size"],
        "set": {
            "layer_types": [
                "full_attention", "linear_attention", "linear_attention", "full_attention",
                "linear_attention",
            ],
        },
    },
    "v2": {
        "weights": 2,
        "config": {
            "hidden_size": 32, "num_hidden_layers": 5, "vocab_size": 64, "rms_norm_eps": 1e-6,
            "hc_count": 3, "hc_lowrank": 7, "num_attention_heads": 8, "num_key_value_heads": 1,
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2],
                "mrope_interleaved": True,
            },
            "indexer_n_heads": 4, "indexer_head_dim": 20, "indexer_compress_ratio": 8,
            "indexer_budget": 16, "linear_num_key_heads": 3, "linear_num_value_heads": 3,
            "linear_key_head_dim": 16, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 5,
            "output_gate_type": "sigmoid", "num_experts": 5, "num_experts_per_tok": 3,
            "moe_intermediate_size": 9, "shared_expert_intermediate_size": 11,
            "norm_topk_prob": False, "ple_layer_ids": [1, 3], "ngram_size": 2, "heads_per_ngram": 5,
            "ple_embed_dim": 35, "ngram_vocab_size_base": 53,
            "make_ngram_vocab_size_divisible_by": 8, "split_ngram_parts": 1, "eos_token_id": 0,
            "tie_word_embeddings": False,
        },
        "drop": ["layer_types", "seed", "tie_word_embeddings", "hidden_act"],
        "set": {"ple_layer_ids": [3, 1, 3]},
    },
    "v3": {
        "weights": 3,
        "config": {
            "hidden_size": 32, "num_hidden_layers": 3, "vocab_size": 64, "rms_norm_eps": 1e-3,
            "hc_count": 5, "hc_lowrank": 3,
            "layer_types": ["linear_attention", "qwen_sparse_attention", "linear_attention"],
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 20,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.2,
            },
            "indexer_n_heads": 4, "indexer_head_dim": 10, "indexer_compress_ratio": 2,
            "indexer_budget": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
            "linear_key_head_dim": 12, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 2,
            "output_gate_type": None, "num_experts": 3, "num_experts_per_tok": 3,
            "moe_intermediate_size": 10, "shared_expert_intermediate_size": 13, "ple_layer_ids": [],
            "eos_token_id": 5, "tie_word_embeddings": False,
        },
        "drop": [
            "output_gate_type", "ple_layer_ids", "ple_embed_dim", "ple_conv_kernel_size",
            "ngram_size", "heads_per_ngram", "ngram_vocab_size_base", "seed", "split_ngram_parts",
            "make_ngram_vocab_size_divisible_by", "number_of_conv_states",
        ],
        "set": {},
        "stacked": True,
    },
    "v4": {
        "weights": 4,
        "config": {
            "hidden_size": 40, "num_hidden_layers": 4, "vocab_size": 70, "rms_norm_eps": 1e-6,
            "hc_count": 4, "hc_lowrank": 6,
            "layer_types": [
                "linear_attention", "linear_attention", "qwen_sparse_attention",
                "qwen_sparse_attention",
            ],
            "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 18,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.35,
                "mrope_section": [1, 1, 1], "mrope_interleaved": True,
            },
            "indexer_n_heads": 1, "indexer_head_dim": 14, "indexer_compress_ratio": 5,
            "indexer_budget": 10, "linear_num_key_heads": 1, "linear_num_value_heads": 5,
            "linear_key_head_dim": 10, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 4,
            "output_gate_type": "sigmoid", "num_experts": 7, "num_experts_per_tok": 1,
            "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24,
            "ple_layer_ids": [2], "ngram_size": 5, "heads_per_ngram": 1, "ple_embed_dim": 20,
            "ple_conv_kernel_size": 2, "ngram_vocab_size_base": 61,
            "make_ngram_vocab_size_divisible_by": 24, "split_ngram_parts": 12, "seed": 4321,
            "eos_token_id": [7, 3], "tie_word_embeddings": False,
        },
        "drop": [],
        "set": {},
        "dtype": "bfloat16",
        "max_shard_size": "40KB",
        # One indexer head: half of all block scores would be 0 and tie. So embeddings share an
        # offset, and index queries and keys a direction outside the rotary part, proportional to
        # the mean input.
        "offset": 1.5,
        "positive_scores": 0.5,
        "edges": {"block": 2e-4},
    },
}


# -------------------------------------------------------------------------------------------------
# The reference: the model's equations in float64, straight from the files.


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            value = (np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16).view("<f4")
        else:
            value = np.frombuffer(
                data[begin:end], {"F32": "<f4", "I32": "<i4", "I64": "<i8"}[entry["dtype"]]
            )
        tensors[name] = value.reshape(entry["shape"])
    return tensors


def read_checkpoint(folder):
    index = folder / "model.safetensors.index.json"
    names = (
        sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else []
    )
    tensors = {}
    for name in names or ["model.safetensors"]:
        tensors.update(read_safetensors(folder / name))
    return tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def smallest(values):
    return float(np.min(values)) if np.size(values) else float("inf")


def top_gap(values, k):
    """k-th minus (k+1)-th largest of the last axis."""
    ordered = -np.sort(-values, axis=-1)
    return (
        ordered[..., k - 1] - ordered[..., k]
        if k < values.shape[-1]
        else np.full(values.shape[:-1], np.inf)
    )


def primes_from(start):
    while True:
        if start > 1 and all(start % d for d in range(2, int(start**0.5) + 1)):
            yield start
        start += 1


def splitmix(x):
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


class Reference:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        config = json.loads((folder / "config.json").read_text())
        self.config = config

        def get(key, default=None):
            value = config.get(key)
            return default if value is None else value

        self.eps = config["rms_norm_eps"]
        self.hidden = config["hidden_size"]
        self.layers = config["num_hidden_layers"]
        self.vocab = config["vocab_size"]
        self.hc = get("hc_count", 4)
        interval = get("full_attention_interval", 4)
        kinds = get("layer_types") or [
            "full_attention" if (i + 1) % interval == 0 else "linear_attention"
            for i in range(self.layers)
        ]
        self.is_gdn = [kind == "linear_attention" for kind in kinds]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config["head_dim"]
        rope = config["rope_parameters"]
        self.rotary = int(self.head_dim * rope.get("partial_rotary_factor", 1.0))
        self.theta = rope["rope_theta"]
        self.index_heads, self.index_dim = config["indexer_n_heads"], config["indexer_head_dim"]
        self.ratio = config["indexer_compress_ratio"]
        self.blocks = config["indexer_budget"] // self.ratio
        self.key_heads, self.value_heads = (
            config["linear_num_key_heads"],
            config["linear_num_value_heads"],
        )
        self.key_dim, self.value_dim = (
            config["linear_key_head_dim"],
            config["linear_value_head_dim"],
        )
        self.gate = {"sigmoid": sigmoid, "silu": silu}[
            get("output_gate_type", get("hidden_act", "silu"))
        ]
        self.top_k = config["num_experts_per_tok"]
        self.experts = config["num_experts"]
        self.normalise = get("norm_topk_prob", True)
        self.ngram = get("ngram_size", 3)
        self.per_ngram = get("heads_per_ngram", 8)
        eos = get("eos_token_id")
        self.eos = eos[0] if isinstance(eos, list) else eos

        raw = read_checkpoint(folder)
        self.weights = {
            name.removeprefix("model."): (
                value.astype(np.float64) if value.dtype == np.float32 else value
            )
            for name, value in raw.items()
        }
        self.ple = sorted(set(get("ple_layer_ids", [])))
        for ordinal, layer in enumerate(self.ple):
            prefix = f"layers.{layer - 1}.ple.ple_embedding."
            parts = [
                self.weights.pop(f"{prefix}ngram_embedding.shard_{i}.weight")
                for i in range(get("split_ngram_parts", 512))
            ]
            table = np.concatenate(parts)
            heads = (self.ngram - 1) * self.per_ngram
            primes = primes_from(get("ngram_vocab_size_base", 20_000_000))
            sizes = [next(primes) for _ in range((ordinal + 1) * heads)][-heads:]
            half = max(1, (2**63 - 1) // self.vocab // 2)
            base = get("seed", 1234) + 10007 * ordinal
            multipliers = [
                2 * (splitmix((base + 0x9E3779B97F4A7C15 * (i + 1)) % 2**64) % half) + 1
                for i in range(self.ngram)
            ]
            unit = get("make_ngram_vocab_size_divisible_by", 128)
            assert len(table) == -(-sum(sizes) // unit) * unit, "n-gram table rows"
            assert multipliers == self.weights[prefix + "layer_multipliers"].tolist(), "multipliers"
            assert sizes == self.weights[prefix + "ngram_heads_vocab_sizes"].tolist(), "head sizes"
            offsets = [0, *np.cumsum(sizes).tolist()[:-1]]
            assert offsets == self.weights[prefix + "ngram_heads_offsets"].tolist(), "head offsets"
            self.weights[prefix + "all"] = (table, multipliers, sizes, offsets)

    def norm(self, x, name, groups=1):
        grouped = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
        grouped = grouped / np.sqrt(np.mean(grouped**2, -1, keepdims=True) + self.eps)
        return grouped.reshape(x.shape) * (1 + self.weights[name])

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def rope(self, x, positions):
        """x [n, heads, dim], positions [n]"""
        half = self.rotary // 2
        angles = positions[:, None] * self.theta ** (-2.0 * np.arange(half) / self.rotary)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b, rest = x[..., :half], x[..., half : self.rotary], x[..., self.rotary :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def read(self, wide, name, inject=True):
        normed = self.norm(wide, name + ".hc_norm.weight", self.hc)
        low = silu(self.linear(normed, name + ".input_mix_weight_down") / self.hc)
        gates = sigmoid(self.linear(low, name + ".input_mix_weight_up"))
        mixed = (gates * normed).reshape(-1, self.hc, self.hidden).mean(1)
        if not inject:
            return mixed
        return mixed, 2 * sigmoid(self.linear(normed, name + ".block_inject_weight") / self.hc)

    def ngram_layer(self, wide, ids, layer, edges):
        name = f"layers.{layer}.ple."
        table, multipliers, sizes, offsets = self.weights[name + "ple_embedding.all"]
        rows = np.zeros((len(ids), len(sizes)), int)
        for p in range(len(ids)):
            cut, mixed = False, int(ids[p]) * multipliers[0]
            for k in range(1, self.ngram):
                cut = cut or p < k or ids[p - k] == self.eos
                mixed ^= (self.eos if cut else int(ids[p - k])) * multipliers[k]
                for h in range((k - 1) * self.per_ngram, k * self.per_ngram):
                    rows[p, h] = mixed % sizes[h] + offsets[h]
        e = table[rows].reshape(len(ids), -1)
        key = self.norm(self.linear(e, name + "key_proj"), name + "norm_key.weight", self.hc)
        query = self.norm(wide, name + "norm_query.weight", self.hc)
        z = (key * query).reshape(-1, self.hc, self.hidden).sum(-1) / np.sqrt(self.hidden)
        edges["gate"].append(smallest(np.abs(z)))
        a = sigmoid(np.sign(z) * np.sqrt(np.maximum(np.abs(z), 1e-6)))
        gated = (a[..., None] * self.linear(e, name + "value_proj")[:, None]).reshape(wide.shape)
        normed = self.norm(gated, name + "norm_conv.weight", self.hc)
        return gated + silu(self.conv(normed, self.weights[name + "conv1d.weight"], self.ngram))

    @staticmethod
    def conv(x, taps, dilation):
        taps = taps[:, 0]
        kernel = taps.shape[1]
        padded = np.concatenate([np.zeros(((kernel - 1) * dilation, x.shape[1])), x])
        return sum(taps[:, k] * padded[k * dilation : k * dilation + len(x)] for k in range(kernel))

    def gdn(self, m, layer):
        name = f"layers.{layer}.linear_attn."
        n = len(m)
        mixed = silu(
            self.conv(self.linear(m, name + "in_proj_qkv"), self.weights[name + "conv1d.weight"], 1)
        )
        keys = self.key_heads * self.key_dim
        q = mixed[:, :keys].reshape(n, self.key_heads, -1)
        k = mixed[:, keys : 2 * keys].reshape(n, self.key_heads, -1)
        v = mixed[:, 2 * keys :].reshape(n, self.value_heads, -1)
        q = q / np.sqrt((q**2).sum(-1, keepdims=True) + 1e-6) / np.sqrt(self.key_dim)
        k = k / np.sqrt((k**2).sum(-1, keepdims=True) + 1e-6)
        q, k = (np.repeat(x, self.value_heads // self.key_heads, 1) for x in (q, k))
        beta = sigmoid(self.linear(m, name + "in_proj_b"))
        decay = np.exp(
            -np.exp(self.weights[name + "A_log"])
            * np.logaddexp(0, self.linear(m, name + "in_proj_a") + self.weights[name + "dt_bias"])
        )
        state = np.zeros((self.value_heads, self.key_dim, self.value_dim))
        out = np.zeros_like(v)
        for t in range(n):
            state *= decay[t][:, None, None]
            delta = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
            state += k[t][:, :, None] * delta[:, None]
            out[t] = np.einsum("hkv,hk->hv", state, q[t])
        z = self.linear(m, name + "in_proj_z").reshape(out.shape)
        out = out / np.sqrt(np.mean(out**2, -1, keepdims=True) + self.eps)
        out = out * self.weights[name + "norm.weight"] * self.gate(z)
        return self.linear(out.reshape(n, -1), name + "out_proj")

    def qsa(self, m, layer, edges):
        name = f"layers.{layer}.self_attn."
        n = len(m)
        positions = np.arange(n)
        q, gate = np.split(self.linear(m, name + "q_proj").reshape(n, self.heads, -1), 2, -1)
        k = self.linear(m, name + "k_proj").reshape(n, self.kv_heads, -1)
        v = self.linear(m, name + "v_proj").reshape(n, self.kv_heads, -1)
        q = self.rope(self.norm(q, name + "q_norm.weight"), positions)
        k = self.rope(self.norm(k, name + "k_norm.weight"), positions)
        index = self.linear(m, name + "indexer.index_qk_proj").reshape(n, self.index_heads + 1, -1)
        index_q = self.rope(
            self.norm(index[:, :-1], name + "indexer.q_layernorm.weight"), positions
        )
        complete = n // self.ratio
        pooled = (
            index[: complete * self.ratio, -1].reshape(complete, self.ratio, self.index_dim).mean(1)
        )
        pooled = self.norm(pooled, name + "indexer.k_layernorm.weight")[:, None]
        pooled = self.rope(pooled, positions[:: self.ratio][:complete])[:, 0]
        scores = np.maximum(np.einsum("thd,bd->thb", index_q, pooled), 0).sum(1)
        group = self.heads // self.kv_heads
        out = np.zeros((n, self.heads, self.head_dim))
        for t in range(n):
            count = (t + 1) // self.ratio
            chosen = np.ones(t + 1, bool)
            if count > self.blocks:
                s = scores[t, :count]
                edges["block"].append(float(top_gap(s, self.blocks) / max(s.max(), 1e-30)))
                chosen[: count * self.ratio] = False
                for b in np.argsort(-s, kind="stable")[: self.blocks]:
                    chosen[b * self.ratio : (b + 1) * self.ratio] = True
            cells = np.flatnonzero(chosen)
            for h in range(self.heads):
                a = k[cells, h // group] @ q[t, h] / np.sqrt(self.head_dim)
                a = np.exp(a - a.max())
                out[t, h] = (a / a.sum()) @ v[cells, h // group]
        return self.linear((out * sigmoid(gate)).reshape(n, -1), name + "o_proj")

    def expert(self, layer, x):
        name = f"layers.{layer}.mlp.experts."
        if name + "gate_up_proj" in self.weights:
            gate_up, down = (
                self.weights[name + "gate_up_proj"][x],
                self.weights[name + "down_proj"][x],
            )
            return (*np.split(gate_up, 2), down)
        return tuple(
            self.weights[f"{name}{x}.{part}_proj.weight"] for part in ("gate", "up", "down")
        )

    def moe(self, m, layer, edges):
        name = f"layers.{layer}.mlp."
        logits = self.linear(m, name + "gate")
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        edges["expert"].append(smallest(top_gap(p, self.top_k)))
        kept = np.argsort(-p, -1, kind="stable")[:, : self.top_k]
        w = np.zeros_like(p)
        np.put_along_axis(w, kept, np.take_along_axis(p, kept, -1), -1)
        if self.normalise:
            w /= w.sum(-1, keepdims=True)
        out = 0
        for x in range(self.experts):
            gate, up, down = self.expert(layer, x)
            out = out + w[:, x : x + 1] * ((silu(m @ gate.T) * (m @ up.T)) @ down.T)
        shared = silu(self.linear(m, name + "shared_expert.gate_proj"))
        shared = self.linear(
            shared * self.linear(m, name + "shared_expert.up_proj"),
            name + "shared_expert.down_proj",
        )
        return out + sigmoid(self.linear(m, name + "shared_expert_gate")) * shared

    def __call__(self, ids):
        """-> logits [n, vocab], hidden [layers + 1], smallest distance to each kind of edge, and
        the input of the attention block by layer"""
        edges = {"block": [], "expert": [], "gate": []}
        wide = np.tile(self.weights["embed_tokens.weight"][ids], (1, self.hc))
        hidden, inputs = [], {}

        def write(wide, out, inject):
            return wide + (inject[..., None] * out[:, None]).reshape(wide.shape)

        for layer in range(self.layers):
            hidden.append(wide)
            if layer + 1 in self.ple:
                wide = wide + self.ngram_layer(wide, ids, layer, edges)
            m, inject = self.read(wide, f"layers.{layer}.attn_hyper_connection")
            inputs[layer] = m
            wide = write(
                wide,
                self.gdn(m, layer) if self.is_gdn[layer] else self.qsa(m, layer, edges),
                inject,
            )
            m, inject = self.read(wide, f"layers.{layer}.mlp_hyper_connection")
            wide = write(wide, self.moe(m, layer, edges), inject)
        hidden.append(self.read(wide, "hyper_connection_mixer", inject=False))
        head = "embed_tokens" if self.config.get("tie_word_embeddings") else "lm_head"
        return (
            self.linear(hidden[-1], head),
            hidden,
            {k: smallest(v) for k, v in edges.items()},
            inputs,
        )


# -------------------------------------------------------------------------------------------------
# Making


def random_weights(model, spec, rng):
    """Every parameter matters. Drawn by numpy in the order of names."""
    import torch

    for name, parameter in sorted(model.named_parameters()):
        shape = tuple(parameter.shape)
        noise = rng.standard_normal(shape)
        part = name.split(".")[-2]
        if name.endswith("linear_attn.norm.weight"):
            value = 1 + 0.2 * noise
        elif part.endswith(("norm", "layernorm")) or part in (
            "norm_key",
            "norm_query",
            "norm_conv",
        ):
            value = 0.2 * noise
        elif name.endswith("A_log"):
            value = rng.uniform(-3, 1, shape)
        elif name.endswith("dt_bias"):
            value = noise
        elif part == "conv1d":
            value = noise * (0.3 if ".ple." in name else 0.5)
        elif part == "embed_tokens":
            value = noise + spec.get("offset", 0) * rng.standard_normal(shape[-1])
            if spec["config"]["tie_word_embeddings"]:
                value *= 0.25  # else the model repeats its last token
        elif part == "ngram_embedding":
            value = noise
        elif part in ("input_mix_weight_down", "input_mix_weight_up", "block_inject_weight"):
            value = 3 * noise / shape[-1] ** 0.5
        else:
            value = noise / shape[-1] ** 0.5 * (3 if part == "lm_head" else 1)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.asarray(value)).to(parameter.dtype))


def make_scores_positive(model, spec, folder, rng):
    """Adds one direction to all index queries and keys, proportional to the mean input."""
    import torch

    rotary = int(
        spec["config"]["head_dim"] * spec["config"]["rope_parameters"]["partial_rotary_factor"]
    )
    dim = spec["config"]["indexer_head_dim"]
    for layer, kind in enumerate(model.config.layer_types):
        if kind == "linear_attention":
            continue
        save(model, spec, folder)  # the layers before it are final now
        ids = rng.integers(0, spec["config"]["vocab_size"], 200)
        m = Reference(folder)(ids)[3][layer].mean(0)
        direction = np.zeros(dim)
        direction[rotary:] = rng.standard_normal(dim - rotary)
        direction *= spec["positive_scores"] * dim**0.5 / np.linalg.norm(direction)
        weight = model.model.layers[layer].self_attn.indexer.index_qk_proj.weight
        added = np.tile(np.outer(direction, m / (m @ m)), (weight.shape[0] // dim, 1))
        with torch.no_grad():
            weight += torch.from_numpy(added).to(weight.dtype)


def save(model, spec, folder):
    import torch

    shutil.rmtree(folder, ignore_errors=True)
    # A saved model takes the dtype of its parameters; the hash constants stay int64.
    dtype = getattr(torch, spec.get("dtype", "float32"))
    model.to(dtype).save_pretrained(folder, max_shard_size=spec.get("max_shard_size", "5GB"))
    model.to(torch.float32)
    edit_config(spec, folder)


def edit_config(spec, folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key in spec["drop"]:
        config.pop(key, None)
    config.update(spec["set"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load(folder):
    import torch
    from transformers import Qwen4ExpForCausalLM

    model, info = Qwen4ExpForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], (folder, key, info[key])
    return model.eval()


def stack_experts(folder):
    """The same checkpoint with the experts of a layer in one tensor, in FOLDER/stacked."""
    import torch
    from safetensors.torch import load_file, save_file

    out = folder / "stacked"
    out.mkdir()
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}.mlp.experts."
        parts = [
            [tensors.pop(f"{name}{x}.{part}_proj.weight") for x in range(config["num_experts"])]
            for part in ("gate", "up", "down")
        ]
        gate, up, down = (torch.stack(part) for part in parts)
        tensors[name + "gate_up_proj"] = torch.cat([gate, up], 1).contiguous()
        tensors[name + "down_proj"] = down
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    for name in ("config.json", "generation_config.json"):
        if (folder / name).exists():
            shutil.copy(folder / name, out / name)


def draw_ids(rng, length, vocab, eos):
    """Random ids with end-of-text inside, a run of token 0, repeated n-grams, where they fit."""
    ids = rng.integers(0, vocab, length)
    if length >= 60:
        width = length // 6
        ids[length // 2 : length // 2 + width] = ids[4 : 4 + width]
        ids[length // 4 : length // 4 + 3] = 0
        ids[-7:-4] = ids[-8]
        for i, at in enumerate((11, 12, length // 3, length - 10)):
            ids[at] = eos[i % len(eos)]
        ids[2 * length // 5] = eos[-1]
        ids[2 * length // 5 + 2] = eos[0]
    elif length >= 9:
        ids[3] = eos[0]
        ids[6] = eos[-1]
    elif length == 2:
        ids[0] = eos[0]
    return ids


def greedy(model, ids, cached):
    """-> ids, smallest distance of the two best logits"""
    import torch

    ids, found, cache, gap = list(ids), [], None, float("inf")
    feed = list(ids)
    with torch.no_grad():
        for _ in range(GREEDY):
            out = model(input_ids=torch.tensor([feed]), use_cache=cached, past_key_values=cache)
            best = torch.topk(out.logits[0, -1], 2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            found.append(int(best.indices[0]))
            cache = out.past_key_values if cached else None
            feed = [found[-1]] if cached else ids + found
    return found, gap


def golden(model, spec, reference, rng):
    import torch

    eos = spec["config"]["eos_token_id"]
    eos = eos if isinstance(eos, list) else [eos]
    bounds = EDGES | spec.get("edges", {})
    tensors, report = {}, {"sequences": []}
    for i, length in enumerate(LENGTHS):
        for attempt in range(1, 500):
            ids = draw_ids(rng, length, reference.vocab, eos)
            edges = reference(ids)[2]
            if any(edges[k] < bounds[k] for k in edges):
                continue
            tail, gap = greedy(model, ids, cached=True)
            edges = reference(np.concatenate([ids, tail]))[2] | {"argmax": gap}
            if all(edges[k] >= bounds[k] for k in edges):
                break
        else:
            raise SystemExit(f"sequence {i}: no draw without near ties; last one {edges}")
        assert tail == greedy(model, ids, cached=False)[0], "cached and uncached greedy differ"
        hidden = []
        hooks = [
            layer.register_forward_pre_hook(lambda _, args: hidden.append(args[0][0]))
            for layer in model.model.layers
        ]
        hooks.append(
            model.model.hyper_connection_mixer.register_forward_hook(
                lambda _, __, out: hidden.append(out[0])
            )
        )
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(ids[None]), use_cache=False).logits[0]
        for hook in hooks:
            hook.remove()
        tensors[f"ids.{i}"] = torch.tensor(ids, dtype=torch.int32)
        tensors[f"logits.{i}"] = logits.contiguous()
        tensors[f"greedy.{i}"] = torch.tensor(tail, dtype=torch.int32)
        if i == HIDDEN_OF:
            tensors |= {f"hidden.{i}.{l}": h.contiguous() for l, h in enumerate(hidden)}
        report["sequences"].append(
            {
                "length": length,
                "draws": attempt,
                "logits_sd": float(logits.std()),
                "edges": {k: float(f"{v:.3g}") for k, v in edges.items() if v < 1e30},
            }
        )
    return tensors, report


def compare(folder, checkpoint=None):
    """Largest differences of golden.safetensors to the reference on a checkpoint."""
    reference = Reference(checkpoint or folder)
    tensors = read_safetensors(folder / "golden.safetensors")
    logits_error = hidden_error = 0.0
    for i in range(len(LENGTHS)):
        ids = tensors[f"ids.{i}"]
        logits, hidden, _, _ = reference(ids)
        logits_error = max(logits_error, float(np.abs(logits - tensors[f"logits.{i}"]).max()))
        for layer, h in enumerate(hidden):
            if f"hidden.{i}.{layer}" in tensors:
                hidden_error = max(
                    hidden_error, float(np.abs(h - tensors[f"hidden.{i}.{layer}"]).max())
                )
        text = np.concatenate([ids, tensors[f"greedy.{i}"]])
        expected = reference(text)[0][len(ids) - 1 : -1].argmax(-1)
        assert (
            expected == tensors[f"greedy.{i}"]
        ).all(), f"{folder}: greedy.{i} differs from the reference"
    assert max(logits_error, hidden_error) < AGREEMENT, (folder, logits_error, hidden_error)
    return {"logits": float(f"{logits_error:.2g}"), "hidden": float(f"{hidden_error:.2g}")}


def make(root, names):
    import torch
    import transformers
    from safetensors.torch import save_file
    from transformers import AutoConfig, Qwen4ExpForCausalLM

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name in names:
        spec, folder = VARIANTS[name], root / name
        rng = np.random.default_rng([2026, spec["weights"]])
        config = AutoConfig.for_model("qwen4_exp_text", **(BASE | spec["config"]))
        model = Qwen4ExpForCausalLM(config)
        random_weights(model, spec, rng)
        if "positive_scores" in spec:
            make_scores_positive(model, spec, folder, rng)
        save(model, spec, folder)
        model = load(folder)
        for key, value in config.to_dict().items():
            if key not in ("_name_or_path", "transformers_version", "dtype", "architectures"):
                loaded = getattr(model.config, key, None)
                assert (
                    value == loaded
                ), f"{name}: the edited config.json changes {key}: {value} -> {loaded}"
        tensors, report = golden(model, spec, Reference(folder), rng)
        save_file(tensors, folder / "golden.safetensors")
        report["reference"] = compare(folder)
        if spec.get("stacked"):
            stack_experts(folder)
            ids = tensors["ids.4"][None].long()
            with torch.no_grad():
                again = load(folder / "stacked")(input_ids=ids, use_cache=False).logits[0]
            assert (
                again - tensors["logits.4"]
            ).abs().max() < 1e-5, "the stacked form gives other logits"
            report["stacked"] = compare(folder, folder / "stacked")
        report["bytes"] = {
            str(p.relative_to(folder)): p.stat().st_size for p in sorted(folder.rglob("*.*"))
        }
        report["made_with"] = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        }
        print(name, json.dumps(report, indent=1), flush=True)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "check"):
        raise SystemExit(__doc__)
    root, names = pathlib.Path(sys.argv[2]), sys.argv[3:] or list(VARIANTS)
    if sys.argv[1] == "make":
        make(root, names)
        return
    for name in names:
        print(name, "largest differences to the float64 reference:", compare(root / name))
        if (root / name / "stacked").exists():
            print(name, "stacked:", compare(root / name, root / name / "stacked"))


if __name__ == "__main__":
    main()
