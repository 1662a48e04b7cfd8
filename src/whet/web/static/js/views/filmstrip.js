// The images in a row, by the queue or by name. Near-duplicates are folded into one stack.

import * as actions from "../actions.js";
import { plural } from "../format.js";
import { classes, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";
import * as session from "../session.js";
import { useStore } from "../store.js";

const AHEAD = 6; // tiles that are rendered beyond the visible ones

export function Filmstrip() {
  const { rows, order, expanded, marked, current } = useStore((state) => ({
    rows: state.rows,
    order: state.order,
    expanded: state.expanded,
    marked: state.marked,
    current: state.opening ?? state.image?.id,
  }));
  const tiles = useMemo(() => foldGroups(rows, order, expanded, current), [rows, order, expanded, current]);
  return html`
    <nav class="filmstrip" aria-label="Images">
      <div class="filmstrip-head">
        <div class="segments" role="group" aria-label="Order of the images">
          <button class=${classes(order === "queue" && "is-on")} aria-pressed=${String(order === "queue")} title="What matters most comes first" onClick=${() => actions.setOrder("queue")}>Queue</button>
          <button class=${classes(order === "name" && "is-on")} aria-pressed=${String(order === "name")} onClick=${() => actions.setOrder("name")}>Name</button>
        </div>
        <${Progress} rows=${rows} />
      </div>
      ${marked.size > 0 && html`<${Batch} marked=${marked} />`}
      <${Tiles} tiles=${tiles} current=${current} marked=${marked} />
    </nav>
  `;
}

/** Fold the images of a group behind its first one; a group that is open or holds the open image is unfolded. */
function foldGroups(rows, order, expanded, current) {
  if (order !== "queue") return rows.map((row) => ({ row, rest: [] }));
  const members = new Map();
  for (const row of rows) {
    if (row.group == null) continue;
    if (!members.has(row.group)) members.set(row.group, []);
    members.get(row.group).push(row);
  }
  const tiles = [];
  const done = new Set();
  for (const row of rows) {
    const group = members.get(row.group) ?? [row];
    if (group.length === 1) tiles.push({ row, rest: [] });
    else if (!done.has(row.group)) {
      done.add(row.group);
      const isOpen = expanded.has(row.group);
      const shown = isOpen ? group : [group.find((member) => member.id === current) ?? row];
      const rest = group.filter((member) => member !== shown[0]);
      tiles.push({ row: shown[0], rest, isOpen });
      tiles.push(...shown.slice(1).map((member) => ({ row: member, rest: [], isMember: true })));
    }
  }
  return tiles;
}

function Progress({ rows: every }) {
  const rows = every.filter((row) => !row.is_missing);
  const done = rows.filter((row) => row.is_reviewed).length;
  return html`
    <p class="progress-text" title="Reviewed images">
      <span class="meter"><span style=${{ width: `${rows.length ? (100 * done) / rows.length : 0}%` }}></span></span>
      ${done} / ${rows.length}
    </p>
  `;
}

function Batch({ marked }) {
  return html`
    <div class="batch">
      <button class="primary" onClick=${() => actions.finishImages([...marked], true)}>Confirm ${plural(marked.size, "image")}</button>
      <button title="All boxes of these images that nobody judged are wrong" onClick=${() => actions.finishImages([...marked], false)}>All wrong</button>
    </div>
  `;
}

/** Only tiles in sight are rendered: a set may have thousands of images. */
function Tiles({ tiles, current, marked }) {
  const list = useRef();
  const [range, setRange] = useState({ first: 0, last: 30, step: 100, isRow: false });

  const measure = () => {
    const { clientWidth, clientHeight, scrollTop, scrollLeft } = list.current;
    const style = getComputedStyle(list.current);
    const isRow = style.getPropertyValue("--direction").trim() === "row";
    const step = parseFloat(style.getPropertyValue("--tile"));
    const [start, length] = isRow ? [scrollLeft, clientWidth] : [scrollTop, clientHeight];
    const first = Math.max(0, Math.floor(start / step) - AHEAD);
    const last = Math.ceil((start + length) / step) + AHEAD;
    setRange((former) =>
      former.first === first && former.last === last && former.step === step && former.isRow === isRow
        ? former
        : { first, last, step, isRow },
    );
  };

  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(list.current);
    return () => observer.disconnect();
  }, []);

  const at = tiles.findIndex((tile) => tile.row.id === current);
  useEffect(() => {
    if (at < 0) return;
    const { clientWidth, clientHeight, scrollTop, scrollLeft } = list.current;
    const [start, length] = range.isRow ? [scrollLeft, clientWidth] : [scrollTop, clientHeight];
    const [begin, end] = [at * range.step, (at + 1) * range.step];
    const to = begin < start ? begin : end > start + length ? end - length : null;
    if (to !== null) list.current.scrollTo({ [range.isRow ? "left" : "top"]: to });
  }, [current, range.step, range.isRow]);

  const { first, last, step, isRow } = range;
  const space = (n) => html`<li class="space" aria-hidden="true" style=${{ [isRow ? "width" : "height"]: `${Math.max(0, n) * step}px` }}></li>`;
  return html`
    <ol class="tiles" ref=${list} onScroll=${measure}>
      ${space(Math.min(first, tiles.length))}
      ${tiles.slice(first, last).map((tile) => html`
        <${Tile} key=${tile.row.id} tile=${tile} isCurrent=${tile.row.id === current} isMarked=${marked.has(tile.row.id)} />
      `)}
      ${space(tiles.length - last)}
    </ol>
  `;
}

