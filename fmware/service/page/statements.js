// The table of statements: what they found, and what that cost.

import { get } from "./api.js";
import { byId, count, h, rate, say, seconds } from "./dom.js";

const PAGE = 200;
const SORTS = {
  name: (a, b) => a.name.localeCompare(b.name),
  matches: (a, b) => b.matches - a.matches,
  rate: (a, b) => b.rate - a.rate,
  seconds: (a, b) => b.seconds - a.seconds,
  each: (a, b) => (b.each ?? -1) - (a.each ?? -1),
};

/** What a statement says, as one line. */
export function textOf(statement) {
  return statement.expression ?? `${statement.filter}  →  ${statement.match}`;
}

export class Statements {
  constructor(tryOut) {
    this.known = new Map();
    this.figures = new Map();
    this.before = null;
    this.sort = "matches";
    this.next = null;
    this.rows = new Map();
    this.needless = new Map();
    this.tryOut = tryOut;
    byId("search").addEventListener("input", () => this.draw());
    byId("rows-more").firstChild.addEventListener("click", () => this.load(this.next));
    for (const button of document.querySelectorAll("[data-sort]"))
      button.addEventListener("click", () => this.sorted(button.dataset.sort));
    this.sorted(this.sort);
  }

  async load(after = "") {
    const query = new URLSearchParams({ limit: PAGE, after });
    const answer = await get(`v1/statements?${query}`);
    if (!after) this.known.clear();
    for (const each of answer.statements) this.known.set(each.name, each);
    this.next = answer.next ?? null;
    byId("rows-more").hidden = !this.next;
    const held = this.known.size < answer.count ? `, ${count(this.known.size)} shown` : "";
    say(byId("statements-count"), `${count(answer.count)} registered${held}`);
    this.draw();
    if (!after) this.loadRedundant();
    return [...this.known.values()];
  }

  /** Which statements are not needed; the table stands without it. */
  async loadRedundant() {
    try {
      const answer = await get("v1/redundant");
      this.needless = new Map(answer.redundant.map((each) => [each.name, each]));
    } catch {
      this.needless.clear();
    }
    this.draw();
  }

  /** Take the figures of /v1/stats; the rate is what came since the last time. */
  show(stats) {
    const now = Date.now();
    const passed = this.before ? (now - this.before) / 1000 : 0;
    for (const each of stats.statements) {
      const old = this.figures.get(each.name)?.matches ?? each.matches;
      const spent = each.costs?.seconds ?? 0;
      this.figures.set(each.name, {
        matches: each.matches,
        rate: passed ? Math.max(each.matches - old, 0) / passed : 0,
        seconds: spent,
        each: spent && each.matches ? spent / each.matches : null,
        choice: each.costs?.choice ?? null,
      });
    }
    this.before = now;
    this.draw();
  }

  sorted(by) {
    this.sort = by;
    for (const button of document.querySelectorAll("[data-sort]")) {
      const order = button.dataset.sort === "name" ? "ascending" : "descending";
      const chosen = button.dataset.sort === by;
      button.parentElement.setAttribute("aria-sort", chosen ? order : "none");
    }
    this.draw();
  }

  draw() {
    const wanted = byId("search").value.trim().toLowerCase();
    const none = { matches: 0, rate: 0, seconds: 0, each: null, choice: null };
    const found = [...this.known.values()]
      .filter((each) => `${each.name} ${textOf(each)}`.toLowerCase().includes(wanted))
      .map((each) => ({ ...none, ...this.figures.get(each.name), name: each.name, of: each }))
      .sort((a, b) => SORTS[this.sort](a, b) || SORTS.name(a, b));
    const most = Math.max(1, ...found.map((each) => each.matches));
    const rows = found.map((each) => this.row(each, most));
    const body = byId("rows");
    // Rows stay where they are unless the order changed: a button that has the focus keeps it.
    if (rows.length !== body.children.length || rows.some((row, at) => row !== body.children[at]))
      reordered(body, rows);
    for (const name of this.rows.keys()) if (!this.known.has(name)) this.rows.delete(name);
    const empty = byId("rows-empty");
    empty.hidden = found.length > 0;
    say(empty, wanted ? `No statement has “${wanted}” in it.` : "No statements yet: POST one to /v1/statements.");
  }

  row(figures, most) {
    let made = this.rows.get(figures.name);
    if (!made || made.of !== textOf(figures.of)) {
      made = this.makeRow(figures.of);
      this.rows.set(figures.name, made);
    }
    say(made.matches, count(figures.matches));
    made.bar.style.width = `${(100 * figures.matches) / most}%`;
    say(made.rate, figures.rate ? `${rate(figures.rate)}/s` : "–");
    say(made.seconds, figures.seconds ? seconds(figures.seconds) : "–");
    say(made.each, figures.each ? seconds(figures.each) : "–");
    const needless = this.needless.get(figures.name);
    say(made.needless, needless ? (needless.by ? `${needless.reason}: ${needless.by}` : "can never match") : "");
    made.needless.title = needless?.why ?? "";
    const plain = !textOf(figures.of).includes("local:") && !figures.of.match;
    say(made.choice, figures.choice ?? (plain ? "filter only" : "–"));
    made.choice.classList.toggle("chip", Boolean(figures.choice));
    return made.row;
  }

  makeRow(statement) {
    const made = { of: textOf(statement) };
    for (const key of ["matches", "rate", "seconds", "each", "choice"]) made[key] = h("span");
    made.needless = h("span", { class: "aside" });
    made.bar = h("i");
    const tried = () => this.tryOut(statement.name);
    made.row = h(
      "tr",
      {},
      h("th", { scope: "row" }, h("span", { class: "name" }, statement.name), h("code", {}, made.of), made.needless),
      h("td", { class: "number", "data-label": "Matches" }, made.matches, h("span", { class: "bar", "aria-hidden": "true" }, made.bar)),
      h("td", { class: "number", "data-label": "Now" }, made.rate),
      h("td", { class: "number", "data-label": "Time spent" }, made.seconds),
      h("td", { class: "number", "data-label": "A match" }, made.each),
      h("td", { "data-label": "Joined by" }, made.choice),
      h("td", { class: "act" }, h("button", { type: "button", class: "quiet", "aria-label": `Try ${statement.name}`, onclick: tried }, "Try")),
    );
    return made;
  }
}

function reordered(body, rows) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  body.replaceChildren(...rows);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
}
