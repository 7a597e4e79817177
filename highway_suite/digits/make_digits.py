"""Write the four idx files of this folder from scikit-learn's copy of the UCI digits.

    pip install scikit-learn && python3 highway_suite/digits/make_digits.py

Prints the SHA-256 of each payload, as `highway_networks.DATASETS` lists them.
"""

import gzip
import hashlib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HERE = Path(__file__).resolve().parent


def main() -> None:
    """1797 images of 8x8 pixels, 0..16, split once: 1437 to train, 360 to test."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    for part, rows in (("train", order[:1437]), ("t10k", order[1437:])):
        write(f"{part}-images-idx3-ubyte.gz", digits.images[rows])
        write(f"{part}-labels-idx1-ubyte.gz", digits.target[rows])


def write(name: str, array: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    payload = (b"\0\0\x08" + bytes([array.ndim]) + sizes
               + array.astype(np.uint8).tobytes())
    # No file name and no time in the gzip header: the same bytes on every run.
    (HERE / name).write_bytes(gzip.compress(payload, mtime=0))
    print(hashlib.sha256(payload).hexdigest(), len(payload), name)


if __name__ == "__main__":
    main()
