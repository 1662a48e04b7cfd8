// Live video: play, pause, correct the frame, continue.

import * as actions from "../actions.js";
import { clock, count, number } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Icon } from "../icons.js";
import { useStore } from "../store.js";

const STATES = { playing: "Live", paused: "Paused", ended: "Ended", waiting: "Waiting for the first frame", failed: "Failed" };

export function Video() {
  const { video, isOnline } = useStore((state) => ({ video: state.server?.video, isOnline: state.connection === "online" }));
  if (!video) return html`<p class="placeholder">No video. Start whet serve with a video file or camera.</p>`;
  const isPlaying = video.state === "playing";
  return html`
    <section class="video" aria-label="Video">
      ${video.error
        ? html`<div class="stream"><p class="placeholder is-bad" role="alert">${video.source} stopped: ${video.error}</p></div>`
        : html`<${Stream} isOnline=${isOnline} isPlaying=${isPlaying} name=${video.source} />`}
      <div class="action-bar" role="toolbar" aria-label="Video">
        <button class="primary labelled" title="Play or pause (P)" onClick=${() => actions.controlVideo(isPlaying ? "pause" : "play")}>
          <${Icon} name=${isPlaying ? "pause" : "play"} />${isPlaying ? "Pause and correct" : "Play"}
        </button>
        ${video.n_frames ? html`<${Seek} video=${video} />` : html`<span class="grow"></span>`}
        <dl class="video-facts">
          <div><dt>State</dt><dd class=${video.error ? "is-bad" : ""}>${STATES[video.state] ?? video.state}</dd></div>
          <div><dt>Frame</dt><dd>${count(video.frame)}</dd></div>
          <div><dt>Frames/s</dt><dd>${number(video.rate, 1)}</dd></div>
          ${video.detected != null && html`<div><dt>Detected</dt><dd>${video.detected}</dd></div>`}
          ${video.learned != null && html`<div><dt>Learned</dt><dd>${video.learned}</dd></div>`}
        </dl>
      </div>
    </section>
  `;
}

/** The image stream; a page in the background requests none. */
function Stream({ isOnline, isPlaying, name }) {
  const [turn, setTurn] = useState(0);
  const [isHidden, setHidden] = useState(document.hidden);
  useEffect(() => {
    const change = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", change);
    return () => document.removeEventListener("visibilitychange", change);
  }, []);
  useEffect(() => setTurn((n) => n + 1), [isPlaying, isOnline]);
  if (isHidden || !isOnline) return html`<div class="stream"></div>`;
  const again = () => setTimeout(() => setTurn((n) => n + 1), 2000);
  return html`<div class="stream"><img key=${turn} src=${`/api/video/stream.mjpg?${turn}`} alt=${`${name} with detections`} onError=${again} /></div>`;
}

const lengthOf = ({ seconds, frame, n_frames }) => (seconds && frame ? (seconds / frame) * n_frames : null);

function Seek({ video }) {
  const [moving, setMoving] = useState(null);
  const seek = (event) => {
    setMoving(null);
    actions.controlVideo("seek", { frame: Number(event.target.value) });
  };
  return html`
    <label class="seek grow">
      <span>${clock(video.seconds)}</span>
      <input type="range" aria-label="Position" min="0" max=${video.n_frames - 1} value=${moving ?? video.frame} onInput=${(event) => setMoving(Number(event.target.value))} onChange=${seek} />
      <span>${clock(lengthOf(video))}</span>
    </label>
  `;
}
