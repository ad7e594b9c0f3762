"""The files of the tree, for the check_*.py scripts beside this one."""

import pathlib
import subprocess

# Folders that are never part of the tree, for copies without git.
NOT_OURS = {".git", ".cache", ".venv", "build", "node_modules", "__pycache__"}


def files(root):
    """Paths relative to `root`, sorted: what git tracks or would add, else what is there."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"],
            capture_output=True, check=False)
        if listed.returncode == 0:
            names = {name for name in listed.stdout.decode().split("\0") if name}
            return sorted(pathlib.Path(n) for n in names if (root / n).is_file())
    found = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
    return sorted(p for p in found if not NOT_OURS.intersection(p.parts))
