// Two small charts in SVG. Colours come from the style sheet, so that they follow the theme.

import { html } from "../html.js";

const WIDTH = 300;

/** Scores of both classes, and of what nobody has judged, as counts per bin; the minimum score is a line. */
export function Histogram({ histogram, minScore, range, points }) {
  const height = 96;
  const { edges, objects, others, unjudged } = histogram;
  const most = Math.max(1, ...objects, ...others, ...unjudged);
  const [low, high] = range;
  const x = (score) => ((score - low) / (high - low || 1)) * WIDTH;
  // Square roots: few objects stay visible beside many other windows.
  const y = (count) => height - Math.sqrt(count / most) * (height - 14);
  const steps = (counts) => {
    const tops = counts.map((count, index) => `L${x(edges[index])} ${y(count)}H${x(edges[index + 1])}`);
    return `M${x(edges[0])} ${height}${tops.join("")}V${height}Z`;
  };
  return html`
    <svg class="chart histogram" viewBox=${`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" role="img" aria-label="Histogram of the scores of objects and others">
      <path class="unjudged" d=${steps(unjudged)} />
      <path class="others" d=${steps(others)} />
      <path class="objects" d=${steps(objects)} />
      <rect class="below" x="0" y="0" width=${Math.max(0, x(minScore))} height=${height} />
      ${points.map((point) => html`<line class="point" x1=${x(point.min_score)} x2=${x(point.min_score)} y1=${height - 6} y2=${height}><title>${point.names.join(", ")}</title></line>`)}
      <line class="now" x1=${x(minScore)} x2=${x(minScore)} y1="0" y2=${height} />
      <line class="axis" x1="0" x2=${WIDTH} y1=${height} y2=${height} />
    </svg>
  `;
}

/** Precision over recall; the dot is the minimum score. */
export function Curve({ points, now }) {
  const height = 200;
  const left = 34;
  const bottom = 24;
  const x = (recall) => left + recall * (WIDTH - left - 12);
  const y = (precision) => 8 + (1 - precision) * (height - bottom - 8);
  const line = [...points].sort((one, other) => one.recall - other.recall || other.precision - one.precision);
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return html`
    <svg class="chart curve" viewBox=${`0 0 ${WIDTH} ${height}`} role="img" aria-label=${`Precision over recall${now ? `; now ${Math.round(100 * now.precision)} % and ${Math.round(100 * now.recall)} %` : ""}`}>
      ${ticks.map((tick) => html`
        <line class="grid" x1=${left} x2=${WIDTH - 12} y1=${y(tick)} y2=${y(tick)} />
        <line class="grid" x1=${x(tick)} x2=${x(tick)} y1="8" y2=${height - bottom} />
        <text x=${left - 6} y=${y(tick) + 3.5} text-anchor="end">${100 * tick}</text>
        <text x=${x(tick)} y=${height - bottom + 14} text-anchor="middle">${100 * tick}</text>
      `)}
      <path class="line" d=${`M${line.map((point) => `${x(point.recall)} ${y(point.precision)}`).join("L")}`} />
      ${now && html`<circle class="now" cx=${x(now.recall)} cy=${y(now.precision)} r="4.5" />`}
    </svg>
  `;
}
