"""The whole thing as on a blackboard: a highway net and a plain net learn MNIST.

    python3 -m examples.minimal

This file is for reading; it runs for some twenty seconds. highway_networks.py does the
same in less, for seven kinds of blocks. Both draw images, weights and batches from the
same random streams: with --dtype float64 there, the losses are equal. Columns are
examples: x is (units, images), and * is elementwise. d<name> is the derivative of the
loss by <name>.
"""

import gzip
import os
from pathlib import Path

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"    # more would wait for each other

import numpy as np

# MNIST's four packed files; python3 highway_networks.py --seed 0 puts them there.
FOLDER = Path(os.environ.get("HIGHWAY_DATA_DIR") or Path.home() / ".cache/hinton-mnist")
L, U, B, EPOCHS = 30, 50, 128, 12       # blocks, units of each, images of a batch
N_TRAIN, N_TEST, CLASSES = 6000, 2000, 10
LR, CLIP, BIAS_T = 5e-3, 5.0, -2.0      # rate, longest gradient, b_T at the start


def read_idx(name):
    """An idx file: 0, 0, 8, the number of sizes, the sizes, and all numbers."""
    with gzip.open(FOLDER / f"{name}.gz") as file:
        content = file.read()
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def draw_images(name, count, rng):
    """So many of the images -> pixels in [-1, 1], (count, pixels), and labels."""
    images, labels = (read_idx(f"{name}-{kind}-ubyte")
                      for kind in ("images-idx3", "labels-idx1"))
    chosen = rng.permutation(len(images))[:count]
    return images[chosen].reshape(count, -1) / 127.5 - 1, labels[chosen]


def draw_weights(kind, pixels, seeds):
    """Weights from -1/sqrt(inputs) to 1/sqrt(inputs); a plain net has no W_T."""
    shapes = {"in": (U, pixels), "out": (CLASSES, U), "H": (L, U, U), "T": (L, U, U)}
    w = {}
    for (name, shape), seed in zip(shapes.items(), seeds.spawn(4), strict=True):
        if name != "T" or kind == "highway":
            bound = 1 / np.sqrt(shape[-1])
            w["W_" + name] = np.random.default_rng(seed).uniform(-bound, bound, shape)
            w["b_" + name] = np.full((*shape[:-1], 1), BIAS_T if name == "T" else 0.0)
    return w


def forward(w, x):
    """Pixels -> logits, and the x, H and T of every block, then the last output."""
    kept = []
    x = np.tanh(w["W_in"] @ x + w["b_in"])
    for l in range(L):
        H = np.tanh(w["W_H"][l] @ x + w["b_H"][l])
        T = 1.0                                                 # a plain block
        if "W_T" in w:
            T = 1 / (1 + np.exp(-(w["W_T"][l] @ x + w["b_T"][l])))      # sigmoid
        kept.append((x, H, T))
        x = H * T + x * (1 - T)
    return w["W_out"] @ x + w["b_out"], [*kept, x]


def gradient(w, pixels, labels):
    """The mean loss of a batch, and its derivative by every weight."""
    logits, (*kept, y) = forward(w, pixels)
    p = np.exp(logits) / np.exp(logits).sum(axis=0)             # softmax
    onehot = np.eye(CLASSES)[labels].T
    loss = -np.log((p * onehot).sum(axis=0)).mean()
    dlogits = (p - onehot) / len(labels)
    dw = {name: np.empty_like(value) for name, value in w.items()}
    dw["W_out"], dw["b_out"] = dlogits @ y.T, dlogits.sum(axis=1, keepdims=True)
    dy = w["W_out"].T @ dlogits
    for l, (x, H, T) in reversed(list(enumerate(kept))):
        dH = T * dy
        dz_H = dH * (1 - H * H)                                 # through tanh
        dw["W_H"][l], dw["b_H"][l] = dz_H @ x.T, dz_H.sum(axis=1, keepdims=True)
        dx = (1 - T) * dy + w["W_H"][l].T @ dz_H    # directly, by H and, below, by T
        if "W_T" in w:
            dT = (H - x) * dy
            dz_T = dT * T * (1 - T)                             # through sigmoid
            dw["W_T"][l], dw["b_T"][l] = dz_T @ x.T, dz_T.sum(axis=1, keepdims=True)
            dx += w["W_T"][l].T @ dz_T
        dy = dx                 # x is the output of the block before, or of the input
    dz_in = dy * (1 - x * x)
    dw["W_in"], dw["b_in"] = dz_in @ pixels.T, dz_in.sum(axis=1, keepdims=True)
    return loss, dw


def train(w, x, labels, rng):
    """Change the weights in place, by Adam; yield the loss before each step."""
    m, v = ({name: np.zeros_like(value) for name, value in w.items()} for _ in "mv")
    t = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - B + 1, B):
            batch = order[start:start + B]
            loss, dw = gradient(w, x[batch].T, labels[batch])
            norm = np.sqrt(sum((dW * dW).sum() for dW in dw.values()))
            t += 1                              # steps so far
            for name, dW in dw.items():
                dW *= min(1, CLIP / norm)
                m[name] = 0.9 * m[name] + 0.1 * dW
                v[name] = 0.999 * v[name] + 0.001 * dW * dW
                m_hat, v_hat = m[name] / (1 - 0.9 ** t), v[name] / (1 - 0.999 ** t)
                w[name] -= LR * m_hat / (np.sqrt(v_hat) + 1e-8)
            yield loss


def main():
    """Train both nets on the same images, and print what they read right."""
    for kind in ("highway", "plain"):
        subset, weights, batches = np.random.SeedSequence(0).spawn(3)
        rng = np.random.default_rng(subset)
        x, labels = draw_images("train", N_TRAIN, rng)
        x_test, labels_test = draw_images("t10k", N_TEST, rng)
        w = draw_weights(kind, x.shape[1], weights)
        losses = list(train(w, x, labels, np.random.default_rng(batches)))
        right = (forward(w, x_test.T)[0].argmax(axis=0) == labels_test).mean()
        print(f"{kind:>7}: last loss {losses[-1]:.3f}, test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
