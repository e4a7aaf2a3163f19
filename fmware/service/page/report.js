// What the workers have learnt: how each join is done, and what the other ways would cost.

import { get } from "./api.js";
import { byId, count, h, seconds, several } from "./dom.js";

const WORDS = { admatch: "by AD label" };
const wordsOf = (choice) => WORDS[choice] ?? choice.replace("cmatch/", "clustered, ");

export class Report {
  async load() {
    const report = await get("v1/report");
    const joins = merged(report.workers ?? []);
    byId("report-empty").hidden = joins.length > 0;
    const parts = joins.length ? [summary(report.workers, joins), h("div", { class: "joins" }, joins.map(card))] : [];
    byId("report").replaceChildren(...parts);
  }
}

/** Workers run the same joins: counts are added, and what was learnt is the busiest one's. */
function merged(workers) {
  const found = new Map();
  for (const join of workers.flatMap((worker) => worker.joins ?? [])) {
    const held = found.get(join.name);
    const busier = !held || join.inputs > held.busiest;
    const kept = busier ? join : held;
    found.set(join.name, {
      ...kept,
      busiest: Math.max(join.inputs, held?.busiest ?? 0),
      inputs: join.inputs + (held?.inputs ?? 0),
      seconds: join.seconds + (held?.seconds ?? 0),
      changes: join.switches.length + (held?.changes ?? 0),
    });
  }
  return [...found.values()].sort((a, b) => b.inputs - a.inputs);
}

function summary(workers, joins) {
  const sum = (of) => workers.reduce((total, worker) => total + (of(worker) ?? 0), 0);
  const counters = (key) => sum((worker) => worker.summary?.counters?.[key]);
  const figures = [
    [count(joins.length), joins.length === 1 ? "join" : "joins"],
    [count(joins.reduce((total, join) => total + join.inputs, 0)), "anchors joined"],
    [count(joins.reduce((total, join) => total + join.changes, 0)), "changes of mind"],
  ];
  // What all statements did together is told only where they are of one tenant.
  if (workers.some((worker) => worker.summary)) {
    figures.push(
      [count(counters("index_scans") + counters("ad_probes")), "questions to the index"],
      [count(counters("candidates")), "candidates kept"],
      [count(counters("spills")), "spills to disk"],
    );
  }
  const items = figures.map(([value, label]) => h("div", {}, h("dd", {}, value), h("dt", {}, label)));
  return h("dl", { class: "card figures" }, items);
}

function card(join) {
  const ways = join.alternatives.filter((each) => each.estimate);
  const most = Math.max(...ways.map((each) => each.estimate));
  const rows = ways
    .sort((a, b) => a.estimate - b.estimate)
    .map((each) => way(each, most, each.choice === join.choice));
  return h(
    "article",
    { class: "card join" },
    h("h2", {}, h("code", {}, join.name)),
    h("p", { class: "note" }, `${several(join.inputs, "anchor")} in ${several(join.batches, "batch", "es")}, ${seconds(join.seconds)} in all`),
    h(
      "table",
      { class: "ways" },
      h("caption", { class: "hidden" }, `Expected cost of an anchor of ${join.name}`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Way"), h("td", {}), h("th", { scope: "col", class: "number" }, "Expected"))),
      h("tbody", {}, rows),
    ),
    join.switches.length ? h("ul", { class: "switches" }, join.switches.slice(-3).map(change)) : null,
  );
}

function way(each, most, chosen) {
  const bar = h("i");
  bar.style.width = `${Math.max((100 * each.estimate) / most, 1)}%`;
  return h(
    "tr",
    { class: chosen ? "chosen" : "" },
    h("th", { scope: "row" }, wordsOf(each.choice), chosen ? h("span", { class: "chip" }, "chosen") : null),
    h("td", { class: "wide", "aria-hidden": "true" }, h("span", { class: "bar" }, bar)),
    h("td", { class: "number" }, seconds(each.estimate)),
  );
}

function change(each) {
  const way = `${wordsOf(each.before)} → ${wordsOf(each.after)}`;
  return h("li", {}, `After ${count(each.inputs)} anchors: ${way}; ${each.why}`);
}
