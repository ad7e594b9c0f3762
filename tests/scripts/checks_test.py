#!/usr/bin/env python3
"""The checks of the tree must be able to fail: each rule is broken once in a tree of its own."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_layers  # noqa: E402
import check_tree  # noqa: E402


class Tree(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self._folder.name)
        self.addCleanup(self._folder.cleanup)

    def put(self, path, content):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


class Layers(Tree):
    def test_upward_and_own_includes_pass(self):
        self.put("src/gguf/a.h", '#include <vector>\n#include "base/result.h"\n#include "gguf/b.h"\n')
        self.put("src/server/a.cpp", '#include "engine/engine.h"\n#include "chat/message.h"\n')
        self.put("tests/base/a_test.cpp", '#include "cli/x.h"\n')
        self.assertEqual(check_layers.check(self.root), [])

    def test_downward_include_is_named_with_its_line(self):
        self.put("src/base/a.cpp", '#include "base/a.h"\n\n  #  include "gguf/gguf.h"\n')
        self.assertEqual(check_layers.check(self.root), [
            "src/base/a.cpp:3: base comes before gguf and must not include gguf/gguf.h"])

    def test_angle_brackets_do_not_hide_a_layer(self):
        self.put("src/base/a.cpp", "#include <cli/x.h>\n")
        self.assertEqual(len(check_layers.check(self.root)), 1)

    def test_rooms_below_that_must_stay_unknown(self):
        self.put("src/chat/a.h", '#include "engine/engine.h"\n')
        self.put("src/server/a.h", '#include "compute/backend.h"\n')
        self.assertEqual(check_layers.check(self.root), [
            "src/chat/a.h:1: chat must not know engine: engine/engine.h",
            "src/server/a.h:1: server must not know compute: compute/backend.h"])

    def test_relative_include_and_unknown_layer(self):
        self.put("src/gguf/a.cpp", '#include "b.h"\n')
        self.put("src/misc/a.cpp", "int a;\n")
        self.assertEqual(check_layers.check(self.root), [
            'src/gguf/a.cpp:1: "b.h" is not written from src/ (as "gguf/...")',
            "src/misc/a.cpp:1: src/misc is no layer of scripts/check_layers.py"])


class Rules(Tree):
    def test_clean_tree_passes(self):
        self.put("src/base/a.cpp", "int a = 0;\n" * check_tree.MAX_LINES)
        self.put("src/base/a_generated.cpp", "int a = 0;\n" * (check_tree.MAX_LINES + 1))
        self.put("models/demo/model.gguf", b"\0" * (check_tree.MAX_BYTES + 1))
        self.put("build/release/a.cpp", "// TO" "DO\n")
        self.assertEqual(check_tree.check(self.root), [])

    def test_each_rule(self):
        self.put("a.cpp", "int a = 0;\n" * (check_tree.MAX_LINES + 1))
        self.put("b.bin", b"\0" * (check_tree.MAX_BYTES + 1))
        self.put("c.md", "see /wor" "k/main and https://example.org/work/x\n/wor" "k/main\n")
        self.put("d.py", "# FIX" "ME later\n")
        self.put("e.h", "int a;")
        self.put("run", b"\xff\n")
        self.assertEqual(check_tree.check(self.root), [
            "a.cpp: 901 lines, more than 900; split it by subject",
            "b.bin: 8000001 bytes, more than 8000000; only models/demo may",
            "c.md:1: a path of one machine: see /wor" "k/main and https://example.org/work/x",
            "c.md:2: a path of one machine: /wor" "k/main",
            "d.py:1: a note left behind: do it, or tell README.md: # FIX" "ME later",
            "e.h:1: no line break at the end",
            "run: not UTF-8"])


if __name__ == "__main__":
    unittest.main()
