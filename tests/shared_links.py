"""The link of mixed parity that tests of flows share: every other polynomial is another text, which takes seconds to compile."""

MIXED = {3: 0.7, 4: 0.7}
