// What happens now: rates, latency, stages, the newest matches, what could not be read.

import { events, get } from "./api.js";
import { Chart } from "./chart.js";
import { byId, bytes, count, cut, duration, h, millis, rate, say } from "./dom.js";

const SPAN = 120;
const SHOWN = 40;
const STAGES = {
  read: "Read the request",
  filter: "Filter",
  identify: "Find anchors",
  match: "Join with the corpus",
  "match and hand over": "Engine, in all",
  log: "Write the log",
  request: "Request, in all",
};
const WHOLE = "match and hand over";

export class Live {
  constructor() {
    this.before = null;
    this.rates = new Chart(byId("rate-chart"), {
      title: "Rate",
      unit: "/s",
      show: rate,
      span: SPAN,
      series: [
        { key: "messages", label: "Messages", tone: "blue" },
        { key: "matches", label: "Matches", tone: "amber" },
      ],
    });
    this.latency = new Chart(byId("latency-chart"), {
      title: "Latency of matching",
      unit: " ms",
      show: millis,
      span: SPAN,
      series: [
        { key: "p50", label: "p50", tone: "low" },
        { key: "p90", label: "p90", tone: "middle" },
        { key: "p99", label: "p99", tone: "high" },
      ],
    });
    this.letters = null;
  }

  /** Show what /v1/stats said. */
  show(stats) {
    const at = Date.now();
    const { totals } = stats;
    const now = { at, messages: totals.messages ?? 0, matches: totals.matches ?? 0 };
    // A service that was started anew counts from nothing.
    if (this.before && now.messages >= this.before.messages) this.showRates(now, this.before);
    this.before = now;
    this.showLatency(at, stats.latency[WHOLE]);
    this.showEngine(stats);
    this.showStages(stats.latency);
    this.showWebhooks(stats.webhooks ?? {});
    this.showLetters(totals.rejected ?? 0);
    const bad = totals.rejected ? `, ${count(totals.rejected)} refused` : "";
    say(byId("messages-note"), `${count(now.messages)} since the start${bad}`);
    const lost = totals.unmatched ? `, ${count(totals.unmatched)} anchors unknown` : "";
    say(byId("matches-note"), `${count(now.matches)} since the start${lost}`);
    say(byId("tenant"), stats.tenant);
    say(byId("uptime"), duration(stats.uptime));
  }

  showRates(now, before) {
    const passed = Math.max((now.at - before.at) / 1000, 0.1);
    const values = ["messages", "matches"].map((key) => (now[key] - before[key]) / passed);
    this.rates.push(now.at, values);
    say(byId("messages-rate"), rate(values[0]));
    say(byId("matches-rate"), rate(values[1]));
  }

  showLatency(at, times) {
    const values = ["p50", "p90", "p99"].map((key) => times?.[key] ?? null);
    this.latency.push(at, values);
    say(byId("latency-median"), times ? millis(times.p50) : "–");
    say(byId("latency-note"), times ? `99 of 100 within ${millis(times.p99)} ms` : "No messages");
  }

  showEngine({ engine, log }) {
    say(byId("workers"), String(engine.workers));
    say(byId("workers-of"), `of ${engine.workers_wanted}`);
    const waits = engine.queue + (engine.waiting ?? 0);
    // One of several tenants is not told how much memory all of them take.
    const memory = engine.memory === undefined ? [] : [bytes(engine.memory)];
    const held = [...memory, `${count(waits)} waiting`, `index ${engine.generation}`].join(", ");
    const wrong = engine.trouble?.[0];
    say(byId("workers-note"), wrong ? cut(wrong, 120) : held);
    byId("workers-note").classList.toggle("bad", Boolean(wrong));
    this.last = log.last;
  }

  showStages(latency) {
    const found = Object.keys(STAGES).filter((stage) => latency[stage]);
    const most = Math.max(...found.map((stage) => latency[stage].p99));
    byId("stages-empty").hidden = found.length > 0;
    byId("stages").replaceChildren(...found.map((stage) => stageRow(stage, latency[stage], most)));
  }

