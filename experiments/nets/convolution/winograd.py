"""A convolution with half of the products, after Winograd: its lecture and its code.

Along a column of the image, a kernel w of k = 3 pixels and an input d give

    z_i = w_0 d_i + w_1 d_(i+1) + w_2 d_(i+2)

which are 12 products for m = 4 pixels of z, a tile. Six are enough.

1. Products of polynomials. Let w(a) = w_0 + w_1 a + w_2 a^2, and v(a) a polynomial with
   m coefficients. w(a) v(a) has n = m + k - 1 of them, which its values at n points
   determine; one of the points is infinity, where the value is the last coefficient. So
   let us take the values of w and of v, multiply them point by point, n products, and
   go back to coefficients. With E_c, the (n, c) matrix that takes c coefficients to
   their values at the n points,

       coefficients of w v = E_n^-1 ((E_k w) (E_m v))

2. Its transpose is the convolution: the sum over i of v_i z_i is the sum over i and j
   of v_i w_j d_(i+j), the product of d with the coefficients of w v. For every v, so

       z = E_m' ((E_k w) (E_n^-1' d))                              (' is the transpose)

   or z = A' (G w, times V d), with A = E_m, G = E_k and V = E_n^-1'. Sums over channels
   and over the kernel's columns go inside the brackets, where they are matrix products,
   one for each point. A, G and V are small matrices, for each point a row.

3. The way back is the transpose of each step, with the same matrices: from dz the
   products' dM = A dz; from it the kernel's G' (dM, times V d), and dx by G w and V'.

The points are 0, 1, -1, 2, -2, 1/2, -1/2 and infinity, n = 8, or n = 10 others. So k =
3 gives m = 6 with 8 products for 18, or m = 8 with 10 for 24, and k = 5 gives m = 4 or
6. What fits the side of the image better is taken: 32 rows are 6 tiles of 8 products or
4 tiles of 10, so 10, and 12 rows are 2 tiles of either, so 8. And k = 1 needs one
point: it is the usual product. Points of a few small fractions keep the rounding low:
in float32 the error of z is four times that of the sums with 8 points, and eleven times
with the best 10 of many. Where the sums are 0 exactly, as at zero biases on the blank
paper of MNIST, it decides the sign of z. (S. Winograd, Arithmetic Complexity of
Computations, 1980; for nets A. Lavin and S. Gray, Fast Algorithms for Convolutional
Neural Networks, 2015, who tile both directions. Tiles of one column keep the transforms
cheap.)

Layout. Activations are (example, row, column, channel), as they say "channels last". A
tile is m rows of z and the n rows of x that it needs, so neighbours share k - 1 rows:
`tiles` is a view of x, (B, T, n, S C), and a transform is one small matrix product for
each of its tiles. For every point, what comes out lies in lines, one for each tile,

    line 0   x_0 x_1 ... x_(S-1) 0 | line 1   x_0 x_1 ... x_(S-1) 0 | ...

in which x_j are the C channels of column j, and the p zeros at its end serve as the
margin of the next line, too. So a kernel's k columns are k C numbers in a row wherever
it stands. Every k-th of these places makes a matrix whose rows do not overlap; k of
them, `fields`, have all places, and

    forward     M  = fields of x times the kernel: (pixels / k, k C) (k C, width)
    backward    dx = fields of dM times the turned kernel:
                (pixels / k, k width) (width k, C)
    kernel's    for each column, x, moved by as much, transposed, times dM:
                (C, all pixels) (all pixels, width)

None of them contracts two operands along their contiguous index, which takes OpenBLAS
twice as long. The bias is one more point of M, which all rows of z add. The first rows
of dx of a tile are the last of the one before: both are added up. Everything is done
for so few examples that it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

POINTS = {1: (), 8: (1, 0, -1, 2, -1 / 2, -2, 1 / 2),   # at 1, A has a row of ones
          10: (1, 0, -1, 2, -1 / 2, 2 / 3, 1 / 3, -3, -4 / 3)}


class Sizes(NamedTuple):
    """Of a convolution of S x S pixels with C channels by `parts` kernels of k x k
    pixels, each of so many channels, with p zeros around the image."""

    S: int
    C: int
    k: int
    p: int
    width: int
    parts: int

    @property
    def side(self) -> int:
        """Of z."""
        return self.S + 2 * self.p - self.k + 1

    @property
    def points(self) -> int:
        """n, the rows of x in a tile: 10 where all tiles together then have fewer."""
        return 1 if self.k == 1 else min(
            8, 10, key=lambda n: n * -(-self.side // (n - self.k + 1)))

    @property
    def rows(self) -> int:
        """m, the rows of z in a tile."""
        return self.points - self.k + 1

    @property
    def tiles(self) -> int:
        """T; the last may be short of rows."""
        return -(-self.side // self.rows)

    @property
    def pitch(self) -> int:
        """Pixels from a line to the next."""
        return self.S + self.p


def matrices(n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A (n, m), G (n, k), V (n, n) of n points."""
    def values_of(coefficients):
        return np.vstack([np.vander(POINTS[n], coefficients, increasing=True),
                          np.eye(1, coefficients, coefficients - 1)])
    return values_of(n - k + 1), values_of(k), np.linalg.inv(values_of(n)).T


