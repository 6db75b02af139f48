// The page: reads one stream and draws everything from its messages.

import { Charts } from "./charts.js";
import { Colours, repaint } from "./colours.js";
import { Demo } from "./demo.js";
import { byId, show, words, write } from "./dom.js";
import { drawExperiment } from "./experiment.js";
import { addressed, drawHealth, drawQueries, drawTimeline } from "./lists.js";
import { Ranking, drawSignals } from "./ranking.js";
import { Rules } from "./rules.js";
import { State } from "./state.js";
import { Stream } from "./stream.js";
import { drawVersus } from "./versus.js";

const state = new State();
const colours = new Colours();
const ranking = new Ranking(state, colours);
const charts = new Charts(state, colours);
let key = kept("swerve-key") ?? "";
let query = fromAddress();
let stream = null;
let link = { state: "connecting", more: {} };

const demo = new Demo(state, { query: () => query, watch, key: () => key });
const rules = new Rules(state, { query: () => query, key: () => key });

function kept(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

function keep(storage, name, value) {
  try {
    window[storage].setItem(name, value);
  } catch {
    // without storage the key is forgotten with the page
  }
}

/** The watched query is in the fragment of the address: it can be linked to, and never reaches a server's log. */
function fromAddress() {
  return new URLSearchParams(location.hash.slice(1)).get("query");
}

/** Watch another query: open a new stream, with the history of that query. */
function watch(text) {
  if (text === query) return;
  history.pushState(null, "", `#${new URLSearchParams({ query: text })}`);
  turn(text);
}

function turn(text) {
  query = text;
  colours.reset();
  ranking.reset();
  state.forget();
  fill();
  connect();
  draw();
}

/** Put the watched query into the search box, unless a person is typing there. */
function fill() {
  const box = byId("text");
  if (document.activeElement !== box) box.value = query?.startsWith("key:") ? "" : (query ?? "");
}

function connect() {
  stream?.close();
  stream = new Stream({ query, key, on: take, status });
}

function take(name, data) {
  const before = state.demo;
  state.take(name, data);
  if (query === null) choose();
  // another scenario has another main query
  else if (name === "demo" && before && before.scenario !== data.scenario) watch(subject() ?? query);
  // four reports and one sample arrive per second: drawing at each would be too often
  if (name !== "demo") return schedule();
  demo.draw();
  drawVersus(state);
  banner();
}

/** The first query to watch: the main query of the scenario, otherwise the most asked one. */
function choose() {
  const [first] = state.sample?.top ?? [];
  const text = state.simulated ? subject() : first ? addressed(first) : null;
  if (text === null) return;
  history.replaceState(null, "", `#${new URLSearchParams({ query: text })}`);
  turn(text);
}

/** The main query of a scenario: the one with its name, otherwise the first. */
function subject() {
  const queries = Object.keys(state.demo?.intent ?? {});
  return queries.find((one) => one === words(state.demo.scenario)) ?? queries[0] ?? null;
}

let waiting = false;
function schedule() {
  if (waiting) return;
  waiting = true;
  // a hidden page draws nothing; it catches up when it is shown
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}

function draw() {
  const simulated = state.simulated;
  document.documentElement.dataset.kind = simulated ? "demo" : "service";
  if (state.hello) {
    write(byId("about"), `${state.hello.version} · ${state.hello.policy}`);
    write(byId("text-label"), simulated ? "Search as a user would" : "Query to watch");
    write(byId("go"), simulated ? "Search" : "Watch");
  }
  // in a fixed order, so that a meaning always has the same colour
  for (const name of state.hello?.demo?.meanings?.[query] ?? []) colours.hue(name);
  demo.draw();
  drawVersus(state);
  ranking.draw(query);
  rules.draw();
  drawSignals(state);
  drawTimeline(state, query);
  drawQueries(state, query, watch);
  drawExperiment(state, query, watch);
  drawHealth(state);
  charts.draw(query);
  banner();
}

function status(name, more) {
  link = { state: name, more };
  if (name === "key") askKey(more.code);
  const text = { connecting: "Connecting", live: "Live", waiting: "Reconnecting", key: "Key needed", refused: "Not watching" }[
    name
  ];
  byId("link").dataset.state = name;
  write(byId("link-text"), text);
  banner();
}

/** The most important message for the reader, if any. */
function banner() {
  const [text, button, kind] = notice();
  const node = byId("banner");
  show(node, Boolean(text));
  node.dataset.kind = kind ?? "info";
  write(byId("banner-text"), text ?? "");
  show(byId("banner-button"), Boolean(button));
  write(byId("banner-button"), button ?? "");
}

function notice() {
  const store = state.sample?.store;
  if (link.state === "waiting")
    return [
      `No connection: ${link.more.reason}. The page shows the last data that arrived, and reconnects by itself.`,
      "Try now",
      "bad",
    ];
  if (link.state === "connecting" && link.more.tries) return ["No connection. Trying again …", null, "bad"];
  if (link.state === "key") return ["This service requires an API key.", "Enter a key", "info"];
  if (link.state === "refused") return [`The service does not take this query: ${link.more.reason}`, null, "bad"];
  if (!state.hello) return ["Connecting to the service …", null, "info"];
  if (store?.state === "starting")
    return ["The service is starting and compiles its code. Until then rankings are in the given order.", null, "info"];
  if (store?.state === "stopping") return ["The service is stopping.", null, "info"];
  if (store && store.state !== "ok")
    return [
      `The store cannot be used (${words(store.state)}). Rankings are in the given order, and clicks are refused, until the store is back.`,
      null,
      "bad",
    ];
  if (state.demo?.ended) return ["The scenario has ended. Choose another one, or see it again.", "Play again", "info"];
  if (state.demo?.paused) return ["Paused: the simulated time stands still.", "Resume", "info"];
  return [];
}

byId("banner-button").addEventListener("click", () => {
  if (link.state === "waiting") stream.retry();
  else if (link.state === "key") askKey(link.more.code);
  else if (state.demo?.ended) demo.control("scenario", state.demo.scenario);
  else demo.control("resume");
});

function askKey(code) {
  const why = {
    401: key
      ? "This key is not known to the service. Give a key with the scope read."
      : "This service is protected. Give a key with the scope read.",
    403: "This key does not have the scope read. Give one that has it.",
  };
  write(byId("key-why"), why[code]);
  const dialog = byId("key");
  if (!dialog.open) dialog.showModal();
  byId("key-text").focus();
}

byId("key-form").addEventListener("submit", () => {
  key = byId("key-text").value.trim();
  byId("key-text").value = "";
  keep("sessionStorage", "swerve-key", key);
  connect();
});

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  if (!text) return;
  if (state.simulated) demo.search(text).then(() => watch(text));
  else watch(text);
});

window.addEventListener("popstate", () => {
  if (fromAddress() !== query) turn(fromAddress());
});
document.addEventListener("visibilitychange", schedule);

const THEMES = ["auto", "light", "dark"];
function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  write(byId("theme"), `Theme: ${name}`);
  repaint();
  schedule();
}
byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  keep("localStorage", "swerve-theme", next);
  theme(next);
});
window
  .matchMedia("(prefers-color-scheme: dark)")
  .addEventListener("change", () => theme(document.documentElement.dataset.theme ?? "auto"));

theme(document.documentElement.dataset.theme ?? "auto");
fill();
connect();
