"""The public face is the one that was agreed on: `public_face.txt` has every name, command, key and file format."""

from pathlib import Path

import pytest
from public_face import public_face

LISTED = Path(__file__).with_name("public_face.txt")


@pytest.mark.thorough
def test_the_public_face_is_the_listed_one():
    listed, found = set(LISTED.read_text(encoding="utf-8").splitlines()), set(public_face())
    gone, new = sorted(listed - found), sorted(found - listed)
    assert not gone + new, "\n".join(
        [
            "The public face has changed.",
            *(f"- {line}" for line in gone),
            *(f"+ {line}" for line in new),
            "A line that is gone breaks what users have. If all of this is meant, renew the list:",
            "python tests/public_face.py > tests/public_face.txt",
        ]
    )
