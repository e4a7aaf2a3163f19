// The tables and charts of a report. Texts of statements are data: they only ever become text nodes.
(() => {
  "use strict";

  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const report = read("report");
  const { charts, themes } = read("charts");
  const joins = new Map(report.joins.map((join, at) => [join.name, { ...join, at }]));

  // -- small things --

  const el = (tag, about = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(about)) {
      if (value !== undefined && value !== null && value !== false) {
        made.setAttribute(name, value === true ? "" : value);
      }
    }
    made.append(...inside.filter((each) => each !== null && each !== undefined));
    return made;
  };
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
  const SPACE = "\u202f";
  const time = (seconds) => {
    for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
      if (Math.abs(seconds) >= size) return short.format(seconds / size) + SPACE + unit;
    }
    return seconds ? short.format(seconds * 1e9) + SPACE + "ns" : "0";
  };
  const figures = { count: (n) => whole.format(n), time, number: (n) => short.format(n) };

  const way = (choice) => {
    const [operator, scheme = ""] = choice.split("/");
    const name = operator === "admatch" ? "admatch" : scheme.replace("+admatch", "-split");
    return el("span", { class: "way", style: `--dot: var(--${name}, var(--other))` }, choice);
  };
  const ways = (choice) => (choice ? choice.split(", ").map(way) : ["–"]);

  // A figure of the report, with the place in the JSON twin that it comes from.
  const figure = (tag, kind, value, of, about = {}) => {
    if (value === null || value === undefined) {
      return el(tag, { ...about, class: `none ${about.class || ""}` }, "–");
    }
    return el(tag, { ...about, "data-of": of, "data-value": value }, figures[kind](value));
  };

  // -- what a join did --

  const PARTS = ["calls", "index_access", "cleaning", "spills"];

  const detail = (join, share) => {
    const of = `joins.${join.at}`;
    const head = ["way", "cost", "expected", "sample", "estimated", ...PARTS.map((part) => part.replace("_", " "))];
    const table = el(
      "table",
      {},
      el("caption", {}, `Ways to do ${join.name}, in time an input`),
      el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
      el(
        "tbody",
        {},
        ...join.alternatives.map((each, at) => {
          const place = `${of}.alternatives.${at}`;
          return el(
            "tr",
            { class: each.choice === join.choice ? "chosen" : null },
            el("td", {}, way(each.choice)),
            figure("td", "time", each.cost, `${place}.cost`),
            figure("td", "time", each.first, `${place}.first`),
            figure("td", "time", each.measured, `${place}.measured`),
            figure("td", "time", each.estimate, `${place}.estimate`),
            ...PARTS.map((part) => figure("td", "time", each.parts[part], `${place}.parts.${part}`)),
          );
        }),
      ),
    );
    const count = (name) => whole.format(join.counters[name] || 0);
    const said = [
      `${whole.format(share ? share.inputs : join.inputs)} inputs`,
      `${whole.format(share ? share.pairs : join.counters.pairs || 0)} pairs`,
      `${count("unique_labels")} labels`,
      `${count("index_scans")} scans by label`,
      "ad_probes" in join.counters ? `${count("ad_probes")} probes by input` : null,
      join.counters.deferred ? `${count("deferred")} inputs of rented labels` : null,
      `${count("candidates")} candidates`,
      `${count("false_hits")} false hits`,
      `${count("spills")} spills`,
    ].filter((each) => each !== null);
    const power = Object.entries(join.power).map(([name, each]) => `${name} ${short.format(each)}`);
    return el(
      "div",
      { class: "join" },
      el("h3", {}, el("code", {}, join.name)),
      join.alternatives.length ? table : el("p", {}, "No alternatives: the operator was given."),
      join.why ? el("p", { class: "why" }, `${join.choice}: ${join.why}.`) : null,
      join.error ? el("p", { class: "over" }, `Could not be replayed: ${join.error}`) : null,
      el("p", {}, said.join(", ") + (share ? " (labels to spills: of all its statements)." : ".")),
      power.length ? el("p", {}, `Nodes that share a label: ${power.join(", ")}.`) : null,
      (join.looks || join.switches).length
        ? el(
            "ul",
            {},
            ...(join.looks || join.switches).map((each) =>
              el(
                "li",
                {},
                `looked at after ${whole.format(each.inputs)} inputs: ` +
                  (each.before === each.after ? `${each.after} stays` : `${each.before} → ${each.after}`) +
                  `: ${each.why}`,
              ),
            ),
          )
        : null,
    );
  };

  // -- tables: search, order, pages --

  const PAGE = 25;

  const sheet = (id, rows, columns, { text, open, keep }) => {
    const place = document.getElementById(id);
    if (!place) return;
    const body = place.querySelector("tbody");
    const search = place.querySelector("input[type=search]");
    const select = place.querySelector("select");
    const [back, on] = place.querySelectorAll(".pager button");
    const told = place.querySelector(".pager span");
    const heads = [...place.querySelectorAll("thead th")];
    const state = { page: 0, order: null, up: false };
    const texts = rows.map((row) => text(row).toLowerCase());

    const chosen = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = rows.filter(
        (row, at) => words.every((word) => texts[at].includes(word)) && (!select || keep(row, select.value)),
      );
      if (state.order !== null) {
        const key = columns[state.order].key;
        const sign = state.up ? 1 : -1;
        const rank = (value) => (value === null || value === undefined ? -Infinity : value);
        found.sort((a, b) => {
          const [x, y] = [rank(a[key]), rank(b[key])];
          if (typeof x === "string" || typeof y === "string") {
            return -sign * String(y).localeCompare(String(x), "en", { numeric: true });
          }
          return x === y ? 0 : sign * (x < y ? -1 : 1);
        });
      }
      return found;
    };

    const line = (row) => {
      const inside = open(row);
      const made = el("tr", { class: inside ? "row more" : "row" });
      made.append(...columns.map((column) => column.cell(row, Boolean(inside))));
      if (!inside) return [made];
      const more = el("tr", { class: "detail", hidden: true });
      const button = made.querySelector("button.toggle");
      const turn = () => {
        if (!more.firstChild) more.append(el("td", { colspan: columns.length }, ...inside()));
        more.hidden = !more.hidden;
        button.setAttribute("aria-expanded", String(!more.hidden));
      };
      made.addEventListener("click", () => {
        if (!String(getSelection())) turn();
      });
      return [made, more];
    };

    const show = () => {
      const found = chosen();
      const pages = Math.max(1, Math.ceil(found.length / PAGE));
      state.page = Math.min(state.page, pages - 1);
      const begin = state.page * PAGE;
      const shown = found.slice(begin, begin + PAGE);
      body.replaceChildren(...shown.flatMap(line));
      if (!shown.length) {
        const none = el("td", { colspan: columns.length, class: "text none" }, "Nothing found.");
        body.append(el("tr", {}, none));
      }
      const to = whole.format(begin + shown.length);
      told.textContent = found.length
        ? `${whole.format(begin + 1)}–${to} of ${whole.format(found.length)}`
        : "0";
      back.disabled = state.page === 0;
      on.disabled = state.page >= pages - 1;
      heads.forEach((head, at) => {
        if (at === state.order) head.setAttribute("aria-sort", state.up ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      });
    };

    const again = () => {
      state.page = 0;
      show();
    };
    search.addEventListener("input", again);
    if (select) select.addEventListener("change", again);
    back.addEventListener("click", () => {
      state.page -= 1;
      show();
    });
    on.addEventListener("click", () => {
      state.page += 1;
      show();
    });
    heads.forEach((head, at) => {
      head.querySelector("button").addEventListener("click", () => {
        state.up = state.order === at ? !state.up : columns[at].up || false;
        state.order = at;
        again();
      });
    });
    show();
  };

  const number = (list, key, label, kind, inside = "") => ({
    key,
    cell: (row) => {
      const empty = row[key] === null || row[key] === undefined;
      return figure("td", kind, row[key], `${list}.${row.at}.${inside}${key}`, {
        "data-label": label,
        class: empty ? "empty" : "",
      });
    },
  });
  const regret = (list, key) => ({
    key,
    cell: (row) => {
      const made = figure("td", "time", row[key], `${list}.${row.at}.${key}`, {
        "data-label": "regret",
        class: row[key] === null ? "empty" : "",
      });
      if (row.regretShare > 0.1) made.classList.add("over");
      else if (row[key] !== null) made.classList.add("fine");
      return made;
    },
  });
  const wayColumn = {
    key: "choice",
    up: true,
    cell: (row) =>
      el("td", { class: row.choice ? "text ways" : "text none empty", "data-label": "way" }, ...ways(row.choice)),
  };
  const what = (name, code) => ({
    key: "name",
    up: true,
    cell: (row, more) => {
      const inside = [row.name === code(row) ? null : el("span", { class: "name" }, row.name)];
      inside.push(el("span", { class: "code" }, code(row)));
      const words = el("span", {}, ...inside.filter(Boolean));
      const label = more
        ? el("button", { class: "toggle", "aria-expanded": "false", type: "button" }, words)
        : el("span", { class: "plain", style: "display:block" }, words);
      return el("td", { class: "text what", "data-label": name }, label);
    },
  });

  // Of statements that only filter there is no more to say.
  const nothing = { local: false, joins: [], choice: null, inputs: null, regret: null };
  const rows = report.statements.map((row, at) => ({
    ...nothing,
    ...row,
    at,
    regretShare: row.regret && row.measured ? row.regret / row.measured : 0,
  }));
  sheet(
    "statements",
    rows,
    [
      what("statement", (row) => row.text),
      number("statements", "passed", "passed", "count"),
      number("statements", "matches", "matches", "count"),
      number("statements", "inputs", "inputs", "count"),
      wayColumn,
      number("statements", "estimate", "estimated", "time"),
      number("statements", "measured", "measured", "time"),
      number("statements", "best", "best", "time"),
      regret("statements", "regret"),
    ],
    {
      text: (row) => `${row.name} ${row.text} ${row.choice || ""}`,
      keep: (row, value) => value === "all" || (value === "local") === row.local,
      open: (row) =>
        row.joins.length
          ? () => row.joins.filter((each) => joins.has(each.join)).map((each) => detail(joins.get(each.join), each))
          : null,
    },
  );
  sheet(
    "joins",
    [...joins.values()].map((row) => {
      const chosen = row.alternatives.find((each) => each.choice === row.choice);
      const cost = chosen && chosen.cost;
      return { ...row.counters, ...row, regretShare: row.regret && cost ? row.regret / cost : 0 };
    }),
    [
      what("join", (row) => row.name),
      wayColumn,
      number("joins", "inputs", "inputs", "count"),
      ...["unique_labels", "candidates", "false_hits", "spills"].map((key) =>
        number("joins", key, key.replace("unique_", "").replace("_", " "), "count", "counters."),
      ),
      number("joins", "estimate", "estimated", "time"),
      number("joins", "per_input", "measured", "time"),
      regret("joins", "regret"),
    ],
    {
      text: (row) => `${row.name} ${row.choice}`,
      keep: () => true,
      open: (row) => () => [detail(row)],
    },
  );

  // -- charts --

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  const drawn = new Map();

  const draw = async () => {
    const config = structuredClone(themes[dark.matches ? "dark" : "light"]);
    config.axisY.labelLimit = narrow.matches ? 118 : 300;
    for (const { name, spec } of charts) {
      const place = document.querySelector(`#chart-${name} .plot`);
      const before = drawn.get(name);
      if (before) before.finalize();
      // Interpreted: the page forbids scripts that are made on the way.
      const options = { ast: true, renderer: "svg", actions: false, config: config };
      drawn.set(name, await vegaEmbed(place, structuredClone(spec), options));
      place.dataset.drawn = "yes";
    }
    document.documentElement.dataset.ready = "yes";
  };

  document.addEventListener("DOMContentLoaded", draw);
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
})();