/** The place of an image whose file is gone. */
function MissingTile({ row }) {
  return html`
    <li class="tile is-missing">
      <button class="tile-image" disabled aria-label=${`${row.name}: file not found`} title=${`${row.name}: the file is gone or cannot be read`}>
        <${Icon} name="warning" /><span>Missing</span><span class="name">${row.name}</span>
      </button>
    </li>
  `;
}

function Tile({ tile, isCurrent, isMarked }) {
  const { row, rest, isOpen, isMember } = tile;
  if (row.is_missing) return html`<${MissingTile} row=${row} />`;
  const open = (event) => {
    if (event.shiftKey || event.ctrlKey || event.metaKey) actions.toggleMarked(row.id);
    else session.openImage(row.id);
  };
  return html`
    <li class=${classes("tile", isCurrent && "is-current", isMarked && "is-marked", isMember && "is-member", rest.length > 0 && "is-stack")}>
      <button class="tile-image" onClick=${open} aria-current=${isCurrent ? "true" : undefined} aria-label=${describeRow(row)} title=${row.name}>
        <img src=${`/api/images/${row.id}/thumbnail`} alt="" loading="lazy" decoding="async" />
        <span class="badges">
          ${row.is_locked && html`<span class="badge is-gold" title="Gold set"><${Icon} name="lock" /></span>`}
          ${row.n_disputed > 0 && html`<span class="badge is-bad" title="Dispute"><${Icon} name="warning" /></span>`}
          ${row.is_reviewed && html`<span class="badge is-good" title="Reviewed"><${Icon} name="right" /></span>`}
        </span>
        <span class="amount">${row.n_detections ?? "…"}</span>
      </button>
      ${rest.length > 0 && html`
        <span class="stack">
          <button onClick=${() => actions.toggleGroup(row.group)} aria-expanded=${String(Boolean(isOpen))} title=${`${plural(rest.length, "near-duplicate")}`}>
            <${Icon} name="stack" />${isOpen ? "Fold" : `+${rest.length}`}
          </button>
          <button onClick=${() => actions.finishImages([row.id, ...rest.map((other) => other.id)], true)} title=${`Confirm all ${rest.length + 1}`} aria-label=${`Confirm all ${rest.length + 1} images of this group`}>
            <${Icon} name="right" />
          </button>
        </span>
      `}
    </li>
  `;
}

function describeRow(row) {
  const facts = [row.n_detections == null ? "not scanned yet" : plural(row.n_detections, "detection")];
  if (row.is_reviewed) facts.push("reviewed");
  if (row.is_locked) facts.push("in the gold set");
  if (row.n_disputed) facts.push("with a dispute");
  return `${row.name}: ${facts.join(", ")}`;
}
