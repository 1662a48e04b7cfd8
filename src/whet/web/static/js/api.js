// Requests to the server. Every failure is one of two errors: the server refused, or it could not be reached.

/** The id of the person who uses this browser, the author of labels, and that of this page, kept over reloads. */
export const PERSON = keptId(() => localStorage, "whet.person", 32);
export const PAGE = keptId(() => sessionStorage, "whet.page", 8);
const NAME = "whet.name";

function keptId(storage, key, length) {
  try {
    const id = storage().getItem(key) ?? randomId().slice(0, length);
    storage().setItem(key, id);
    return id;
  } catch {
    return randomId().slice(0, length); // private windows may refuse storage
  }
}

/** The name that the person gave, or none. */
export function nameOfPerson() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

export function setNameOfPerson(name) {
  try {
    localStorage.setItem(NAME, name.trim());
  } catch {
    // a private window forgets it
  }
}

/** Who sends a request: the person's id, a name if there is one, and the page. */
export function client() {
  const name = nameOfPerson();
  return `${PERSON}${name && `:${encodeURIComponent(name)}`}/${PAGE}`;
}

/** Whether a request of this page caused an event. */
export const isOwn = (client) => client?.endsWith(`/${PAGE}`) ?? false;

/** 16 random bytes as hex; `crypto.randomUUID` would need HTTPS or localhost. */
export function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The server refused a request and said why. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The server did not answer: it stopped, or the connection failed. The request may be sent again. */
export class Unreachable extends Error {}

// Requests have no time limit: a panel over many images may take long. They end with the connection (`events.js`).
let connection = new AbortController();
let onUnreachable = () => {};

/** Set what happens, beside the error, whenever the server does not answer a request. */
export const whenUnreachable = (listener) => (onUnreachable = listener);

/** Give up all requests under way: they were sent over a connection that is lost. */
export function abandon() {
  connection.abort();
  connection = new AbortController();
}

function unreachable(message, cause) {
  onUnreachable();
  return new Unreachable(message, { cause });
}

/** Send a request; returns the JSON of the answer. A body is sent as JSON. */
export async function request(method, path, body, { signal } = {}) {
  const lost = connection.signal;
  const options = { method, headers: { "X-Whet-Client": client() }, signal: signal ? AbortSignal.any([signal, lost]) : lost };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer, content;
  try {
    answer = await fetch(path, options);
    content = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (lost.aborted) throw new Unreachable("The connection was lost.", { cause: error }); // known already
    throw unreachable("The server does not answer.", error);
  }
  if (answer.status === 502 || answer.status === 503 || answer.status === 504) {
    throw unreachable(describe(content) || "The server is not ready.");
  }
  if (!answer.ok) throw new Refused(answer.status, describe(content) || `${answer.status} ${answer.statusText}`);
  return content ? JSON.parse(content) : null;
}

/** The sentence of an error message of the server. */
export function describe(content) {
  try {
    const { error, detail } = JSON.parse(content);
    if (error) return typeof error === "string" ? error : sentence([error.what, error.expected, error.do]);
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((item) => item.msg).join("; ");
  } catch {
    return content.length < 300 ? content : "";
  }
  return "";
}

const sentence = (parts) => parts.filter(Boolean).map((part) => part.replace(/[.;]\s*$/, "")).join("; ") + ".";

export const get = (path, options) => request("GET", path, undefined, options);

/** Wrap a loading function so that a newer call cancels the older one; a cancelled call returns undefined. */
export function newestOnly(load) {
  let running = null;
  return async (...values) => {
    running?.abort();
    const mine = (running = new AbortController());
    try {
      const result = await load(mine.signal, ...values);
      return mine.signal.aborted ? undefined : result;
    } catch (error) {
      if (mine.signal.aborted) return undefined;
      throw error;
    }
  };
}
