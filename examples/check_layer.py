"""Test a highway layer of another library, or one of its relatives, on numbers of ours.

    from examples.check_layer import check, numbers
    x, dy, weights = numbers("highway")         # rows are examples, W is (out, in)
    y = mine(x, **weights)                      # W_H, b_H, and W_T, b_T or W_C, b_C
    check("highway", y=y, dx=dx, dW_T=dW_T)     # whichever you have; dy is dLoss/dy

It needs NumPy, and check_layer.json beside it. This file has x, weights, y and all
gradients, in float64, of the seven forms of y = H T + x C with H = tanh. It also has
the y of the usual mistakes, so that `check` can name a mistake.
"""

import json
from pathlib import Path

import numpy as np

CASES = json.loads(Path(__file__).with_suffix(".json").read_text())


def numbers(form: str) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """x (B, U), dy (B, U), and the weights by name, of one of `CASES["forms"]`."""
    weights = CASES["forms"][form]["weights"]
    return (np.array(CASES["x"]), np.array(CASES["dy"]),
            {name: np.array(value) for name, value in weights.items()})


def check(form: str, rtol: float = 1e-5, **found: np.ndarray) -> None:
    """Raise AssertionError unless y and the gradients found are ours."""
    case = CASES["forms"][form]
    if not found or found.keys() - case["right"].keys():
        raise AssertionError(f"{form} is checked by {', '.join(case['right'])}, "
                             f"not by {', '.join(found) or 'nothing'}")

    def same(value, right):
        return np.shape(value) == np.shape(right) and np.allclose(value, right, rtol,
                                                                  atol=rtol)
    for name, value in found.items():
        right = np.array(case["right"][name])
        mistakes = case["mistakes"] if name == "y" else {
            f"{name} has the other sign": -right, f"{name} is transposed": right.T,
            f"{name} is a mean over the rows, and should be their sum":
            right / len(CASES["x"])}
        if not same(value, right):
            raise AssertionError(f"{form}: " + next(
                (mistake for mistake, wrong in mistakes.items() if same(value, wrong)),
                f"{name} is {np.asarray(value)}, expected {right}"))


if __name__ == "__main__":
    x, dy, weights = numbers("highway")
    H = np.tanh(x @ weights["W_H"].T + weights["b_H"])
    T = 1 / (1 + np.exp(-(x @ weights["W_T"].T + weights["b_T"])))
    check("highway", y=H * T + x * (1 - T))
    print("a layer in three lines of NumPy agrees")
