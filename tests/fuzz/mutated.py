"""Tries the inputs of a folder and seeded mutations of them: `python -m fuzz.mutated TARGET FOLDER SEED RUNS`.

For the sanitizers, beside which libFuzzer's coverage does not work.

Each input is in the file `FOLDER/../mutated-TARGET` while it is tried, so that it is there if the process ends.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from random import Random

from fuzz.targets import TARGETS

__all__ = ["mutated"]

MOST_BYTES = 4096


def mutated(data: bytes, others: list[bytes], random: Random) -> bytes:
    """`data` with some changes; stretches may come from another input."""
    made = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(made))
        size = random.randint(0, 40)
        match random.randrange(5):
            case 0:
                made[at : at + 1] = random.randbytes(1)
            case 1:
                del made[at : at + size]
            case 2:
                made[at:at] = made[random.randint(0, len(made)) :][:size]
            case 3:
                other = random.choice(others)
                made[at:at] = other[random.randint(0, len(other)) :][: size * 8]
            case _:
                made[at : at + 4] = random.choice((0, 1, 8, 255, 8191, 2**31, 2**32 - 1)).to_bytes(4, "big")
    return bytes(made[:MOST_BYTES])


def main() -> None:
    """The command line."""
    logging.getLogger().addHandler(logging.NullHandler())
    name, folder, seed, runs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    inputs = [path.read_bytes() for path in sorted(folder.iterdir())]
    random = Random(seed)
    kept = folder.parent / f"mutated-{name}"
    for run in range(len(inputs) + runs):
        data = inputs[run] if run < len(inputs) else mutated(random.choice(inputs), inputs, random)
        kept.write_bytes(data)
        TARGETS[name](data)
    kept.unlink()


if __name__ == "__main__":
    main()
