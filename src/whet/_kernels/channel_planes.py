"""Channels of a colour image: LUV, normalised gradient magnitude and six orientations, as means over cells; filters.

Planes hold whole numbers, and floats take part in single operations only (a product, a quotient, a root), so that
every platform has the same bytes, and a mirrored image has mirrored channels.
"""

import numpy as np

from whet._kernels.jit import inlined, kernel
from whet.arrays import Bytes, Float32s, Int32s

CELL = 4
N_CHANNELS = 10
# Each channel as it is, smoothed, and its differences across and down.
N_FILTERED = 4 * N_CHANNELS
# Planes are in units of 1/16; sums over [1 2 1] in both directions multiply them by 16 again.
UNIT = 16
# The gradient is normalised by its mean around a pixel, weighted by a triangle of this radius in both directions.
RADIUS = 5
TRIANGLE = (RADIUS + 1) ** 4
# Dollar's constant of 0.005, whose LUV is divided by 270; differences are of two pixels, in units of 1/256.
LEAST_GRADIENT = np.float32(0.005 * 270 * 2 * UNIT * 16)
# Whole numbers of a normalised magnitude, and of a share of it.
MAGNITUDE = 1024
SHARE = 128
# atan(t) in bins of 30 degrees for t up to 1: the best odd polynomial of degree 9.
ATAN_1, ATAN_3, ATAN_5, ATAN_7, ATAN_9 = 1.9096040, -0.6308350, 0.3440759, -0.1626322, 0.0398091
# For each code of an orientation, the other bin that has a share: the next one, or from 8 on the one before.
OTHERS = np.array([1, 2, 3, 4, 5, 0, 0, 0, 5, 0, 1, 2, 3, 4, 0, 0], np.uint8)
_WHITE_U, _WHITE_V = np.float32(0.19793943), np.float32(0.46831096)


# CIE lightness 0 to 100, in units of 1/16, of luminance 0 to 1 in 4,096 steps.
_LUMINANCE = np.arange(4096) / 4095
_ROOT = 116 * np.cbrt(_LUMINANCE) - 16
LIGHTNESS = np.rint(UNIT * np.where(_LUMINANCE > 0.008856, _ROOT, 903.3 * _LUMINANCE)).astype(np.int32)


# The rows of the matrix of sRGB in units of 2^-16; those of Y add up to 2^16. Results are at most 255 * 76,000.
@inlined
def _x(r: np.int32, g: np.int32, b: np.int32) -> np.int32:
    return np.int32(np.int32(27030) * r + np.int32(23434) * g + np.int32(11825) * b)


@inlined
def _y(r: np.int32, g: np.int32, b: np.int32) -> np.int32:
    return np.int32(np.int32(13938) * r + np.int32(46868) * g + np.int32(4730) * b)


@inlined
def _z(r: np.int32, g: np.int32, b: np.int32) -> np.int32:
    return np.int32(np.int32(1267) * r + np.int32(7811) * g + np.int32(62274) * b)


@inlined
def _whole(r: np.int32, g: np.int32, b: np.int32) -> np.float32:
    """X + 15 Y + 3 Z, by which chromaticity is divided; at least 1."""
    X, Y, Z = _x(r, g, b), _y(r, g, b), _z(r, g, b)
    whole = np.float32(X) + np.float32(15) * np.float32(Y) + np.float32(3) * np.float32(Z)
    return whole if whole > np.float32(1) else np.float32(1)


