"""Turn a trained DeepNet into a torch.nn.Module that gives the same logits.

    python3 -m examples.to_pytorch
"""

import torch

import highway_networks as hn
import highway_suite

MIX = {"plain": lambda L, x, H: H, "residual": lambda L, x, H: H + x,
       "scaled_residual": lambda L, x, H: H / L ** 0.5 + x,
       "highway": lambda L, x, H, T: x + T * (H - x),
       "t_only": lambda L, x, H, T: H * T + x, "c_only": lambda L, x, H, C: H + x * C,
       "full": lambda L, x, H, T, C: H * T + x * C}


class TorchNet(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.mix, self.rows = MIX[net.settings["block"]], "H" + net.block.gates
        self.act = getattr(torch, net.settings["activation"])
        for name, array in net.views(net.params).items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(array)))

    def forward(self, x) -> torch.Tensor:           # (N, P) -> logits (N, C)
        x = self.act(x @ self.W_in.T + self.b_in[:, 0])
        w = dict(self.named_parameters())
        for l in range(len(self.W_H)):
            H, *gates = [x @ w["W_" + k][l].T + w["b_" + k][l] for k in self.rows]
            x = self.mix(len(self.W_H), x, self.act(H), *map(torch.sigmoid, gates))
        return x @ self.W_out.T + self.b_out


if __name__ == "__main__":
    data = hn.scale_pixels(highway_suite.load("digits"))
    net = hn.make_net(hn.Config(depth=20, epochs=5), data)
    hn.train(net, data, hn.Config(depth=20, epochs=5))
    told = TorchNet(net)(torch.tensor(data.x_test)).argmax(1).numpy()
    print(f"equal answers: {(told == net.predict(data.x_test)).mean():.0%}")
