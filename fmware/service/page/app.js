// The page: asks the service for figures while it is looked at, and shows them.

import { get, token } from "./api.js";
import { byId, say } from "./dom.js";
import { Feed, Live } from "./live.js";
import { Report } from "./report.js";
import { Statements } from "./statements.js";
import { Try } from "./try.js";

const EVERY = 2000;
const SELDOM = 5;
/** Rounds of figures after which statements and the report are asked for again. */

const live = new Live();
const feed = new Feed();
const report = new Report();
const tried = new Try();
const statements = new Statements((name) => {
  tried.choose(name);
  byId("try").scrollIntoView();
  byId("try-message").focus({ preventScroll: true });
});

let following = null;
let round = 0;
let timer = 0;

function status(state, text) {
  byId("status").dataset.state = state;
  say(byId("status").firstChild, text);
}

/** Say what keeps the page from showing more; nothing takes the notice away. */
function notice(text) {
  byId("notice").hidden = !text;
  say(byId("notice"), text);
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return following?.abort();
  try {
    const stats = await get("v1/stats");
    live.show(stats);
    statements.show(stats);
    if (round % SELDOM === 0) await lookFurther();
    round += 1;
    const whole = stats.engine.workers >= stats.engine.workers_wanted && !stats.engine.trouble?.length;
    status(whole ? "good" : "warn", whole ? "Live" : "Degraded");
    notice(whole ? "" : (stats.engine.trouble?.[0] ?? "Not all workers run."));
    follow(stats.log);
  } catch (error) {
    if (error.status === 401) return askToken(error.about.detail);
    const gone = error.status === undefined;
    status("bad", gone ? "Offline" : "Refused");
    notice(gone ? "The service does not answer. What is shown is the last that was heard of it." : error.message);
  }
  timer = setTimeout(look, EVERY);
}

async function lookFurther() {
  tried.offer(await statements.load());
  await report.load();
}

function follow(log) {
  if (following) return;
  const mine = (following = new AbortController());
  feed.follow(mine.signal, log).finally(() => {
    if (following === mine) following = null;
  });
}

function again() {
  following?.abort();
  following = null;
  round = 0;
  look();
}

// --- the token ---

function askToken(why) {
  status("warn", "Token needed");
  notice(why === "a token is needed" ? "This service needs a token." : "The service does not know this token.");
  if (!byId("token").open) byId("token").showModal();
}

byId("token-open").addEventListener("click", () => byId("token").showModal());
byId("token").addEventListener("close", () => {
  const field = byId("token-value");
  const answer = byId("token").returnValue;
  if (answer === "use" && field.value.trim()) token.set(field.value.trim());
  if (answer === "forget") token.clear();
  field.value = "";
  if (answer === "use" || answer === "forget") again();
});

// --- the theme ---

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  byId("theme").setAttribute("aria-label", `Theme: ${THEMES[name]}`);
  byId("theme").title = `Theme: ${THEMES[name]}`;
}

byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const now = localStorage.getItem("fmware-theme") ?? "auto";
  const next = names[(names.indexOf(now) + 1) % names.length];
  localStorage.setItem("fmware-theme", next);
  theme(next);
});

// --- where one is ---

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const seen = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting))
      for (const [name, link] of links) {
        if (name === entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
  },
  { rootMargin: "-30% 0px -65% 0px" },
);
for (const name of links.keys()) seen.observe(byId(name));

theme(localStorage.getItem("fmware-theme") ?? "auto");
document.addEventListener("visibilitychange", look);
look();
