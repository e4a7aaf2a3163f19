// A statement on a message: what it finds, and why, or where it stopped.

import { post } from "./api.js";
import { byId, count, cut, h, say, seconds } from "./dom.js";
import { textOf } from "./statements.js";

const ALL = ["message", "local", "value"];
const SELECTS_NOTHING = "FMS009";
const SHOWN = 20;

export class Try {
  constructor() {
    this.known = new Map();
    byId("try-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    byId("try-form").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.run();
    });
    byId("try-known").addEventListener("change", (event) => this.choose(event.target.value));
  }

  /** The statements that can be chosen. */
  offer(statements) {
    this.known = new Map(statements.map((each) => [each.name, each]));
    const select = byId("try-known");
    const chosen = select.value;
    const names = [...this.known.keys()].sort((a, b) => a.localeCompare(b));
    const first = h("option", { value: "" }, "Write one below");
    select.replaceChildren(first, ...names.map((name) => h("option", { value: name }, name)));
    select.value = this.known.has(chosen) ? chosen : "";
  }

  choose(name) {
    byId("try-known").value = name;
    const statement = this.known.get(name);
    if (!statement) return;
    byId("try-expression").value = textOf(statement);
    const spaces = Object.entries(statement.namespaces ?? {});
    byId("try-prefixes").value = spaces.map(([prefix, uri]) => `${prefix}=${uri}`).join(" ");
  }

  async run() {
    const asked = ++this.asked || (this.asked = 1);
    this.complain("expression", "");
    this.complain("message", "");
    const box = byId("try-result");
    box.setAttribute("aria-busy", "true");
    try {
      const answer = await this.ask();
      if (asked === this.asked) this.show(answer);
    } catch (error) {
      if (asked === this.asked) this.refuse(error);
    }
    box.removeAttribute("aria-busy");
  }

  /** Ask for values, too; a statement that selects nothing in the corpus has none. */
  async ask() {
    const text = byId("try-expression").value.trim();
    const message = byId("try-message").value;
    const known = this.known.get(byId("try-known").value);
    const same = known && textOf(known).trim() === text;
    const keys = ["expression", "filter", "match", "anchor", "axis", "namespaces"];
    const parts = keys.filter((key) => known?.[key] !== undefined);
    const own = { expression: text, namespaces: declared(byId("try-prefixes").value) };
    const statement = same ? Object.fromEntries(parts.map((key) => [key, known[key]])) : own;
    try {
      return await post("v1/try", { statement: { ...statement, returns: ALL }, message });
    } catch (error) {
      if (error.about?.code !== SELECTS_NOTHING) throw error;
      return post("v1/try", { statement: { ...statement, returns: ["message"] }, message });
    }
  }

  /** The same statement with the namespaces of the message, to be tried at once. */
  other({ expression, namespaces }) {
    const prefixes = Object.entries(namespaces).map(([prefix, uri]) => `${prefix}=${uri}`);
    const use = () => {
      this.choose("");
      byId("try-expression").value = expression;
      byId("try-prefixes").value = prefixes.join(" ");
      this.run();
    };
    const text = ["With the namespaces of the message: ", h("code", {}, expression), " "];
    const button = h("button", { type: "button", class: "quiet", onclick: use }, "Try that");
    return h("div", { class: "hint" }, h("p", {}, text), button);
  }

  refuse(error) {
    const about = error.about ?? {};
    const what = `${about.detail ?? error.message}${about.hint ? `. ${about.hint}` : ""}`;
    const inMessage = (about.where ?? "").startsWith("message");
    this.complain(inMessage ? "message" : "expression", inMessage ? `${about.where}: ${what}` : what, about);
    const box = byId("try-result");
    const pointed = about.expression ? pointer(about.expression, about.at ?? 0) : null;
    box.replaceChildren(
      h("h2", { id: "result-title" }, "Not understood"),
      h("p", { class: "verdict bad" }, inMessage ? "The message is not XML." : "The statement was refused."),
      pointed ?? h("p", {}, what),
    );
  }

  complain(field, what) {
    const line = byId(`try-${field}-error`);
    line.hidden = !what;
    say(line, what);
    byId(`try-${field}`).toggleAttribute("aria-invalid", Boolean(what));
    if (what) byId(`try-${field}`).setAttribute("aria-invalid", "true");
  }

  show(answer) {
    const { explanation, matches, statement } = answer;
    const found = matches.length;
    const parts = [h("h2", { id: "result-title" }, "Explanation"), verdict(answer)];
    parts.push(...(answer.errors ?? []).map((each) => h("p", { class: "bad" }, each)));
    parts.push(trace(explanation.trace));
    for (const each of statement.crossings) parts.push(crossing(each, answer));
    for (const each of statement.warnings ?? []) parts.push(h("p", { class: "hint" }, each));
    if (explanation.ignoring_namespaces) parts.push(this.other(explanation.ignoring_namespaces));
    if (found) {
      parts.push(h("h3", {}, found === 1 ? "The match" : `${count(found)} matches`));
      parts.push(h("ol", { class: "found" }, matches.slice(0, SHOWN).map(foundItem)));
      if (found > SHOWN) parts.push(h("p", { class: "help" }, `and ${count(found - SHOWN)} more`));
    }
    byId("try-result").replaceChildren(...parts.filter(Boolean));
  }
}

