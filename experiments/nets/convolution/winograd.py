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

The points are 0, 1, -1, 2, -1/2 and infinity, n = 6, or with -2 and 1/2 n = 8. So k = 3
gives m = 4, or m = 6 with 8 products for 18, and k = 5 gives m = 2 or 4. What fits the
side of the image better is taken: 24 rows are 6 tiles of 6 products or 4 tiles of 8, so
8, and 8 rows are 2 tiles of 6 or 2 of 8, so 6. And k = 1 needs one point: it is the
usual product. Points of a few small fractions keep the rounding low: in float32 the
error of z is three to four times that of the sums. Where the sums are 0 exactly, as at
zero biases on the blank paper of MNIST, it decides the sign of z. (S. Winograd,
Arithmetic Complexity of Computations, 1980; for nets A. Lavin and S. Gray, Fast
Algorithms for Convolutional Neural Networks, 2015, who tile both directions. Tiles of
one column keep the transforms cheap.)

Layout. Activations are (example, row, column, channel), as they say "channels last". A
tile is m rows of z and the n rows of x that it needs, so neighbours share k - 1 rows:
`tiles` is a view of x, (B, T, n, S C), and a transform is one small matrix product for
each of its tiles. For every point, what comes out lies in lines, one for each tile,

    line 0   x_0 x_1 ... x_(S-1) 0 | line 1   x_0 x_1 ... x_(S-1) 0 | ...

in which x_j are the C channels of column j, and the p zeros at its end serve as the
margin of the next line, too. So a kernel's k columns are k C numbers in a row wherever
it stands, `fields` are views, and

    forward     M  = fields of x times the kernel: (lines, k C) (k C, width)
    backward    dx = fields of dM times the turned kernel: (lines, k width) (width k, C)
    kernel's    for each column, x, moved by as much, transposed, times dM:
                (C, all pixels) (all pixels, width)

None of them contracts two operands along their contiguous index, which takes OpenBLAS
twice as long. The bias is one more point of M, which all rows of z add. A row of dx may
belong to a tile and to that before: the points of a line lie next to those of the line
before, so that one product over both adds up what is due. Everything is done for so few
examples that it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

