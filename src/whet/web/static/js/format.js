// Numbers, times and amounts as text.

export const NO_VALUE = "–";

export function percent(value, digits = 0) {
  return value == null ? NO_VALUE : `${(100 * value).toFixed(digits)} %`;
}

/** A probability: never 100 % for less than certain. */
export function probability(value) {
  return `${value < 1 ? Math.min(99, Math.round(100 * value)) : 100} %`;
}

export function number(value, digits = 1) {
  return value == null ? NO_VALUE : value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

export const count = (value) => (value == null ? NO_VALUE : value.toLocaleString("en"));

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A change with its sign, such as +3 or −0.5. */
export function signed(value, digits = 0) {
  if (value == null) return NO_VALUE;
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return "0";
  return (value > 0 ? "+" : "−") + text;
}

/** How long ago: "now", "4 min", "3 h", or the date. `time` is in seconds since 1970, or an ISO date. */
export function ago(time, now = Date.now()) {
  const date = new Date(typeof time === "number" ? 1000 * time : time);
  const seconds = (now - date) / 1000;
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 45) return "now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  return date.toLocaleDateString("en", { day: "numeric", month: "short" });
}

/** Time left, rounded as one would say it. */
export function timeLeft(seconds) {
  if (seconds == null) return "estimating the time left";
  if (seconds < 10) return "a few seconds left";
  if (seconds < 90) return `${Math.round(seconds / 5) * 5} s left`;
  return `${Math.round(seconds / 60)} min left`;
}

/** Position in a video, such as 1:07. */
export function clock(seconds) {
  if (seconds == null) return NO_VALUE;
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
