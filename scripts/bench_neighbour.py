#!/usr/bin/env python3
"""How much a busy neighbour costs: `strata bench` alone and beside a process that spins on one CPU at
the same priority, in turns (A B B A).

  bench_neighbour.py STRATA [--cpu N] [--rounds 3] [options of strata bench, such as -m MODEL -n 64]

Prints medians of both and their ratio. A neighbour that takes one of two CPUs leaves three quarters:
half of one and the other, if nobody waits for the slower half.
"""
import argparse, json, os, statistics, subprocess, sys


class Spinner:
    """A process that never rests, on one CPU."""

    def __init__(self, cpu):
        self.cpu = cpu

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                        preexec_fn=lambda: os.sched_setaffinity(0, {self.cpu}))

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def bench(strata, options):
    done = subprocess.run([strata, "bench", "--json", "--probe", "0", "--quiet", "100", "-r", "2",
                           *options], check=True, capture_output=True, text=True)
    return {test["test"]: test["rates"] for test in json.loads(done.stdout)["tests"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("strata")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    arguments, options = parser.parse_known_args()
    alone, beside = {}, {}

    def take(into):
        for test, rates in bench(arguments.strata, options).items():
            into.setdefault(test, []).extend(rates)

    def take_beside():
        with Spinner(arguments.cpu):
            take(beside)

    for turn in range(arguments.rounds):
        order = [lambda: take(alone), take_beside]
        for each in order if turn % 2 == 0 else reversed(order):
            each()
    print(f"one process spins on CPU {arguments.cpu} of {sorted(os.sched_getaffinity(0))}\n")
    print("| test | alone, tokens/s | beside it, tokens/s | ratio |\n| --- | ---: | ---: | ---: |")
    for test in alone:
        a, b = (statistics.median(x[test]) for x in (alone, beside))
        print(f"| {test} | {a:.2f} ({min(alone[test]):.2f} to {max(alone[test]):.2f}) "
              f"| {b:.2f} ({min(beside[test]):.2f} to {max(beside[test]):.2f}) | {b / a:.2f} |")


if __name__ == "__main__":
    main()