@kernel
def to_luv(rgb: Bytes, lightness: Int32s, padding: int, luv: Int32s) -> None:
    """Write L, u + 88 and v + 134 (3, height, width) of an image, in units of 1/16; edge pixels repeat in the padding.

    Values of RGB are taken as linear, without gamma.
    """
    rows = luv.shape[1]
    height, width = rgb.shape[:2]
    r, g, b = np.empty(width, np.int32), np.empty(width, np.int32), np.empty(width, np.int32)
    for y in range(padding, padding + height):
        pixels = rgb[y - padding]
        light, u = luv[0, y, padding : padding + width], luv[1, y, padding : padding + width]
        v = luv[2, y, padding : padding + width]
        for x in range(width):
            r[x], g[x], b[x] = pixels[x, 0], pixels[x, 1], pixels[x, 2]
        for x in range(width):
            light[x] = lightness[(_y(r[x], g[x], b[x]) + np.int32(2040)) // np.int32(4081)]
        for x in range(width):
            part = np.float32(4) * np.float32(_x(r[x], g[x], b[x]))
            part = part / _whole(r[x], g[x], b[x]) - _WHITE_U
            u[x] = np.int32(np.float32(13) * np.float32(light[x]) * part + np.float32(88 * UNIT + 0.5))
        for x in range(width):
            part = np.float32(9) * np.float32(_y(r[x], g[x], b[x]))
            part = part / _whole(r[x], g[x], b[x]) - _WHITE_V
            v[x] = np.int32(np.float32(13) * np.float32(light[x]) * part + np.float32(134 * UNIT + 0.5))
    for c in range(3):
        for y in range(padding, padding + height):
            luv[c, y, :padding] = luv[c, y, padding]
            luv[c, y, padding + width :] = luv[c, y, padding + width - 1]
        for y in range(padding):
            luv[c, y] = luv[c, padding]
        for y in range(padding + height, rows):
            luv[c, y] = luv[c, padding + height - 1]


@kernel
def smooth(plane: Int32s, line: Int32s, smoothed: Int32s) -> None:
    """Sums over [1 2 1] down and across (height, 1 + width + 1), with one more column at both ends; edges repeat.

    `line` (width + 2,) is working memory.
    """
    height, width = plane.shape
    for y in range(height):
        above, here, below = plane[max(y - 1, 0)], plane[y], plane[min(y + 1, height - 1)]
        for x in range(width):
            line[x + 1] = above[x] + 2 * here[x] + below[x]
        line[0], line[width + 1] = line[1], line[width]
        out = smoothed[y]
        for x in range(width):
            out[x + 1] = line[x] + 2 * line[x + 1] + line[x + 2]
        out[0], out[width + 1] = out[1], out[width]


@kernel
def differences(plane: Int32s, across: Float32s, along: Float32s) -> None:
    """Differences across and down (height, width) of a smoothed plane (height, 1 + width + 1)."""
    height, width = across.shape
    for y in range(height):
        here, above, below = plane[y], plane[max(y - 1, 0)], plane[min(y + 1, height - 1)]
        dx, dy = across[y], along[y]
        for x in range(width):
            dx[x] = np.float32(here[x + 2] - here[x])
            dy[x] = np.float32(below[x + 1] - above[x + 1])


@kernel
def stronger_differences(plane: Int32s, across: Float32s, along: Float32s) -> None:
    """Replace differences (height, width) by those of another plane where these are larger.

    A loop over all planes at once is not vectorised: it would have to check too many arrays for overlaps.
    """
    height, width = across.shape
    for y in range(height):
        here, above, below = plane[y], plane[max(y - 1, 0)], plane[min(y + 1, height - 1)]
        dx, dy = across[y], along[y]
        for x in range(width):
            new_x, new_y = np.float32(here[x + 2] - here[x]), np.float32(below[x + 1] - above[x + 1])
            is_stronger = new_x * new_x + new_y * new_y > dx[x] * dx[x] + dy[x] * dy[x]
            dx[x] = new_x if is_stronger else dx[x]
            dy[x] = new_y if is_stronger else dy[x]


@kernel
def gradients(across: Float32s, along: Float32s, magnitude: Int32s, orientation: Bytes, share: Bytes) -> None:
    """Magnitude and angle of differences, all (height, width).

    The angle lies between two of six bins at 0, 30 to 150 degrees: `orientation` is the one that is nearer to 0 or 180
    degrees, plus 8 where the other is the one before it, and `share` (of 128) what the other has.
    """
    height, width = magnitude.shape
    for y in range(height):
        row_x, row_y, sizes, bins, parts = across[y], along[y], magnitude[y], orientation[y], share[y]
        for x in range(width):
            dx, dy = row_x[x], row_y[x]
            sizes[x] = np.int32(np.sqrt(dx * dx + dy * dy) + np.float32(0.5))
            wide, tall = abs(dx), abs(dy)
            small, large = wide if wide < tall else tall, tall if wide < tall else wide
            t = small / (large if large > np.float32(1) else np.float32(1))
            s = t * t
            p = np.float32(ATAN_9) * s
            p = np.float32(ATAN_7) + p
            p = p * s
            p = np.float32(ATAN_5) + p
            p = p * s
            p = np.float32(ATAN_3) + p
            p = p * s
            p = np.float32(ATAN_1) + p
            angle = p * t
            angle = np.float32(3) - angle if tall > wide else angle
            low = np.int32(angle)
            low = np.int32(2) if low > np.int32(2) else low
            parts[x] = np.uint8(np.int32((angle - np.float32(low)) * np.float32(SHARE) + np.float32(0.5)))
            other = np.int32(8) if low == np.int32(0) else np.int32(14) - low
            bins[x] = np.uint8(other if dx * dy < np.float32(0) else low)


@kernel
def normalise(magnitude: Int32s, line: Int32s, columns: Int32s, normal: Int32s) -> None:
    """Magnitudes (height, width) over their weighted mean around each pixel, in units of 1/1024; edge pixels repeat.

    `line` (width + 10,) and `columns` (height, width) are working memory.
    """
    height, width = magnitude.shape
    for y in range(height):
        row = columns[y]
        here = magnitude[y]
        for x in range(width):
            row[x] = (RADIUS + 1) * here[x]
        for k in range(1, RADIUS + 1):
            above, below = magnitude[max(y - k, 0)], magnitude[min(y + k, height - 1)]
            weight = RADIUS + 1 - k
            for x in range(width):
                row[x] += weight * (above[x] + below[x])
    share = np.float32(1 / TRIANGLE)
    for y in range(height):
        line[RADIUS : RADIUS + width] = columns[y]
        line[:RADIUS] = columns[y, 0]
        line[RADIUS + width :] = columns[y, width - 1]
        row, out = magnitude[y], normal[y]
        for x in range(width):
            total = 6 * line[x + 5] + 5 * (line[x + 4] + line[x + 6]) + 4 * (line[x + 3] + line[x + 7])
            total += 3 * (line[x + 2] + line[x + 8]) + 2 * (line[x + 1] + line[x + 9]) + line[x] + line[x + 10]
            mean = np.float32(total) * share + LEAST_GRADIENT
            out[x] = np.int32(np.float32(row[x]) * np.float32(MAGNITUDE) / mean + np.float32(0.5))


@inlined
def _sum_cells(rows: Int32s, line: Int32s, sums: Int32s) -> None:
    """Sums (columns,) over cells of four rows; `line` (4 columns,) is working memory."""
    first, second, third, fourth = rows[0], rows[1], rows[2], rows[3]
    for x in range(len(line)):
        line[x] = first[x] + second[x] + third[x] + fourth[x]
    for column in range(len(sums)):
        x = CELL * column
        sums[column] = line[x] + line[x + 1] + line[x + 2] + line[x + 3]


@kernel
def aggregate(luv: Int32s, normal: Int32s, orientation: Bytes, share: Bytes, others: Bytes, cells: Bytes) -> None:
    """Means over cells of 4 x 4 pixels as bytes (10, rows, columns): L, u, v, magnitude and six orientations.

    L has 255 for 100, u + 88 and v + 134 are as they are, a magnitude of 1 has 100 and an orientation of 1 has 160.
    """
    _, rows, columns = cells.shape
    sums, line = np.empty((N_CHANNELS, columns), np.int32), np.empty(CELL * columns, np.int32)
    for row in range(rows):
        top = CELL * row
        for c in range(3):
            _sum_cells(luv[c, top : top + CELL, 1:], line, sums[c])
        _sum_cells(normal[top : top + CELL], line, sums[3])
        sums[4:] = 0
        for y in range(top, top + CELL):
            for column in range(columns):
                for x in range(column * CELL, column * CELL + CELL):
                    q, code, part = normal[y, x], orientation[y, x], np.int32(share[y, x])
                    sums[4 + (code & 7), column] += q * (SHARE - part)
                    sums[4 + others[code], column] += q * part
        for column in range(columns):
            for c in range(N_CHANNELS):
                value = np.int64(sums[c, column])
                if c == 0:  # 16 pixels in units of 1/256
                    value = (value * 255 + 50 * 4096) // (100 * 4096)
                elif c < 3:
                    value = (value + 2048) >> 12
                elif c == 3:
                    value = (value * 100 + 8 * MAGNITUDE) // (16 * MAGNITUDE)
                else:
                    value = (value * 160 + 8 * MAGNITUDE * SHARE) // (16 * MAGNITUDE * SHARE)
                cells[c, row, column] = np.uint8(np.int64(min(max(value, np.int64(0)), np.int64(255))))


@kernel
def resample(cells: Bytes, top: Int32s, down: Int32s, left: Int32s, across: Int32s, out: Bytes) -> None:
    """Cells (10, rows, columns) between others: cell `top` and the next one, the next by the share `down` of 256.

    `left` and `across` are the same for columns.
    """
    _, n_rows, n_columns = cells.shape
    for c in range(len(cells)):
        for row in range(len(top)):
            upper, lower = cells[c, top[row]], cells[c, min(top[row] + 1, n_rows - 1)]
            for column in range(len(left)):
                first, second = left[column], min(left[column] + 1, n_columns - 1)
                above = upper[first] * (256 - across[column]) + upper[second] * across[column]
                below = lower[first] * (256 - across[column]) + lower[second] * across[column]
                out[c, row, column] = np.uint8((above * (256 - down[row]) + below * down[row] + 32768) >> 16)


@inlined
def _around_middle(difference: np.int32) -> np.uint8:
    """A quarter of a difference, rounded toward 0, as a byte around 128; large ones are cut off."""
    size = np.int32(abs(difference) >> 2)
    size = size if size < np.int32(127) else np.int32(127)
    return np.uint8(128 - size if difference < 0 else 128 + size)


@kernel
def filter_cells(cells: Bytes, line: Int32s, filtered: Bytes) -> None:
    """Write filtered channels (40, rows, columns) of channels (10, rows, columns); edge cells repeat.

    First all channels as they are, then smoothed by [1 2 1] in both directions, then differences across and down of the
    two cells beside a cell, smoothed in the other direction. `line` (2, columns + 2) is working memory.
    """
    n, rows, columns = cells.shape
    sums, steps = line[0], line[1]
    for c in range(n):
        for y in range(rows):
            above, here, below = cells[c, max(y - 1, 0)], cells[c, y], cells[c, min(y + 1, rows - 1)]
            for x in range(columns):
                sums[x + 1] = np.int32(above[x]) + 2 * np.int32(here[x]) + np.int32(below[x])
                steps[x + 1] = np.int32(below[x]) - np.int32(above[x])
            sums[0], sums[columns + 1] = sums[1], sums[columns]
            steps[0], steps[columns + 1] = steps[1], steps[columns]
            smooth, across, down = filtered[n + c, y], filtered[2 * n + c, y], filtered[3 * n + c, y]
            filtered[c, y] = here
            for x in range(columns):
                smooth[x] = np.uint8((sums[x] + 2 * sums[x + 1] + sums[x + 2] + 8) >> 4)
            for x in range(columns):
                across[x] = _around_middle(sums[x + 2] - sums[x])
            for x in range(columns):
                down[x] = _around_middle(steps[x] + 2 * steps[x + 1] + steps[x + 2])
