// The history as a tree: every state can be opened again, byte for byte.

import * as actions from "../actions.js";
import { authorOf } from "../authors.js";
import { ago, plural } from "../format.js";
import { classes, html, useMemo, useState } from "../html.js";
import { Icon } from "../icons.js";
import { set, useStore } from "../store.js";

const ROW = 44; // CSS pixels, as in panel.css
const LANE = 14;
const SHOWN = 150; // rows at first

export function History() {
  const history = useStore((state) => state.history);
  const [limit, setLimit] = useState(SHOWN);
  const tree = useMemo(() => (history ? layOut(history) : null), [history]);
  if (!tree) return html`<p class="empty">Loading…</p>`;
  const rows = tree.rows.slice(0, limit);
  return html`
    <div class="history-head">
      <button class="labelled" onClick=${() => set({ dialog: "branch" })}><${Icon} name="branch" />New branch</button>
      <span class="faint">${plural(history.nodes.length, "state")}</span>
    </div>
    <ol class="history" style=${{ "--lanes": `${tree.n_lanes * LANE + 12}px` }}>
      <${Lines} rows=${rows} nLanes=${tree.n_lanes} />
      ${rows.map((row) => html`<${State} key=${row.node.id} row=${row} history=${history} />`)}
    </ol>
    ${tree.rows.length > limit && html`<button class="quiet" onClick=${() => setLimit(limit + SHOWN)}>Show older states</button>`}
  `;
}

/**
 * Place the states, newest first, each in a lane: a first child continues the lane of its parent, others open a new one.
 * The line from the root to the current state has lane 0.
 */
function layOut({ nodes, branches, current }) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const order = [...nodes].sort((one, other) => timeOf(other) - timeOf(one) || nodes.indexOf(other) - nodes.indexOf(one));
  const main = new Set();
  for (let node = byId.get(current); node; node = byId.get(node.parent)) main.add(node.id);
  const children = new Map();
  for (const node of order) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  const lanes = new Map();
  let n_lanes = 1;
  const place = (node, lane) => {
    lanes.set(node.id, lane);
    const next = children.get(node.id) ?? [];
    const heir = lane === 0 ? next.find((child) => main.has(child.id)) : next[next.length - 1];
    for (const child of next) if (child !== heir) queue.push([child, null]);
    if (heir) queue.push([heir, lane]);
  };
  const queue = nodes.filter((node) => !byId.has(node.parent)).map((node) => [node, 0]);
  while (queue.length) {
    const [node, lane] = queue.pop();
    place(node, lane ?? n_lanes++);
  }
  const names = new Map();
  for (const [name, id] of Object.entries(branches ?? {})) names.set(id, [...(names.get(id) ?? []), name]);
  const rows = order.map((node, index) => ({ node, index, lane: lanes.get(node.id) ?? 0, isMain: main.has(node.id), names: names.get(node.id) ?? [] }));
  return { rows, n_lanes: Math.min(n_lanes, 8) };
}

const timeOf = (node) => (typeof node.time === "number" ? node.time : Date.parse(node.time) / 1000);

function Lines({ rows, nLanes }) {
  const byId = new Map(rows.map((row) => [row.node.id, row]));
  const x = (row) => 8 + Math.min(row.lane, nLanes - 1) * LANE;
  const y = (row) => row.index * ROW + ROW / 2;
  const last = rows.length * ROW;
  return html`
    <svg class="history-lines" width=${nLanes * LANE + 12} height=${last} aria-hidden="true">
      ${rows.map((row) => {
        const parent = byId.get(row.node.parent);
        if (!parent) return row.node.parent == null ? null : html`<path class=${classes(row.isMain && "is-main")} d=${`M${x(row)} ${y(row)}V${last}`} />`;
        const bend = x(row) === x(parent) ? `V${y(parent)}` : `V${y(parent) - 16}C${x(row)} ${y(parent)} ${x(row)} ${y(parent)} ${x(parent)} ${y(parent)}`;
        return html`<path class=${classes(row.isMain && parent.isMain && "is-main")} d=${`M${x(row)} ${y(row)}${bend}`} />`;
      })}
      ${rows.map((row) => html`<circle class=${classes(row.isMain && "is-main")} cx=${x(row)} cy=${y(row)} r="4" />`)}
    </svg>
  `;
}

function State({ row, history }) {
  const { node, names } = row;
  const isCurrent = node.id === history.current;
  return html`
    <li class=${classes("state", isCurrent && "is-current", !row.isMain && "is-aside")}>
      <button class="state-text" aria-current=${isCurrent ? "true" : undefined} title=${isCurrent ? "Current state" : "Open this state"} onClick=${() => isCurrent || actions.checkout({ node: node.id })}>
        <span class="name">${node.parent === null ? "As trained" : node.text}</span>
        <span class="faint">${[node.time > 0 && ago(node.time), plural(node.n_corrections, "correction"), authorOf(node.author)].filter(Boolean).join(" · ")}</span>
      </button>
      ${names.map((name) => html`
        <span key=${name} class=${classes("chip", name === history.branch && "is-on")}>
          <button title=${`Switch to ${name}`} onClick=${() => actions.checkout({ branch: name })}>${name}</button>
          ${name !== history.branch && html`<button class="remove" aria-label=${`Delete branch ${name}`} title="Delete this name; the states stay" onClick=${() => actions.deleteBranch(name)}>×</button>`}
        </span>
      `)}
    </li>
  `;
}
