// A line chart of the last minutes. What it shows is also in its legend, as text: the newest
// values, or those under the pointer; arrow keys move along.

import { h, say, svg } from "./dom.js";

const HEIGHT = 190;
const EDGE = { top: 12, right: 8, bottom: 24, left: 8 };
const TICKS = 3;

export class Chart {
  /** `series` are { key, label, tone }; `show` makes text of a value, `unit` follows it. */
  constructor(figure, { title, series, unit, show, span }) {
    this.series = series;
    this.unit = unit;
    this.show = show;
    this.span = span;
    this.points = [];
    this.chosen = null;
    this.title = title;
    this.build(figure);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  build(figure) {
    this.values = this.series.map(() => h("b"));
    this.when = h("span", { class: "when" });
    const legend = this.series.map((each, at) =>
      h("span", { class: `key ${each.tone}` }, each.label, " ", this.values[at]),
    );
    this.plot = h("div", {
      class: "plot",
      tabindex: "0",
      role: "img",
      onpointerdown: (event) => this.point(event),
      onpointermove: (event) => this.point(event),
      onpointerleave: () => this.choose(null),
      onblur: () => this.choose(null),
      onkeydown: (event) => this.press(event),
    });
    this.grid = svg("g", { class: "grid" });
    this.areas = this.series.map((each) => svg("path", { class: `area ${each.tone}` }));
    this.lines = this.series.map((each) => svg("path", { class: `line ${each.tone}` }));
    this.cursor = svg("line", { class: "cursor", visibility: "hidden" });
    this.dots = this.series.map((each) => svg("circle", { class: `dot ${each.tone}`, r: 4 }));
    this.labels = svg("g", { class: "labels" });
    const parts = [this.grid, ...this.areas, ...this.lines, this.cursor, ...this.dots, this.labels];
    this.svg = svg("svg", { "aria-hidden": "true", height: HEIGHT, width: "100%" }, ...parts);
    // What an arrow key leads to is said aloud; what changes by itself is not.
    this.spoken = h("p", { class: "hidden", "aria-live": "polite" });
    this.plot.append(this.svg);
    const head = h("div", { class: "head" }, h("h2", {}, this.title), this.when);
    figure.append(h("figcaption", {}, head, h("p", { class: "legend" }, legend)), this.plot, this.spoken);
  }

  /** One more point: when, in milliseconds, and a value or null for each series. */
  push(at, values) {
    this.points.push({ at, values });
    const oldest = at - this.span * 1000 - 5000;
    while (this.points[0].at < oldest) {
      this.points.shift();
      if (this.chosen) this.chosen -= 1;
    }
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const now = this.points.at(-1)?.at ?? Date.now();
    const top = nice(Math.max(0, ...this.points.flatMap((p) => p.values.map((v) => v ?? 0))));
    const inner = width - EDGE.left - EDGE.right;
    this.x = (at) => EDGE.left + inner * (1 - (now - at) / (this.span * 1000));
    this.y = (value) => HEIGHT - EDGE.bottom - (HEIGHT - EDGE.top - EDGE.bottom) * (value / top);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawGrid(width, top);
    this.series.forEach((_, at) => this.drawLine(at));
    this.tell();
  }

  drawGrid(width, top) {
    const lines = [];
    const labels = [];
    for (let tick = 0; tick <= TICKS; tick += 1) {
      const value = (top * tick) / TICKS;
      const y = this.y(value);
      lines.push(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y }));
      if (tick) labels.push(svg("text", { x: EDGE.left + 2, y: y - 4 }, String(Number(value.toPrecision(3)))));
    }
    const now = this.points.at(-1)?.at ?? Date.now();
    const step = width < 420 ? 60 : 30;
    for (let back = 0; back <= this.span; back += step) {
      const anchor = back === 0 ? "end" : back === this.span ? "start" : "middle";
      const text = back === 0 ? "now" : `−${back} s`;
      labels.push(
        svg("text", { x: this.x(now - back * 1000), y: HEIGHT - 6, "text-anchor": anchor }, text),
      );
    }
    this.grid.replaceChildren(...lines);
    this.labels.replaceChildren(...labels);
  }

  drawLine(at) {
    const found = this.points.filter((point) => point.values[at] !== null);
    const path = found.map(
      (point, place) =>
        `${place ? "L" : "M"}${this.x(point.at).toFixed(1)} ${this.y(point.values[at]).toFixed(1)}`,
    );
    this.lines[at].setAttribute("d", path.join(""));
    if (!found.length) return this.areas[at].setAttribute("d", "");
    const [first, last] = [this.x(found[0].at), this.x(found.at(-1).at)].map((x) => x.toFixed(1));
    const ground = this.y(0);
    this.areas[at].setAttribute("d", `${path.join("")}L${last} ${ground}L${first} ${ground}Z`);
  }

  /** Put the values of the chosen point, or the newest, into the legend. */
  tell() {
    const point = this.chosen === null ? this.points.at(-1) : this.points[this.chosen];
    const shown = this.chosen !== null && point;
    this.cursor.setAttribute("visibility", shown ? "visible" : "hidden");
    this.dots.forEach((dot) => dot.setAttribute("visibility", "hidden"));
    if (!point) return;
    const texts = point.values.map((v) => (v === null ? "–" : `${this.show(v)}${this.unit}`));
    texts.forEach((text, at) => say(this.values[at], text));
    const back = Math.round((this.points.at(-1).at - point.at) / 1000);
    say(this.when, shown ? `${back} s ago` : "");
    if (shown) {
      const x = this.x(point.at);
      for (const [key, value] of [["x1", x], ["x2", x], ["y1", EDGE.top], ["y2", this.y(0)]])
        this.cursor.setAttribute(key, value);
      point.values.forEach((value, at) => value !== null && this.mark(at, x, this.y(value)));
    }
    const said = this.series.map((each, at) => `${each.label} ${texts[at]}`).join(", ");
    this.plot.setAttribute("aria-label", `${this.title}: ${said}${shown ? `, ${back} s ago` : ""}`);
  }

  mark(at, x, y) {
    this.dots[at].setAttribute("cx", x);
    this.dots[at].setAttribute("cy", y);
    this.dots[at].setAttribute("visibility", "visible");
  }

  point(event) {
    if (!this.points.length || !this.x) return;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const far = this.points.map((point) => Math.abs(this.x(point.at) - x));
    this.choose(far.indexOf(Math.min(...far)));
  }

  press(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.points.length) return;
    event.preventDefault();
    const from = this.chosen ?? this.points.length - 1;
    this.choose(Math.min(Math.max(from + step, 0), this.points.length - 1));
    say(this.spoken, this.plot.getAttribute("aria-label"));
  }

  choose(at) {
    this.chosen = at;
    this.tell();
  }
}

/** The next round number, of which a third is round enough. */
function nice(value) {
  if (value <= 0) return 3;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1.2, 1.5, 3, 6, 9, 12].find((each) => each * power >= value);
}
