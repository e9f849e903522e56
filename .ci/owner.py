"""Write the name of the account that hosts the project into every file whose addresses have the placeholder OWNER."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PLACEHOLDER = "OWNER/feature-emergence"
#: What an account may be called.
NAME = re.compile(r"[A-Za-z0-9](?:-?[A-Za-z0-9])*")
DONE, LEFT, USAGE = 0, 1, 2


def files_with_placeholder(root: Path) -> list[Path]:
    """Return the files under version control that have the placeholder, but this one and its test."""
    command = ["git", "-C", str(root), "grep", "--name-only", "--fixed-strings", PLACEHOLDER]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")
    return [root / name for name in listed if name and not name.endswith(("owner.py", "test_packaging.py"))]


def main(arguments: list[str], root: Path) -> int:
    """Replace the placeholder; with `--check` print the files that have it, and return 1 if any has."""
    if arguments == ["--check"]:
        left = files_with_placeholder(root)
        for path in left:
            print(f"{path.relative_to(root)} has the placeholder {PLACEHOLDER}: run `python .ci/owner.py NAME`.")
        return LEFT if left else DONE
    if len(arguments) != 1 or NAME.fullmatch(arguments[0]) is None:
        print("usage: owner.py NAME | --check", file=sys.stderr)
        return USAGE
    for path in files_with_placeholder(root):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(PLACEHOLDER, f"{arguments[0]}/feature-emergence"), encoding="utf-8")
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[1]))
