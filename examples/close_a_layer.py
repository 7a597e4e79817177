"""Three trained nets of 49 blocks, and what they say with some of the blocks closed.

    python3 -m examples.close_a_layer
"""

import numpy as np

from highway_suite.nets import TRAINED, mnist_images, trained_net

images, labels = mnist_images()         # forty that ship
x = images / 127.5 - 1                  # as the nets were trained
print("right, of forty images of MNIST:  all blocks   without 21   without 10 to 25")
for block in TRAINED:
    net = trained_net(block)
    right = [np.sum(net.predict(x, closed) == labels)       # block 1 is 0 in code
             for closed in ((), (20,), range(9, 25))]
    print(f"{block:>32}  {right[0]:>10}  {right[1]:>11}  {right[2]:>17}")