/** Prefixes as they are written, p=urn:x, with blanks between them. */
function declared(text) {
  const pairs = text.split(/\s+/).filter(Boolean).map((pair) => {
    const at = pair.indexOf("=");
    return at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + 1)];
  });
  return Object.fromEntries(pairs);
}

function verdict({ matches, explanation, unmatched, seconds: spent }) {
  const took = Object.values(spent).reduce((sum, each) => sum + each, 0);
  const time = h("span", { class: "help" }, ` in ${seconds(took)}`);
  if (matches.length) {
    const text = matches.length === 1 ? "Matches once" : `Matches ${count(matches.length)} times`;
    return h("p", { class: "verdict good" }, text, time);
  }
  if (!explanation.matched) return h("p", { class: "verdict bad" }, "Does not match", time);
  const why = unmatched
    ? "The message passes, but the corpus has no node with its key"
    : "The message passes, but nothing in the corpus fits";
  return h("p", { class: "verdict bad" }, why, time);
}

/** The steps of a path: how many nodes came, how many were left. */
function trace({ steps, stop }) {
  const items = steps.map((step, at) => stepItem(step, stop && stop.step === at + 1));
  return h("ol", { class: "steps" }, items, stop ? h("li", { class: "stop" }, stopNote(stop)) : null);
}

function stepItem(step, stopped) {
  const samples = step.samples.slice(0, 3).map((each) => each.path).join("  ");
  return h(
    "li",
    { class: stopped ? "no" : "yes" },
    h("p", {}, h("code", {}, step.expression), h("span", { class: "tally" }, tally(step))),
    samples ? h("p", { class: "samples" }, h("code", {}, samples)) : null,
    step.predicates.length ? h("ul", { class: "tests" }, step.predicates.map(testItem)) : null,
  );
}

function tally({ found, passed, predicates }) {
  const nodes = `${count(found)} ${found === 1 ? "node" : "nodes"}`;
  return predicates.length && passed !== found ? `${nodes}, ${count(passed)} left` : nodes;
}

function testItem(test) {
  return h(
    "li",
    { class: test.passed ? "yes" : "no" },
    h("p", {}, h("code", {}, `[${test.expression}]`), h("span", { class: "tally" }, `${count(test.passed)} of ${count(test.tried)} passed`)),
    h("ul", { class: "reasons" }, test.reasons.slice(0, 4).map(reasonItem)),
  );
}

function reasonItem(reason) {
  const sign = reason.holds ? "✓" : "✗";
  const where = reason.node?.path;
  return h(
    "li",
    { class: reason.holds ? "yes" : "no" },
    h("span", { class: "sign", role: "img", "aria-label": reason.holds ? "holds" : "fails" }, sign),
    " ",
    reason.text,
    where ? h("code", { class: "where" }, where) : null,
    reason.terms?.length ? h("ul", { class: "reasons" }, reason.terms.map(reasonItem)) : null,
  );
}

function stopNote(stop) {
  const parts = [h("p", {}, h("b", {}, "Stopped here: "), stop.reason)];
  if (stop.did_you_mean?.length) parts.push(h("p", {}, "Did you mean ", h("code", {}, stop.did_you_mean.join(", ")), "?"));
  if (stop.there?.length) parts.push(h("p", {}, "There is: ", stop.there.slice(0, 12).map(there)));
  parts.push(...(stop.hints ?? []).map((each) => h("p", {}, each)));
  return parts;
}

function there({ name, count: times }) {
  return h("span", { class: "there" }, h("code", {}, name), times > 1 ? ` ×${count(times)} ` : " ");
}

/** Where a statement goes over into the corpus, and what became of it. */
function crossing(each, { explanation, unmatched, matches }) {
  if (!explanation.matched) return null;
  const lost = unmatched ? `${count(unmatched)} without a local node` : "all found in the corpus";
  return h(
    "div",
    { class: `crossing ${matches.length ? "yes" : "no"}` },
    h("p", {}, h("b", {}, "Into the corpus"), ` by ${each.axis}: `, h("code", {}, `local: ${each.match}`)),
    h("p", { class: "help" }, `Anchors: ${lost}.`),
  );
}

function foundItem({ nodes, local }) {
  const last = nodes?.at(-1);
  return h(
    "li",
    {},
    local ? h("p", { class: "value" }, cut(local.value ?? local.tag, 200)) : null,
    local ? h("p", {}, h("span", { class: "side" }, "corpus"), h("code", {}, local.path)) : null,
    last ? h("p", {}, h("span", { class: "side" }, "message"), h("code", {}, last.path)) : null,
    !local && last?.value ? h("p", { class: "value" }, cut(last.value.trim(), 200)) : null,
  );
}

/** An expression with a mark under the place that is wrong. */
function pointer(text, at) {
  return h("pre", { class: "pointer" }, text, "\n", " ".repeat(at), h("b", {}, "^"));
}