  showWebhooks(webhooks) {
    const names = Object.keys(webhooks);
    byId("webhooks-box").hidden = !names.length;
    byId("webhooks").replaceChildren(
      ...names.map((name) => {
        const it = webhooks[name];
        const numbers = [it.delivered, it.behind, it.failures, it.dead];
        return h(
          "tr",
          {},
          h("th", { scope: "row" }, name),
          numbers.map((value) => h("td", { class: "number" }, count(value))),
          h("td", { class: it.trouble ? "bad" : "" }, it.trouble || (it.status === "paused" ? "paused" : "none")),
        );
      }),
    );
  }

  /** Dead letters are asked for when there are more of them than before. */
  async showLetters(rejected) {
    if (rejected === this.letters) return;
    this.letters = rejected;
    if (!rejected) return;
    const { letters } = await get("v1/dead-letters?limit=20").catch(() => ({ letters: [] }));
    byId("letters-box").hidden = !letters.length;
    say(byId("letters-title"), `Dead letters: messages that could not be read (${count(rejected)})`);
    byId("letters").replaceChildren(...letters.reverse().map(letterItem));
  }
}

function stageRow(stage, times, most) {
  const bar = h("span", { class: "bar" }, h("i"), h("b"));
  bar.firstChild.style.width = `${(100 * times.p99) / most}%`;
  bar.lastChild.style.width = `${(100 * times.p50) / most}%`;
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, STAGES[stage]),
    h("td", { class: "number" }, millis(times.p50)),
    h("td", { class: "number" }, millis(times.p99)),
    h("td", { class: "wide", "aria-hidden": "true" }, bar),
  );
}

function letterItem(letter) {
  const when = new Date(letter.at * 1000);
  return h(
    "li",
    {},
    h("p", {}, h("time", { datetime: when.toISOString() }, when.toLocaleTimeString()), " ", letter.reason),
    h("code", {}, cut(letter.body, 160)),
  );
}

/** The newest matches, as the service tells of them. */
export class Feed {
  constructor() {
    this.list = byId("feed");
    this.paused = false;
    this.held = [];
    this.seen = 0;
    byId("feed-pause").addEventListener("click", () => this.toggle());
  }

  toggle() {
    this.paused = !this.paused;
    const button = byId("feed-pause");
    button.setAttribute("aria-pressed", String(this.paused));
    say(button, this.paused ? "Go on" : "Pause");
    if (!this.paused) this.flush();
  }

  /** Keep the JSON of a match; of many that come at once, only those that are shown are read. */
  take(data) {
    this.held.unshift(data);
    this.held.length = Math.min(this.held.length, SHOWN);
    // Many matches come at once: they are drawn together, when the browser draws anyway.
    if (!this.paused && this.held.length === 1) requestAnimationFrame(() => this.flush());
  }

  flush() {
    if (this.paused || !this.held.length) return;
    this.list.prepend(...this.held.map((data) => matchItem(JSON.parse(data))));
    this.held = [];
    while (this.list.children.length > SHOWN) this.list.lastChild.remove();
    byId("feed-empty").hidden = true;
  }

  /** Follow matches, from the last ones that the log has and that are not shown yet. */
  async follow(signal, log) {
    const seen = this.seen <= log.last ? this.seen : 0;
    let after = Math.max(seen, log.last - SHOWN, log.first - 1, 0);
    let pause = 500;
    while (!signal.aborted) {
      try {
        after = await events("v1/matches/stream", after, signal, (event) => {
          pause = 500;
          if (event.name !== "match") return;
          this.seen = event.id;
          this.take(event.data);
        });
      } catch (error) {
        if (signal.aborted || error.status === 401) return;
      }
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, 15_000);
    }
  }
}

function matchItem(match) {
  const { local, nodes } = match;
  const path = local?.path ?? nodes?.at(-1)?.path ?? "";
  const value = (local?.value ?? "").trim().replace(/\s+/g, " ");
  return h(
    "li",
    {},
    h("span", { class: "name" }, match.statement),
    h("span", { class: "of", title: match.message }, match.message),
    value ? h("span", { class: "value" }, cut(value, 120)) : null,
    h("code", { class: value ? "" : "alone" }, path),
  );
}
