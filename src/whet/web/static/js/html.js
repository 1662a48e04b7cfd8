// Preact with htm templates: the one place that knows the vendored files.

import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { render, Fragment };
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback } from "../vendor/hooks.js";
export const html = htm.bind(h);

/** Join class names, leaving out those that are false. */
export const classes = (...names) => names.filter(Boolean).join(" ");
