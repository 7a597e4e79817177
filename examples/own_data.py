"""Train on arrays of your own: rows of any length, and labels that count from 0.

    python3 -m examples.own_data
"""

import numpy as np

import highway_networks as hn

rng = np.random.default_rng(0)
x = rng.normal(size=(3000, 20))
y = (x[:, 0] > 0) + 2 * (x[:, 1] > 0)       # the quadrant of the first two inputs
data = hn.Data(x[:2000], y[:2000], x[2000:], y[2000:], classes=4, scale=None)
config = hn.Config(depth=10, epochs=10)
net = hn.make_net(config, data)
history, _, status = hn.train(net, data, config)
print(f"{status}: test accuracy {history['test_acc'][-1]:.2f}")
print("first test row:", net.predict_proba(data.x_test[:1])[0].round(3))
