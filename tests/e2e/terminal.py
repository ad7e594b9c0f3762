"""strata chat as a person meets it: a pseudo-terminal, keys, and what stands on the screen then (pyte is
the terminal). A script plays the model, so that every answer is known; the last tests ask the demo model.

usage: terminal.py [NAME ...]     runs the tests whose names hold one of the words; all without
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

import pyte

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = str(pathlib.Path(os.environ.get("STRATA_PROGRAM", ROOT / "build/release/strata")).resolve())
PATIENCE = 120  # seconds that anything may take on a busy machine

CTRL_A, CTRL_C, CTRL_D, CTRL_E, CTRL_R, CTRL_U = (chr(ord(c) & 31) for c in "ACDERU")
LEFT, UP, BACKSPACE, TAB, ENTER = "\x1b[D", "\x1b[A", "\x7f", "\t", "\r"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
# What the program itself may send: looks, moves of the line editor and of the progress line.
OWN = re.compile(r"\x1b\[[0-9;]*[mKJHABCDGPhl@]|\x1b\[\?2004[hl]|\x1b\[\?1[hl]|\x1b[=>]|\x1b\(B|[\r\n\t\b\x07]")


class Session:
    """A program at a terminal."""

    def __init__(self, words, columns=80, rows=40, environment=None):
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.code = None
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm-256color", "LANG": "C.UTF-8"} | (environment or {}))
            os.environ.pop("LC_ALL", None)
            os.execv(words[0], words)
        self.resize(columns, rows)

    def resize(self, columns, rows=40):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def read(self, seconds):
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.terminal, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.raw += data
        self.stream.feed(data)
        return bool(data)

    def lines(self):
        above = [self.row(line) for line in self.screen.history.top]
        # Not `screen.display`: it fails where half of a wide letter was written over.
        return above + [self.row(self.screen.buffer[y]) for y in range(self.screen.lines)]

    @staticmethod
    def row(line):
        return "".join(line[x].data for x in range(max(line, default=-1) + 1)).rstrip()

    def text(self):
        return "\n".join(self.lines())

    def until(self, what, count=1):
        """Reads until the screen holds the text so often (or the function says so)."""
        done = what if callable(what) else lambda: self.text().count(what) >= count
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end or not self.read(0.2):
                raise AssertionError(f"no {what!r} x{count} on the screen:\n{self.text().rstrip()}")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def prompt(self, mark=">"):
        """Waits for an empty line to write in."""
        self.until(lambda: self.screen.display[self.screen.cursor.y].rstrip() == mark)

    def ask(self, text, answer):
        before = self.text().count(answer)
        self.send(text + ENTER)
        self.until(answer, before + 1)
        self.prompt()

    def end(self):
        """The exit code, once the program has ended by itself."""
        if self.code is None:
            end = time.monotonic() + PATIENCE
            while self.read(0.2):
                assert time.monotonic() < end, "it does not end:\n" + self.text().rstrip()
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def close(self):
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)


class Place:
    """A folder for one test: its scripts, its history, the sessions that it opened."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.sessions = []
        self.environment = {"XDG_STATE_HOME": str(self.folder / "state"), "HOME": str(self.folder)}

    def words(self, scripts, *options, command="chat"):
        words = [PROGRAM, command]
        if scripts is not None:
            # The template opens the thinking; a script closes it, or there is none.
            if not any("</think>" in script["text"] for script in scripts):
                words += ["--effort", "none"]
            path = self.folder / "script.json"
            path.write_text(json.dumps({"scripts": scripts}))
            words += ["--script", str(path)]
        return words + [str(option) for option in options]

    def chat(self, scripts, *options, columns=80, rows=40, **environment):
        session = Session(self.words(scripts, *options), columns, rows, self.environment | environment)
        self.sessions.append(session)
        session.prompt()
        return session

    def piped(self, scripts, *options, text="", command="chat"):
        return subprocess.run(self.words(scripts, *options, command=command), input=text.encode(),
                              capture_output=True, timeout=PATIENCE, env=os.environ | self.environment)