POINTS = (1, 0, -1, 2, -0.5, -2, 0.5)       # the first has a row of ones in A


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
        """n, the rows of x in a tile: 8 where all tiles together then have fewer."""
        return 1 if self.k == 1 else min(
            6, 8, key=lambda n: n * -(-self.side // (n - self.k + 1)))

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
        return np.vstack([np.vander(POINTS[:n - 1], coefficients, increasing=True),
                          np.eye(1, coefficients, coefficients - 1)])
    return values_of(n - k + 1), values_of(k), np.linalg.inv(values_of(n)).T


def tiles_of(x: np.ndarray, sizes: Sizes) -> np.ndarray:
    """x (B, rows, S, C) with all the rows of its tiles -> a view (B, T, n, S C)."""
    example, row, _, item = x.strides
    return np.lib.stride_tricks.as_strided(
        x, (len(x), sizes.tiles, sizes.points, sizes.S * sizes.C),
        (example, sizes.rows * row, row, item))


class Lines:
    """The lines of every point: pixels (n, parts, margin + lines * pitch, C) of so many
    examples, of which only the first `used` of each line are ever written.

    Views: by_tile (parts, B, T, n, used C) and by_column (n, parts, used, lines, C).
    """

    def __init__(self, shared: Callable, name: str, shape: tuple, margin: int,
                 pitch: int, used: int):
        n, parts, B, T, C = shape
        self.pitch, self.lines = pitch, B * T
        self.pixels = shared((name, margin, pitch),
                             (n, parts, margin + B * T * pitch, C))
        inner = self.pixels[:, :, margin:]
        self.by_tile = np.moveaxis(
            inner.reshape(n, parts, B, T, -1)[..., :used * C], 0, -2)
        self.by_column = inner.reshape(n, parts, B * T, pitch, C)[
            :, :, :, :used].swapaxes(2, 3)

    def fields(self, k: int, count: int) -> np.ndarray:
        """View (n, parts, count, lines, k C): k pixels from each of so many columns."""
        point, part, pixel, item = self.pixels.strides
        return np.lib.stride_tricks.as_strided(
            self.pixels, (*self.pixels.shape[:2], count, self.lines,
                          k * self.pixels.shape[-1]),
            (point, part, pixel, self.pitch * pixel, item))

    def moved(self, k: int, count: int) -> np.ndarray:
        """View (k, n, parts, C, count): pixels from the first, the next, ... on."""
        point, part, pixel, item = self.pixels.strides
        return np.lib.stride_tricks.as_strided(
            self.pixels, (k, *self.pixels.shape[:2], self.pixels.shape[-1], count),
            (pixel, point, part, item, pixel))


class Convolution:
    """z = W * x + b of B examples at once, by tiles, and its transpose.

    cache: zeros(shape) is an array of its own; shared(name, shape) one that belongs to
        all who ask for the same.
    free: numbers that anybody may use until `backward_x`.
    """

    def __init__(self, cache: Any, sizes: Sizes, B: int):
        shared = cache.shared
        S, C, k, p, width, parts = self.sizes = sizes
        n, m, T, side = sizes.points, sizes.rows, sizes.tiles, sizes.side
        q = k - 1 - p                   # zeros around dz, on the way back
        self.A, self.G, self.V = (np.ascontiguousarray(matrix, cache.dtype)
                                  for matrix in matrices(n, k))
        self.x = Lines(shared, "x", (n, 1, B, T, C), p, sizes.pitch, S)
        self.M = Lines(shared, "M", (n + 1, parts, B, T, width), q, sizes.pitch, side)
        self.fields = self.x.fields(k, side)
        self.kernels = cache.zeros((n, parts, 1, k * C, width))
        self.products, self.bias = self.M.by_column[:n], self.M.by_column[n]
        back = np.vstack([self.A, np.ones((1, m), cache.dtype)]).T      # adds the bias
        self.back = np.stack([back, back / 2][:parts])[:, None, None]
        # backward
        pixels = B * T * sizes.pitch - q
        self.moved = self.x.moved(k, pixels)
        self.dM = self.M.pixels[:n, :, q:q + pixels]
        self.dkernels = cache.zeros((n, parts, k, C, width))
        self.sums = self.M.by_tile[..., 0, :].reshape(parts, B * T, -1)
        self.dbias = cache.zeros((parts, side * width))
        self.ones = np.ones(B * T, cache.dtype)     # its product adds faster than a sum
        self.part = shared("part of dkernels", self.dkernels.shape)
        self.dM_by_tile = self.M.by_tile[..., :n, :]
        self.dfields = self.M.fields(k, S)[:n]
        self.turned = cache.zeros((n, parts, 1, k * width, C))
        reach = -(-n // m)              # tiles that a row of dx may belong to
        lines = shared(("dx", reach), (reach - 1 + B * T + reach - 1, n, parts, S, C))
        line, *_, item = lines.strides
        inner = lines[reach - 1:][:B * T]
        self.dx_by_column = inner.transpose(1, 2, 3, 0, 4)
        self.free = inner.reshape(-1)
        self.dx_by_tile = np.lib.stride_tricks.as_strided(
            lines, (B, T + reach - 1, reach * n * parts, S * C),
            (T * line, line, S * C * item, item))
        V_back = cache.zeros((T + reach - 1, m, reach, n, parts))
        for t, before in np.ndindex(len(V_back), reach):
            if 0 <= t - before < T:     # the image has that tile
                rows = self.V.T[before * m:(before + 1) * m, :, None]
                V_back[t, :len(rows), reach - 1 - before] = rows
        self.V_back = V_back.reshape(*V_back.shape[:2], -1)
        self.dx_tiles = shared("dx", (B, T + reach - 1, m, S * C))
        self.dx = self.dx_tiles.reshape(B, -1, S, C)[:, p:p + S]

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
        np.matmul(self.A, dz, out=self.dM_by_tile)
        np.matmul(self.V, tiles, out=self.x.by_tile[0])
        np.matmul(self.moved, self.dM, out=self.part.transpose(2, 0, 1, 3, 4))
        np.add(self.dkernels, self.part, out=self.dkernels)
        np.add(self.dbias, self.ones @ self.sums, out=self.dbias)

    def backward_x(self) -> np.ndarray:
        """dx (B, S, S, C) of the dM that `backward` left."""
        np.matmul(self.dfields, self.turned, out=self.dx_by_column)
        np.matmul(self.V_back, self.dx_by_tile, out=self.dx_tiles)
        return self.dx

    def unload(self, dW: np.ndarray, db: np.ndarray) -> None:
        """Write the gradients of W and b, and forget them."""
        _, C, k, _, width, parts = self.sizes
        rows = self.G.T @ self.dkernels.reshape(len(self.G), -1)
        dW[...] = rows.reshape(k, parts, k, C, width).transpose(1, 4, 0, 2, 3)
        db[...] = self.dbias.reshape(parts, -1, width).sum(axis=1)
        self.dkernels.fill(0)
        self.dbias.fill(0)
