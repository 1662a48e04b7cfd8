// Boxes are [x1, y1, x2, y2] in pixels of the image.

export const MIN_SIDE = 6; // pixels of the smallest box that can be drawn

export const width = (box) => box[2] - box[0];
export const height = (box) => box[3] - box[1];
export const area = (box) => Math.max(0, width(box)) * Math.max(0, height(box));

/** A text that identifies a box, rounded to tenths of a pixel. */
export const keyOf = (box) => box.map((value) => value.toFixed(1)).join(",");

/** The box of such a text. */
export const boxOf = (key) => key.split(",").map(Number);

/** The box between two points, inside an image of the given size. */
export function between([ax, ay], [bx, by], size) {
  const clampX = (x) => clamp(x, 0, size.width);
  const clampY = (y) => clamp(y, 0, size.height);
  return [clampX(Math.min(ax, bx)), clampY(Math.min(ay, by)), clampX(Math.max(ax, bx)), clampY(Math.max(ay, by))];
}

/** Move a box, without leaving the image. */
export function moved(box, dx, dy, size) {
  const x = clamp(dx, -box[0], size.width - box[2]);
  const y = clamp(dy, -box[1], size.height - box[3]);
  return [box[0] + x, box[1] + y, box[2] + x, box[3] + y];
}

/** Grow (or shrink) a box at its right and lower side. */
export function resized(box, dx, dy, size) {
  return [
    box[0],
    box[1],
    clamp(box[2] + dx, box[0] + MIN_SIDE, size.width),
    clamp(box[3] + dy, box[1] + MIN_SIDE, size.height),
  ];
}

/** Move some sides of a box: `sides` are factors of dx and dy for x1, y1, x2 and y2. */
export function stretched(box, sides, dx, dy, size) {
  const [x1, y1, x2, y2] = box.map((value, at) => value + sides[at] * (at % 2 ? dy : dx));
  return [
    sides[0] ? clamp(x1, 0, x2 - MIN_SIDE) : x1,
    sides[1] ? clamp(y1, 0, y2 - MIN_SIDE) : y1,
    sides[2] ? clamp(x2, x1 + MIN_SIDE, size.width) : x2,
    sides[3] ? clamp(y2, y1 + MIN_SIDE, size.height) : y2,
  ];
}

/** Intersection over union. */
export function overlap(one, other) {
  const both = area([
    Math.max(one[0], other[0]),
    Math.max(one[1], other[1]),
    Math.min(one[2], other[2]),
    Math.min(one[3], other[3]),
  ]);
  return both === 0 ? 0 : both / (area(one) + area(other) - both);
}

export const isLargeEnough = (box) => width(box) >= MIN_SIDE && height(box) >= MIN_SIDE;

export const rounded = (box) => box.map((value) => Math.round(value * 10) / 10);

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