def answers(**by_match):
    return [{"match": match, "text": text} for match, text in by_match.items()]


def equal(got, wanted):
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


def holds(text, part):
    assert part in text, f"no {part!r} in {text!r}"


def controls_in(raw):
    """What of the output is no text and not the program's own."""
    return re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", OWN.sub("", raw.decode(errors="replace")))


# ---- the line


def test_editing(place):
    chat = place.chat(answers(second="I see second.", hello="I see hello."))
    chat.send("hexlo" + LEFT + LEFT + BACKSPACE + "l" + ENTER)
    chat.until("I see hello.")
    chat.prompt()
    chat.send("wrong" + CTRL_U + "cond" + CTRL_A + "se" + CTRL_E + "." + ENTER)
    chat.until("I see second.")
    holds(chat.text(), "> second.")


def test_letters_of_all_kinds(place):
    for language in ("C.UTF-8", "C"):  # whatever the locale says
        chat = place.chat([{"match": "日語é😀", "text": "verstanden: 日語é😀"}], LANG=language)
        chat.send("日本" + BACKSPACE + "語é😀" + ENTER)
        chat.until("verstanden: 日語é😀")
        chat.prompt()
        chat.send(UP + ENTER)
        chat.until("verstanden: 日語é😀", 2)


def test_history(place):
    script = [{"text": f"answer {i}"} for i in range(1, 9)]
    chat = place.chat(script)
    chat.ask("the first", "answer 1")
    chat.ask("the next", "answer 2")
    chat.send(UP + UP + ENTER)
    chat.until("answer 3")
    equal(chat.text().count("> the first"), 2)
    chat.prompt()
    chat.ask(" a secret", "answer 4")
    chat.send("/quit" + ENTER)
    equal(chat.end(), 0)
    path = place.folder / "state/strata/history"
    equal(path.stat().st_mode & 0o777, 0o600)
    equal(path.read_text(), "the first\nthe next\nthe first\n/quit\n")
    chat = place.chat(script)
    chat.send(UP + UP + ENTER)  # behind /quit
    chat.until("answer 1")
    holds(chat.text(), "> the first")
    chat.prompt()
    chat.send(CTRL_R + "nex")
    chat.until("the next")
    chat.send(ENTER)
    chat.until("answer 2")
    chat.prompt()
    chat.send("/search FIRST" + ENTER)
    chat.until(lambda: "the first" in chat.lines())
    chat = place.chat(script, "--no-history")
    chat.ask("not kept", "answer 1")
    assert "not kept" not in path.read_text()


def test_many_lines(place):
    script = [{"match": "line one\nline two\nline three", "text": "three lines"}, {"text": "else"}]
    chat = place.chat(script)
    chat.send("line one\\" + ENTER)
    chat.prompt(".")
    chat.send("line two\\" + ENTER + "line three" + ENTER)
    chat.until("three lines")
    chat.prompt()
    chat.send("/new" + ENTER)
    chat.until("a new conversation")
    chat.prompt()
    chat.send("line one\x1b\rline two\x1b\rline three" + ENTER)  # Alt-Enter
    chat.until("three lines", 2)
    chat.prompt()
    chat.send("/new" + ENTER)
    chat.until("a new conversation", 2)
    chat.prompt()
    # Pasted text is one text, and its controls are no keys.
    chat.send(PASTE + "line one\rline two\rline three\x1b[2J\x03" + PASTED)
    chat.until("line three[2J")
    chat.send(ENTER)
    chat.until("three lines", 3)
    chat.prompt()
    chat.send("/new" + ENTER + "/paste" + ENTER)
    chat.prompt("|")
    chat.send("line one" + ENTER + "line two" + ENTER + "line three" + ENTER + "/end" + ENTER)
    chat.until("three lines", 4)
    chat.prompt()
    # The history has it as one entry.
    chat.send(UP + UP + UP)
    chat.until("line three[2J", 2)


