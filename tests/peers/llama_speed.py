#!/usr/bin/env python3
"""Speed of Strata and llama.cpp on the same files, in one run.

usage: llama_speed.py [FILE.gguf ...] [--prompts 512,2048] [--depths 100,4096] [--generate 64]
                      [--repetitions 6] [--quiet 3] [--chunk N] [--threads 2] [--json OUT.json]

Without a file: a small model of random weights and short prompts, to see that the comparison works.

Both programs first compute the logits of the same tokens, llama.cpp with the settings that are timed;
they must agree (KL divergence and likeliest token). Then they take turns, A B B A, two repetitions a
turn. A repetition during which other processes had more than --quiet percent of the CPUs is rejected
and made again; how many were is said. The machine's limits are probed in every turn of Strata.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np

import llama_peer as peer

TURN = 2              # repetitions
ATTEMPTS = 3          # a repetition, until others are quiet
GATE_TOKENS = 64
MOST_KL, LEAST_SAME = 1e-3, 0.8  # as docs/peers.md has for the full width
# What was best for llama.cpp here: weights in memory and rearranged, prompts in one piece.
SETTINGS = dict(kv="f16", flash=-1, mapped=0, repack=1, batch=2048)
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """Of the machine, and of a process and this one."""
    numbers = [int(n) for n in open("/proc/stat").readline().split()[1:9]]
    busy = sum(numbers) - numbers[3] - numbers[4]  # without idle and waiting for disks
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return busy / TICKS, (int(fields[11]) + int(fields[12])) / TICKS + time.process_time()


class Llama:
    """llama.cpp with a model in memory, idle between commands."""

    def __init__(self, model, threads, cells):
        options = SETTINGS | dict(threads=threads, cells=cells)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [peer.DRIVER, peer.LIBRARIES, "speed", model, *(f"{k}={v}" for k, v in options.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.facts = self.answer()
        self.ask("prompt 32")  # warm

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise SystemExit("llama_driver ended: " + self.log.read().decode(errors="replace")[-2000:])
        return json.loads(line)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def timed(self, command):
        """Seconds, and the share of all CPUs that others had."""
        before, start = cpu_seconds(self.process.pid), time.monotonic()
        seconds = self.ask(command)["seconds"]
        after, wall = cpu_seconds(self.process.pid), time.monotonic() - start
        others = (after[0] - before[0]) - (after[1] - before[1]) - 2 / TICKS
        return seconds, max(0.0, others) / (wall * os.cpu_count())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


@dataclasses.dataclass
class Test:
    prompt: bool
    tokens: int
    depth: int = 0

    def __str__(self):
        return f"prompt {self.tokens}" if self.prompt else f"decode {self.tokens} after {self.depth}"


@dataclasses.dataclass
class Runs:
    rates: list = dataclasses.field(default_factory=list)  # tokens a second
    rejected: int = 0
    disturbed: int = 0  # ones that count although others were busy
    details: list = dataclasses.field(default_factory=list)

    def text(self):
        return f"{statistics.median(self.rates):.2f} ({min(self.rates):.2f} to {max(self.rates):.2f})"

    def json(self):
        return dict(median=statistics.median(self.rates), rates=self.rates, rejected=self.rejected,
                    disturbed=self.disturbed)


def strata_turn(model, test, arguments, runs):
    options = ["-p", str(test.tokens), "-n", "0"] if test.prompt else [
        "-p", "0", "-n", str(test.tokens), "-d", str(test.depth)]
    if arguments.chunk:
        options += ["--chunk", str(arguments.chunk)]
    done = subprocess.run([peer.STRATA, "bench", "-m", model, "-r", str(TURN), "--json", "--threads",
                           str(arguments.threads), "--quiet", str(arguments.quiet), *options],
                          check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)["tests"][0]
    runs.rates += found["rates"]
    runs.rejected += found["dropped"]
    runs.disturbed += found["disturbed"]
    runs.details.append(found)


def llama_turn(llama, test, arguments, runs):
    # Uncounted, as `strata bench` begins: memory that nobody used for a while is slow once.
    if test.prompt:
        llama.ask(f"prompt {test.tokens}")
    else:
        llama.ask(f"fill {test.depth}")
        llama.ask("decode 1")
    attempts = []
    for _ in range(ATTEMPTS * TURN):
        attempts.append(llama.timed(f"{'prompt' if test.prompt else 'decode'} {test.tokens}"))
        good = [a for a in attempts if 100 * a[1] <= arguments.quiet]
        if len(good) == TURN:
            break
    # Where the machine is never quiet the least disturbed ones count, and are said.
    chosen = good if len(good) == TURN else sorted(attempts, key=lambda a: a[1])[:TURN]
    runs.rates += [test.tokens / seconds for seconds, _ in chosen]
    runs.rejected += len(attempts) - len(chosen)
    runs.disturbed += sum(100 * others > arguments.quiet for _, others in chosen)


def compare(model, llama, test, arguments):
    ours, theirs = Runs(), Runs()
    for turn in range(-(-arguments.repetitions // TURN)):
        order = [lambda: strata_turn(model, test, arguments, ours),
                 lambda: llama_turn(llama, test, arguments, theirs)]
        for take in order if turn % 2 == 0 else reversed(order):
            take()
    return ours, theirs


def gate(checks, run, model, llama, vocabulary):
    """The same logits, or speed means nothing."""
    ids = np.random.default_rng(3).integers(0, vocabulary, GATE_TOKENS).astype(np.int32)
    ids_path, out = run.folder / "gate.ids", run.folder / "gate.logits"
    ids.tofile(ids_path)
    llama.ask(f"logits {ids_path} {out}")
    theirs = np.fromfile(out, np.float32).reshape(len(ids), -1)
    ours = run.strata_logits(model, ids, "--cell-width")
    kl, same = peer.divergence(theirs, ours)
    good = kl.mean() <= MOST_KL and same.mean() >= LEAST_SAME
    checks.that(good, f"{model.name}: logits of {len(ids)} tokens, KL mean {kl.mean():.1e}, most "
                      f"{kl.max():.1e}, same likeliest token {same.mean():.3f}")
    return dict(tokens=len(ids), kl_mean=kl.mean(), kl_most=kl.max(), same=same.mean(), good=bool(good))


def row(model, test, ours, theirs):
    limits = [max(d[key] for d in ours.details) for key in ("read_gbps", "int8_peak_gops")]
    best = ours.details[0]
    median = statistics.median(ours.rates)
    read = median * best["bytes_per_token"] / 1e9 / limits[0]
    int8 = 2 * median * best["macs_per_token"] / 1e9 / limits[1]
    share = (f"{100 * int8:.1f} % of {limits[1]:.0f} GOP/s" if test.prompt
             else f"{100 * read:.1f} % of {limits[0]:.1f} GB/s")
    line = (f"| {model.stem} | {test} | {ours.text()} | {theirs.text()} "
            f"| {median / statistics.median(theirs.rates):.2f} | {share} | {len(ours.rates)}, "
            f"{len(theirs.rates)} | {ours.rejected}, {theirs.rejected} "
            f"| {ours.disturbed}, {theirs.disturbed} |")
    data = dict(file=model.name, test=str(test), strata=ours.json(), llama=theirs.json(),
                times=median / statistics.median(theirs.rates), read_gbps=limits[0],
                int8_peak_gops=limits[1], share_of_read_bandwidth=read, share_of_int8_peak=int8,
                bytes_per_token=best["bytes_per_token"], macs_per_token=best["macs_per_token"])
    return line, data


HEAD = ("| file | test | Strata, tokens/s | llama.cpp, tokens/s | times | Strata's share of the machine "
        "| runs | rejected | disturbed |\n| --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |")


def measure(checks, run, model, arguments, report):
    tests = [Test(True, n) for n in arguments.prompts]
    tests += [Test(False, arguments.generate, d) for d in arguments.depths]
    longest = max(arguments.prompts + [d + arguments.generate * (ATTEMPTS * TURN) + 1
                                       for d in arguments.depths] + [GATE_TOKENS])
    facts = json.loads(subprocess.run([peer.STRATA, "inspect", "--json", model], check=True,
                                      capture_output=True, text=True).stdout)
    vocabulary = facts["metadata"]["tokenizer.ggml.tokens"]["length"]
    llama = Llama(model, arguments.threads, -(-longest // 256) * 256)
    report.setdefault("llama", llama.facts | SETTINGS)
    result = gate(checks, run, model, llama, vocabulary)
    report["gates"].append(dict(file=model.name, **result))
    if result["good"]:
        for test in tests:
            line, data = row(model, test, *compare(model, llama, test, arguments))
            report["lines"].append(line)
            report["tests"].append(data)
            print(line, flush=True)
    llama.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = lambda text: [int(n) for n in text.split(",")]
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--prompts", type=numbers)
    parser.add_argument("--depths", type=numbers)
    parser.add_argument("--generate", type=int)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--quiet", type=float, default=3)
    parser.add_argument("--chunk", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    small = not arguments.files
    arguments.prompts = arguments.prompts or ([64] if small else [512, 2048])
    arguments.depths = arguments.depths or ([20] if small else [100, 4096])
    arguments.generate = arguments.generate or (16 if small else 64)
    checks = peer.Checks()
    version = subprocess.run([peer.STRATA, "--version"], check=True, capture_output=True, text=True).stdout
    report = dict(strata=version, arguments=vars(arguments) | dict(files=None, json=None), gates=[],
                  lines=[], tests=[])
    print(version)
    with tempfile.TemporaryDirectory() as folder:
        run = peer.Peer(folder)
        if small:
            arguments.files = [run.synth("small.gguf", "--experts", "16", "--vocabulary", "2048")]
        for model in arguments.files:
            measure(checks, run, model.resolve(), arguments, report)
    print("\n" + HEAD)
    print("\n".join(report.pop("lines")))
    print(f"\nllama.cpp {report['llama']['version']}, {report['llama']['system']}, {SETTINGS}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    checks.that(len(report["tests"]) > 0, "speeds were measured")
    checks.end()


if __name__ == "__main__":
    main()
