"""The numbers that others test their layers on are the machine's.

    python3 -m tests.test_check_layer       makes examples/check_layer.json
"""

import numpy as np
import pytest

import highway_networks as hn
from examples import check_layer
from experiments.lab.recheck import leaves
from highway_suite.files import write_json
from tests.contracts import FORMS

DEPTH = 4           # that scaled_residual is of: y = x + H / 2


def run(form, x, dy, weights):
    """One block of the machine -> y and all gradients; columns are examples."""
    block = hn.block_of(form, DEPTH)
    names, U = "H" + block.gates, len(x)
    W, b = (np.concatenate([weights[letter + name] for name in names])
            for letter in ("W_", "b_"))
    z = W @ x + b[:, None]
    rows, (y, dH, scratch) = tuple(z.reshape(-1, *x.shape)), np.empty((3, *x.shape))
    hn.activate(z, rows[0], z[U:], hn.ACTIVATIONS["tanh"], np.array(0.5))
    block.forward(x, rows, y, scratch)
    d = dy.copy()
    block.backward(d, x, rows, dH, scratch)
    hn.ACTIVATIONS["tanh"].backward(dH, rows[0])
    found = {"y": y.T, "dx": (d + W.T @ z).T}
    for name, dz in zip(names, rows, strict=True):
        found |= {"dW_" + name: dz @ x.T, "db_" + name: dz.sum(axis=1)}
    return found


def mistakes(form, x, weights):
    """y by the usual mistakes, by their names."""
    def y(x, C=None, **changed):
        w = weights | changed
        H = np.tanh(w["W_H"] @ x + w["b_H"][:, None])
        gates = {name: 1 / (1 + np.exp(-(w["W_" + name] @ x + w["b_" + name][:, None])))
                 for name in "TC" if "W_" + name in w}
        if C:       # T is taken for the carry gate
            gates["T"] = 1 - gates["T"]
        return FORMS[form](x, H, gates.get("T", DEPTH ** -0.5), gates.get("C")).T
    wrong = {"the weights are transposed": y(x, **{
        name: value.T for name, value in weights.items() if name[0] == "W"})}
    for name in sorted(set("TC") & {key[-1] for key in weights}):
        wrong[f"b_{name} has the other sign"] = y(x, **{
            "b_" + name: -weights["b_" + name]})
        wrong[f"the weights of H and {name} are exchanged"] = y(x, **{
            f"{a}_{b}": weights[f"{a}_{c}"] for a in "Wb"
            for b, c in (("H", name), (name, "H"))})
    if "W_T" in weights:
        wrong["T is used as the carry gate, 1 - T"] = y(x, C=True)
    return wrong


def make():
    """All that the file holds."""
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, 3, 4))          # three units, four examples
    drawn = {name: rng.normal(size=(3, 3) if name[0] == "W" else 3)
             for name in ("W_H", "b_H", "W_T", "b_T", "W_C", "b_C")}
    forms = {}
    for form in hn.BLOCKS:
        gates = hn.block_of(form, DEPTH).gates
        weights = {name: value for name, value in drawn.items()
                   if name[-1] in "H" + gates}
        forms[form] = {"weights": weights, "right": run(form, x, dy, weights),
                       "mistakes": mistakes(form, x, weights)}
    return {"x": x.T, "dy": dy.T, "forms": forms}


def listed(value):
    """Arrays -> lists."""
    if isinstance(value, dict):
        return {name: listed(item) for name, item in value.items()}
    return np.asarray(value).tolist()


def test_its_numbers_are_the_machines():
    found, made = (dict(leaves(cases, seeds=False))
                   for cases in (check_layer.CASES, listed(make())))
    assert found == pytest.approx(made, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("form", list(hn.BLOCKS))
def test_what_is_right_passes_and_every_mistake_is_told_by_its_name(form):
    case = check_layer.CASES["forms"][form]
    check_layer.check(form, **case["right"])
    for name, wrong in case["mistakes"].items():
        with pytest.raises(AssertionError, match=name):
            check_layer.check(form, y=wrong)
    for name, value in case["right"].items():
        with pytest.raises(AssertionError, match="other sign" if name != "y" else name):
            check_layer.check(form, **{name: -np.array(value)})
    for wrong in ({"dW_H": np.transpose(case["right"]["dW_H"])}, {"dw_h": 0}, {},
                  {"y": [case["right"]["y"]]}):
        with pytest.raises(AssertionError, match="transposed|checked by|expected"):
            check_layer.check(form, **wrong)


if __name__ == "__main__":
    write_json(hn.HERE / "examples" / "check_layer.json", listed(make()))