def test_a_large_paste(place):
    text = "\n".join(f"row {i} of what was pasted" for i in range(300))
    chat = place.chat([{"match": text, "text": "all of it"}, {"text": "a part"}], rows=20)
    chat.send(PASTE + text + PASTED + ENTER)
    chat.until("all of it")


def test_resizing(place):
    text = "a question that is a good deal longer than twenty columns"
    chat = place.chat([{"match": text, "text": "understood"}], columns=60)
    chat.send(text[:30])
    chat.until(text[:30])
    chat.resize(20)
    chat.send(text[30:])
    chat.until(lambda: "columns" in chat.text().replace("\n", ""))
    chat.send(ENTER)
    chat.until("understood")


# ---- stopping


def test_ctrl_c_stops_the_answer_only(place):
    script = [{"match": "go", "text": "on and ", "repeat": True, "pace_ms": 20}, {"text": "short"}]
    chat = place.chat(script)
    chat.send("go" + ENTER)
    chat.until("on and on and")
    chat.send(CTRL_C)
    chat.until("(stopped;")
    chat.prompt()
    chat.send("/new" + ENTER)
    chat.until("a new conversation")
    chat.prompt()
    chat.ask("now", "short")
    chat.send("go" + ENTER)
    chat.until("on and on and", 2)
    chat.send(CTRL_C)
    chat.until("(stopped;", 2)
    chat.prompt()
    chat.send(CTRL_C)  # the second in a row
    equal(chat.end(), 0)


def test_ctrl_c_gives_a_line_up(place):
    chat = place.chat([{"match": "wrong", "text": "bad"}, {"text": "good"}])
    chat.send("wrong" + CTRL_C)
    chat.until("Ctrl-C once more ends.")
    chat.prompt()
    chat.ask("right", "good")
    chat.send(CTRL_C)
    chat.until("Ctrl-C once more ends.", 2)
    chat.send(CTRL_C)
    equal(chat.end(), 0)


def test_ctrl_d_ends(place):
    chat = place.chat([{"text": "x"}])
    chat.send(CTRL_D)
    equal(chat.end(), 0)


# ---- answers


HOSTILE = ("\x1b]0;title\x07\x1b[2J\x1b[H\x1b[31mred \x1b]52;c;aGk=\x07 \x1bP1$r\x1b\\ \x9b5A \x1b[?1049h"
           "\x08\x08\x7f \u202egpj.exe \r overwritten \x1b[6n \x1bc end")


def test_hostile_output(place):
    for piece in (0, 1):
        chat = place.chat([{"text": f"{HOSTILE}</think>\n\n{HOSTILE}\n\n```\n{HOSTILE}\n```\n",
                            "piece": piece}], columns=200)
        chat.send("attack" + ENTER)
        chat.until("␛c end", 3)
        chat.prompt()
        equal(controls_in(chat.raw), [])
        assert "\u202e" not in chat.raw.decode(errors="replace")
        assert b"\x1b[31m" not in chat.raw and b"\x1b[2J" not in chat.raw and b"\x1b[H" not in chat.raw
        holds(chat.text(), "␛]0;title␇␛[2J␛[H␛[31mred")
        equal(chat.screen.title, "")
        chat.send("/thinking last" + ENTER + "/history" + ENTER)
        chat.until("assistant")
        chat.prompt()
        equal(controls_in(chat.raw), [])
    path = place.folder / "saved"
    chat.send(f"/save {path}" + ENTER + f"/load {path}" + ENTER)
    chat.until("2 messages")
    equal(controls_in(chat.raw), [])