def tiles_of(x: np.ndarray, sizes: Sizes) -> np.ndarray:
    """x (B, rows, S, C) with all the rows of its tiles -> a view (B, T, n, S C)."""
    windows = np.lib.stride_tricks.sliding_window_view(
        x.reshape(*x.shape[:2], -1), sizes.points, axis=1)
    return windows[:, ::sizes.rows].swapaxes(2, 3)


class Lines:
    """The lines of every point: pixels (n, parts, margin + all + some, C), of which
    `by_tile` (parts, B, T, n, used C) is what is used. If only that is written, all
    others stay zero."""

    def __init__(self, shared: Callable, name: str, shape: tuple, k: int, margin: int,
                 pitch: int, used: int):
        n, parts, B, T, C = shape
        self.count, self.margin = B * T * pitch, margin
        self.rows = -(-self.count // k)
        self.pixels = shared((name, margin, pitch, used),
                             (n, parts, margin + k * self.rows + k - 1, C))
        inner = self.pixels[:, :, margin:margin + self.count]
        self.by_tile = np.moveaxis(
            inner.reshape(n, parts, B, T, -1)[..., :used * C], 0, -2)

    def view(self, *axes: tuple[int, int]) -> np.ndarray:
        """View (n, parts, ...) from the first pixel on; of each other axis how many
        items it has, and how many numbers lie from one to the next."""
        *points, _, item = self.pixels.strides
        return np.lib.stride_tricks.as_strided(
            self.pixels, (*self.pixels.shape[:2], *(count for count, _ in axes)),
            (*points, *(step * item for _, step in axes)))

    def fields(self, k: int) -> np.ndarray:
        """View (n, parts, k, rows, k C): k pixels from every k-th one on, k times."""
        C = self.pixels.shape[-1]
        return self.view((k, C), (self.rows, k * C), (k * C, 1))

    def every(self, k: int) -> np.ndarray:
        """View (n, parts, k, rows, C): every k-th pixel after the margin."""
        inner = self.pixels[:, :, self.margin:self.margin + k * self.rows]
        return inner.reshape(*inner.shape[:2], -1, k, inner.shape[-1]).swapaxes(2, 3)


class Convolution:
    """z = W * x + b of B examples at once, by tiles, and its transpose.

    cache: zeros(shape) is an array of its own; shared(name, shape) one that belongs to
        all who ask for the same.
    free: numbers that anybody may use until `backward_x`.
    """

    def __init__(self, cache: Any, sizes: Sizes, B: int):
        S, C, k, p, width, parts = self.sizes = sizes
        n, m, T, side = sizes.points, sizes.rows, sizes.tiles, sizes.side

        def lines(name, n, parts, channels, margin, used):
            return Lines(cache.shared, name, (n, parts, B, T, channels), k, margin,
                         sizes.pitch, used)
        self.A, self.G, self.V = (np.ascontiguousarray(matrix, cache.dtype)
                                  for matrix in matrices(n, k))
        self.x = lines("x", n, 1, C, p, S)
        self.M = lines("M", n + 1, parts, width, 0, side)
        self.fields, self.products = self.x.fields(k), self.M.every(k)[:n]
        self.kernels = cache.zeros((n, parts, 1, k * C, width))
        self.bias = self.M.by_tile[..., n, :].reshape(parts, B * T, side, width)
        back = np.vstack([self.A, np.ones((1, m), cache.dtype)]).T      # adds the bias
        self.back = np.stack([back, back / 2][:parts])[:, None, None]
        q = k - 1 - p                   # on the way back, zeros around dz
        self.dM = lines("dM", n, parts, width, q, side)
        pixels = self.dM.count - q
        self.moved = np.moveaxis(self.x.view((k, C), (C, 1), (pixels, C)), 2, 0)
        self.dM_moved = self.dM.pixels[:, :, q:q + pixels]
        self.dkernels = cache.zeros((n, parts, k, C, width))
        self.sums = self.dM.by_tile[..., 0, :].reshape(parts, B * T, -1)
        self.dbias = cache.zeros((parts, side * width))
        self.ones = np.ones(B * T, cache.dtype)     # its product adds faster than a sum
        self.part = cache.shared("part of dkernels", self.dkernels.shape)
        self.turned = cache.zeros((n, parts, 1, k * width, C))
        self.dfields = self.dM.fields(k)
        dx = lines("dx", n * parts, 1, C, 0, S)
        self.free, self.dx_by_tile = dx.pixels.reshape(-1), dx.by_tile[0]
        self.dx_products = dx.every(k).reshape(n, parts, k, -1, C)
        self.V_first, self.V_rest = (np.repeat(rows, parts, axis=1)
                                     for rows in np.split(self.V.T, [m]))
        self.tiles = cache.shared("dx of tiles", (B, T + 1, m, S * C))
        self.rest = cache.shared("rest of dx", (B, T, n - m, S * C))
        self.overlap = self.tiles[:, 1:, :n - m]
        self.dx = self.tiles.reshape(B, -1, S, C)[:, p:p + S]

    def transform(self, W: np.ndarray, kernels: np.ndarray) -> None:
        """W (k, ...), its rows first -> kernels (n, ...) of all points."""
        np.matmul(self.G, W.reshape(len(W), -1), out=kernels.reshape(len(kernels), -1))

    def load(self, W: np.ndarray, b: np.ndarray) -> None:
        """Take kernels W (parts, width, k, k, C) and biases (parts, width)."""
        self.transform(W.transpose(2, 0, 3, 4, 1), self.kernels)
        self.bias[...] = b[:, None, None]

    def forward(self, tiles: np.ndarray, z: np.ndarray) -> None:
        """tiles (B, T, n, S C) -> z (parts, B, T, m, side width), of gates z / 2."""
        np.matmul(self.V, tiles, out=self.x.by_tile[0])
        np.matmul(self.fields, self.kernels, out=self.products)
        np.matmul(self.back, self.M.by_tile, out=z)

    def load_back(self, W: np.ndarray) -> None:
        """Take the kernels for `backward_x`, which has them turned."""
        self.transform(W[:, :, :, ::-1].transpose(2, 0, 3, 1, 4), self.turned)

    def backward(self, tiles: np.ndarray, dz: np.ndarray) -> None:
        """tiles and dz, shaped as z -> dM; adds to gradients of kernels and bias."""
        np.matmul(self.A, dz, out=self.dM.by_tile)
        np.matmul(self.V, tiles, out=self.x.by_tile[0])
        np.matmul(self.moved, self.dM_moved, out=self.part.transpose(2, 0, 1, 3, 4))
        np.add(self.dkernels, self.part, out=self.dkernels)
        np.add(self.dbias, self.ones @ self.sums, out=self.dbias)

    def backward_x(self) -> np.ndarray:
        """dx (B, S, S, C) of the dM that `backward` left."""
        np.matmul(self.dfields, self.turned, out=self.dx_products)
        np.matmul(self.V_first, self.dx_by_tile, out=self.tiles[:, :-1])
        np.matmul(self.V_rest, self.dx_by_tile, out=self.rest)
        self.tiles[:, -1] = 0
        np.add(self.overlap, self.rest, out=self.overlap)
        return self.dx

    def unload(self, dW: np.ndarray, db: np.ndarray) -> None:
        """Write the gradients of W and b, and forget them."""
        _, C, k, _, width, parts = self.sizes
        rows = self.G.T @ self.dkernels.reshape(len(self.G), -1)
        dW[...] = rows.reshape(k, parts, k, C, width).transpose(1, 4, 0, 2, 3)
        db[...] = self.dbias.reshape(parts, -1, width).sum(axis=1)
        self.dkernels.fill(0)
        self.dbias.fill(0)
