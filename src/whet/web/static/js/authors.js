// Who said something: people have ids and perhaps names, programs and files have names.

import { PERSON } from "./api.js";

const PERSON_ID = /^([0-9a-f]{32})(?::(.*))?$/;

/** "you", the name of another person, or that of a program or file. */
export function authorOf(author) {
  const [, id, name] = PERSON_ID.exec(author) ?? [];
  if (id === PERSON) return "you";
  return id ? name || "another person" : author;
}