def test_markdown(place):
    text = "# Title\n\nSome **bold** and `code`.\n\n- an item\n\n```py\nx = 1  # **no**\n```\n"
    for piece in (0, 1):
        chat = place.chat([{"text": text, "piece": piece}])
        chat.send("q" + ENTER)
        chat.until("made")
        chat.prompt()
        lines = chat.lines()
        for line in ("Title", "Some bold and code.", "• an item", "```py", "x = 1  # **no**"):
            assert line in lines, chat.text()
        y = lines.index("Some bold and code.") - len(chat.screen.history.top)
        row = chat.screen.buffer[y]
        equal([row[x].bold for x in (0, 5, 8, 9)], [False, True, True, False])
        equal(row[14].fg, "cyan")
        chat.send("/markdown off" + ENTER)
        chat.prompt()
        chat.send("q" + ENTER)
        chat.until("Some **bold** and `code`.")


def test_narrow_and_wide(place):
    text = "Twenty columns are enough for words, and 日本語の文章もここで折り返します。 Supercalifragilisticexpialidocious."
    for columns in (20, 7):
        chat = place.chat([{"text": text}], columns=columns, rows=400)
        chat.send("q" + ENTER)
        chat.until("%)]" if columns > 7 else "]")
        chat.prompt()
        lines = chat.lines()
        assert all(len(line) <= columns for line in lines)
        joined = re.sub(r"\s", "", "".join(lines))
        holds(joined, re.sub(r"\s", "", text))
        if columns == 20:
            for word in ("enough", "columns", "words,"):
                assert any(word in line.split() for line in lines), chat.text()


def test_thinking(place):
    chat = place.chat([{"text": "hm, well\n</think>\n\nYes."}])
    chat.ask("q", "Yes.")
    holds(chat.raw.decode(), "\x1b[2mhm,")
    lines = chat.lines()
    equal(lines.index("Yes.") - lines.index("hm, well"), 2)
    chat.send("/thinking fold" + ENTER)
    chat.prompt()
    chat.ask("q", "Yes.")
    holds(chat.text(), "(thought for ")
    equal(chat.text().count("hm, well"), 1)
    chat.send("/thinking last" + ENTER)
    chat.until("hm, well", 2)
    chat.prompt()
    chat.send("/thinking hide" + ENTER)
    chat.prompt()
    chat.ask("q", "Yes.")
    equal(chat.text().count("(thought for "), 1)


def test_speed_line(place):
    chat = place.chat([{"text": "Ten words of answer."}])
    chat.ask("q", "Ten words")
    text = chat.text().replace("\n", " ")
    assert re.search(r"\[\d+ tokens read.*, \d+ made.*, first after \d+\.\d\d s, context \d+ of \d+ \(", text), text


def test_reading_progress(place):
    slow = [{"text": "done at last", "wait_ms": 150, "reads": 12}]
    question = "word " * 300
    chat = place.chat(slow, columns=100)
    chat.send(PASTE + question + PASTED + ENTER)
    chat.until("reading the prompt")
    chat.until("done at last")
    chat.prompt()
    assert re.search(r"reading the prompt +\[[#.]{20}\] +\d+ % +\d+ of \d+ tokens", chat.raw.decode())
    assert "reading the prompt" not in chat.text()
    chat = place.chat(slow, "--no-progress", columns=100)
    chat.send(PASTE + question + PASTED + ENTER)
    chat.until("done at last")
    assert b"reading the prompt" not in chat.raw
    for options in ([], ["--json"]):
        done = place.piped(slow, *options, text=question)
        equal(done.stderr, b"")


def test_no_color(place):
    chat = place.chat([{"text": "hm</think>**bold**"}], NO_COLOR="1")
    chat.ask("q", "**bold**")
    assert not re.search(rb"\x1b\[[0-9;]*[1-9][0-9]*m", chat.raw), chat.raw
    chat = place.chat([{"text": "hm</think>**bold**"}], TERM="dumb")
    chat.ask("q", "**bold**")
    assert b"\x1b" not in chat.raw, chat.raw


# ---- commands


