#!/usr/bin/env python3
"""What llama.cpp loads of what `strata convert` writes, and what it computes from files that ask for
something it does not have. docs/peers.md has the table.

usage: llama_files.py
"""

import pathlib
import tempfile

import numpy as np

import gguf_file
import llama_peer as peer
from llama_peer import largest

# Checkpoints of unusual geometry: what llama.cpp says (a part of it).
REFUSED = {
    "tiny-noindex": "lists 2 layers, but only one PLE layer is supported",
    "variants/v1": "'blk.1.attn_qkv.weight' has wrong shape",  # key and value widths differ
    "variants/v2": "lists 2 layers, but only one PLE layer is supported",
    "variants/v3": "'blk.0.attn_qkv.weight' has wrong shape",
    "variants/v4": "'blk.0.attn_qkv.weight' has wrong shape",
}
# Settings it has no key for: it computes tiny-a as if they had not been given.
IGNORED = {"a silu output gate": {"output_gate_type": "silu"},
           "experts that are not normalised": {"norm_topk_prob": False}}


def refusal(path):
    try:
        peer.load(path)
    except peer.Refusal as reason:
        return str(reason)
    return None


def vocabularies(checks, run):
    source = run.folder / "bare"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).symlink_to(peer.GOLDEN / "tiny-a" / name)
    bare = run.convert(source, "bare.gguf")
    checks.that("key not found in model: tokenizer.ggml.model" in (refusal(bare) or ""),
                "a file without a tokenizer is refused")
    for model in ("none", "no_vocab"):
        file = gguf_file.read(bare)
        file.set("tokenizer.ggml.model", "text", model)
        named = run.folder / f"{model}.gguf"
        file.write(named)
        checks.that(refusal(named) is None and peer.load(named)["tokens"] == 512,
                    f"with tokenizer.ggml.model '{model}' it loads, and the vocabulary has 512 ids")
    ids = np.arange(40, 80)
    checkpoint = peer.copy_checkpoint(peer.GOLDEN / "tiny-a", run.folder / "bytes")
    model = run.convert(checkpoint, "bytes.gguf")
    facts = peer.load(model)
    print(f"        llama.cpp {facts['version']}: {facts['description']}")
    checks.that(facts["tokens"] == 512 and facts["parameters"] == 1459344,
                "a file with a byte tokenizer loads, with all its parameters")
    same = largest(run.llama_logits(model, ids)[0], run.llama_logits(run.folder / "none.gguf", ids)[0])
    checks.that(same == 0, "and gives the logits of the file without a vocabulary")


def refused(checks, run):
    for name, words in REFUSED.items():
        folder = peer.GOLDEN / name
        if not folder.exists():
            folder = peer.SHARED_GOLDEN / name
        if not folder.exists():
            print(f"        not compared: no {folder} (set STRATA_SHARED_DIR)")
            continue
        model = run.convert(folder, name.replace("/", "-") + ".gguf")
        file = gguf_file.read(model)
        file.set("tokenizer.ggml.model", "text", "none")
        file.write(run.folder / "other.gguf")
        reason = refusal(run.folder / "other.gguf")
        checks.that(words in (reason or ""), f"{name} is refused: {reason}")


def narrow_ngrams(checks, run):
    """tiny-a with half of each table row: n-gram embeddings half as wide as the model."""
    file = gguf_file.read(run.convert(peer.GOLDEN / "tiny-a", "narrow.gguf"))
    row = file.tensors["per_layer_token_embd.weight"].dims[0] // 2
    for name in ("per_layer_token_embd.weight", "blk.1.ple_key.weight", "blk.1.ple_value.weight"):
        tensor = file.tensors[name]
        pieces = tensor.data.view(np.float32).reshape(-1, 2, row)
        file.tensors[name] = gguf_file.Tensor([tensor.dims[0] // 2, *tensor.dims[1:]], gguf_file.F32,
                                              np.ascontiguousarray(pieces[:, 0]))
    file.set("qwen4exp.embedding_length_per_layer_input", "u32", row)
    file.set("tokenizer.ggml.model", "text", "none")
    file.write(run.folder / "narrow2.gguf")
    reason = refusal(run.folder / "narrow2.gguf") or ""
    checks.that("'blk.1.ple_key.weight' has wrong shape" in reason,
                f"n-grams of another width than the model are refused: {reason}")


def demo(checks, run):
    reason = refusal(peer.DEMO) or ""
    checks.that("'blk.1.ple_key.weight' has wrong shape" in reason, f"the demo model is refused: {reason}")


def draft_block(checks, run):
    source = peer.copy_checkpoint(peer.GOLDEN / "tiny-a", run.folder / "mtp")
    (source / "mtp.safetensors").symlink_to(peer.GOLDEN / "tiny-a-mtp/mtp.safetensors")
    model = run.convert(source, "mtp.gguf")
    reason = refusal(model) or ""
    checks.that("wrong number of tensors" in reason, f"a file with a draft block is refused: {reason}")


def other_forms(checks, run):
    """What has a form in the format besides the usual one."""
    ids = np.array([5, 6, 2, 7, 8, 9, 10, 5, 11, 12, 13])
    models = {}
    for name, settings in (("tied embeddings", {"tie_word_embeddings": True}),
                           ("two end-of-text ids", {"eos_token_id": [5, 2]})):
        source = peer.copy_checkpoint(peer.GOLDEN / "tiny-a", run.folder / name, **settings)
        models[name] = run.convert(source, name + ".gguf")
    file = gguf_file.read(run.folder / "bytes.gguf")
    for part in (file.tensors, file.metadata):
        for key in [key for key in part if ".ple" in key or "per_layer" in key]:
            del part[key]
    models["no n-gram layer"] = run.folder / "no-ngrams.gguf"
    file.write(models["no n-gram layer"])
    for name, model in models.items():
        apart = largest(run.strata_logits(model, ids), run.llama_logits(model, ids)[0])
        checks.that(apart < 2e-3, f"{name}: the same logits, within {apart:.1e}")


def ignored(checks, run):
    ids = np.arange(100, 119)
    plain = run.convert(run.folder / "bytes", "plain.gguf")
    theirs = run.llama_logits(plain, ids)[0]
    checks.that(largest(run.strata_logits(plain, ids), theirs) < 2e-3, "tiny-a itself: the same logits")
    for name, settings in IGNORED.items():
        source = peer.copy_checkpoint(peer.GOLDEN / "tiny-a", run.folder / next(iter(settings)),
                                      **settings)
        model = run.convert(source, source.name + ".gguf")
        apart = largest(run.strata_logits(model, ids), theirs)
        same = largest(run.llama_logits(model, ids)[0], theirs)
        checks.that(same == 0 and apart > 0.1,
                    f"{name}: llama.cpp ignores the setting without a word; Strata differs by {apart:.1f}")


def main():
    checks = peer.Checks()
    with tempfile.TemporaryDirectory() as folder:
        run = peer.Peer(pathlib.Path(folder))
        vocabularies(checks, run)
        refused(checks, run)
        narrow_ngrams(checks, run)
        draft_block(checks, run)
        demo(checks, run)
        other_forms(checks, run)
        ignored(checks, run)
    checks.end()


if __name__ == "__main__":
    main()
