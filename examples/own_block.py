"""A block of your own: a forward and a backward pass, and a row of the table.

    python3 -m examples.own_block
"""

import numpy as np

import highway_networks as hn
import highway_suite


def halfway_forward(x, rows, y, scratch):       # y = (H + x) / 2
    np.add(rows[0], x, out=y)
    np.multiply(y, 0.5, out=y)


def halfway_backward(d, x, rows, dH, scratch):  # dH = dy / 2, dx = dy / 2
    np.multiply(d, 0.5, out=d)
    np.copyto(dH, d)


hn.BLOCKS["halfway"] = hn.Block("", halfway_forward, halfway_backward)
digits = hn.scale_pixels(highway_suite.load("digits"))
for block in ("halfway", "plain"):
    config = hn.Config(block, depth=20, lr=2e-3, epochs=20)
    history, *_ = hn.train(hn.make_net(config, digits), digits, config)
    print(f"{block}, 20 blocks: test accuracy {history['test_acc'][-1]:.2f}")