def test_completion_of_commands(place):
    chat = place.chat([{"text": "x"}])
    chat.send("/und" + TAB)
    chat.until("> /undo")
    chat.send(CTRL_U + "/set temp" + TAB + "0.5" + ENTER)
    chat.prompt()
    chat.send("/set" + ENTER)
    chat.until("set here")
    chat.prompt()
    assert re.search(r"temperature +5E-1 +set here|temperature +0\.5\S* +set here", chat.text()), chat.text()
    chat.send("/e" + TAB)
    chat.until("/effort  /edit  /export  /exit")
    chat.send(CTRL_U + "/effort m" + TAB + ENTER)
    chat.prompt()
    (place.folder / "saved chat.json").write_text("")
    chat.send(f"/load {place.folder}/saved" + TAB)
    chat.until("saved chat.json" if len(str(place.folder)) < 50 else "chat.json")


def test_commands(place):
    script = [{"match": "be brief", "text": "brief"}, {"match": "two", "text": "b"}, {"match": "one", "text": "a"}]
    chat = place.chat(script, columns=120)
    chat.ask("/help", "Ctrl-R searches")
    for command in ("/new, /clear", "/retry, /regenerate", "/quit, /exit", "/export [!] FILE"):
        holds(chat.text(), command)
    chat.ask("/udno", "unknown command '/udno'; did you mean '/undo'?")
    chat.ask("/set temprature 1", "did you mean 'temperature'?")
    chat.ask("/set temperature 900", "temperature")
    chat.ask("/effort lots", "it must be none, low, medium")
    chat.ask("/undo", "there is no question yet")
    chat.ask("/retry", "there is no question yet")
    chat.ask("//slash one", "a")
    chat.ask("/history", "  1 assistant  a")
    chat.send("/retry" + ENTER)
    chat.until(lambda: chat.lines().count("a") == 2)
    chat.prompt()
    chat.send("/edit" + ENTER)
    chat.until("> //slash one", 2)
    chat.send(" and two" + ENTER)
    chat.until("made", 3)
    chat.prompt()
    chat.ask("/history two", "  1 user       /slash one and two")
    saved, page = place.folder / "s.json", place.folder / "page.md"
    chat.ask(f"/save {saved}", "saved to")
    page.write_text("mine")
    chat.ask(f"/export {page}", "is there already")
    equal(page.read_text(), "mine")
    chat.ask(f"/export ! {page}", "written to")
    chat.ask(f"/save {saved}", "is there already")
    chat.ask(f"/save !{saved}", "saved to")
    chat.ask("/save !", "it needs the name of a file")
    equal(saved.stat().st_mode & 0o777, 0o600)
    equal([m["role"] for m in json.loads(saved.read_text())["messages"]], ["user", "assistant"])
    holds(page.read_text(), "## Question\n\n/slash one and two\n")
    chat.ask("/undo", "taken back: /slash one and two")
    chat.ask("/history", "nothing")
    chat.ask(f"/load {saved}", "2 messages")
    chat.ask("/load /nonexistent", "strata: /load: ")
    chat.send("/system be brief" + ENTER)
    chat.prompt()
    chat.ask("one", "brief")
    chat.ask("/system", "be brief")
    chat.ask("/stats", "answers   4")
    chat.send("/exit" + ENTER)
    equal(chat.end(), 0)


# ---- pipes


def test_pipes(place):
    script = [{"match": "two", "text": "hm</think>\n\n**b** \x1b[31m"},
              {"text": "</think>a"}]
    done = place.piped(script, text="one\ntwo\n")
    equal((done.returncode, done.stdout, done.stderr), (0, b"a\n**b** \x1b[31m\n", b""))
    done = place.piped(script, "--show-thinking", text="two\n")
    equal((done.stdout, done.stderr), (b"**b** \x1b[31m\n", b"hm\n"))
    done = place.piped([{"text": "</think>a b c d", "finish": "length"}], text="one\n")
    equal((done.returncode, done.stdout), (0, b"a b c d\n"))
    assert re.fullmatch(rb"strata: cut: that was the limit of tokens after \d+ tokens\n", done.stderr), done.stderr
    done = place.piped(script, text="/nonsense\n")
    equal(done.returncode, 1)
    holds(done.stderr, b"unknown command '/nonsense'")
    done = place.piped(script, "--json", text="one\ntwo\n")
    first, second = map(json.loads, done.stdout.splitlines())
    equal((first["text"], first["finish_reason"], second["thinking"]), ("a", "stop", "hm"))
    assert first["prompt_tokens"] > 0 and first["completion_tokens"] > 0
    done = place.piped(script, text="one", command="run")
    equal(done.stdout, b"a\n")
    (place.folder / "f.txt").write_text("two")
    done = place.piped(script, "-p", "look:", "-f", place.folder / "f.txt", "--json", command="run")
    equal(json.loads(done.stdout)["text"], "**b** \x1b[31m")
    done = place.piped(script, text="", command="run")
    equal(done.returncode, 2)
    holds(done.stderr, b"there is no text")


