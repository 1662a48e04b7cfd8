// Who said something: pages have random ids, programs and files have names.

import { CLIENT } from "./api.js";

const PAGE_ID = /^[0-9a-f]{32}$/;

/** "you", "another page", or the name of a program or file. */
export function authorOf(author) {
  if (author === CLIENT) return "you";
  return PAGE_ID.test(author) ? "another page" : author;
}
