"""The committed nets of 49 blocks, and what they say with one block closed.

    python3 -m examples.close_a_layer
"""

import numpy as np

import highway_networks as hn
import highway_suite

digits = highway_suite.load("digits")      # 8x8, so that MNIST need not be there
x = np.kron(digits.x_test.reshape(-1, 8, 8), np.ones((1, 3, 3)))
x = np.pad(x, ((0, 0), (2, 2), (2, 2))).reshape(len(x), -1) / 8 - 1
for block in ("highway", "residual", "plain"):
    net = hn.DeepNet.load(hn.HERE / "results" / "trained_nets" / f"{block}.npz")
    told = [np.mean(net.predict(x, closed) == digits.y_test)
            for closed in ((), (20,))]
    print(f"{block}: tells {told[0]:.0%} of the digits, without block 21 {told[1]:.0%}")