def test_piped_questions_at_a_terminal(place):
    words = " ".join(place.words([{"text": "**safe** \x1b[2J"}]))
    session = Session(["/bin/bash", "-c", f"echo hi | {words}"], environment=place.environment)
    place.sessions.append(session)
    session.until("safe ␛[2J")
    equal(session.end(), 0)
    equal(controls_in(session.raw), [])


# ---- the demo model


def test_demo_model(place):
    question = "What is the capital of France?"
    plain = place.piped(None, "-t", "0", "-n", "40", text=question, command="run")
    equal(plain.returncode, 0)
    again = place.piped(None, "-t", "0", "-n", "40", text=question + "\n")
    equal(again.stdout, plain.stdout)
    raw = place.piped(None, "--raw", "-t", "0", "-n", "8", "-p", "Once upon a", command="run")
    assert raw.stdout.startswith(b"Once upon a") and len(raw.stdout) > 16, raw.stdout
    chat = place.chat(None, "-t", "0", "-n", "40", columns=200)
    chat.send(question + ENTER)
    chat.until("tokens read")
    chat.prompt()
    word = plain.stdout.decode().split()[0]
    holds(chat.text(), word)


# ---- completion in shells


def test_completion_in_bash(place):
    session = Session(["/bin/bash", "--norc", "--noprofile", "-i"], environment=place.environment | {"PS1": "$ "})
    place.sessions.append(session)
    session.until("$")
    folder = pathlib.Path(PROGRAM).parent
    session.send(f"PATH={folder}:$PATH; cd {place.folder}; touch 'a model.gguf'; clear" + ENTER)
    session.send("source <(strata completion bash); echo re''ady" + ENTER)
    session.until("ready")
    session.prompt("$")  # what is typed before would be shown twice
    session.send("strata insp" + TAB)
    session.until("$ strata inspect")
    session.send("a" + TAB)
    session.until("$ strata inspect a\\ model.gguf")
    for typed, completed in ((["strata run --eff", "lo"], "$ strata run --effort low"),
                             (["strata ple ver"], "$ strata ple verify")):
        session.send(CTRL_U)
        session.prompt("$")
        for piece in typed:
            session.send(piece + TAB)
            session.until(piece if piece != typed[-1] else completed)
    session.send(CTRL_U)
    session.prompt("$")
    session.send("exit" + ENTER)
    session.end()


def main():
    tests = {name[5:]: test for name, test in globals().items() if name.startswith("test_")}
    wanted = {name: test for name, test in tests.items()
              if len(sys.argv) == 1 or any(word in name for word in sys.argv[1:])}
    failed = []
    for name, test in wanted.items():
        with tempfile.TemporaryDirectory(prefix="strata-terminal-") as folder:
            place = Place(folder)
            start = time.monotonic()
            try:
                test(place)
                print(f"ok      {name} ({time.monotonic() - start:.1f} s)", flush=True)
            except Exception:
                traceback.print_exc()
                failed.append(name)
                print(f"FAILED  {name}", flush=True)
            for session in place.sessions:
                session.close()
    print(f"{len(wanted) - len(failed)} of {len(wanted)} passed")
    sys.exit(1 if failed or not wanted else 0)


if __name__ == "__main__":
    main()
