"""A long training that can be interrupted: press Ctrl-C, start it again, and it goes on
where it was.

    python3 -m examples.resume
"""

import highway_networks as hn
import highway_suite

config = hn.Config(depth=20, epochs=6)
data = hn.scale_pixels(highway_suite.load("digits"))
net = hn.make_net(config, data)
history, layer_T, status = highway_suite.train(net, data, config, progress=True,
                                               checkpoint="runs/resume.npz")
print(f"{status}: test accuracy {history['test_acc'][-1]:.2f}")
