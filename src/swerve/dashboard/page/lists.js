// Lists beside the charts: alarms and shifts, queries, and figures of the service.

import { ago, byId, clock, count, keyed, make, perSecond, places, show, words, write } from "./dom.js";

const VERDICTS = {
  open: ["being tested", "warn"],
  true: ["shift confirmed", "good"],
  false: ["false alarm", "plain"],
  none: ["no test", "plain"],
};
const CAUSES = { operator: "a person said so", clicks: "seen in the clicks" };

/** Draw alarms with cause and verdict, newest first; in a simulation also the real shifts. */
export function drawTimeline(state, query) {
  const began = state.demo?.began ?? 0;
  const alarms = (state.missing ? [] : (state.current?.state.alarms ?? [])).filter((alarm) => alarm.at >= began);
  const events = state.events(query).map((event) => ({ ...event, event: true, key: `e${event.at}` }));
  const newest = events.at(-1);
  const items = [...alarms.map((alarm) => ({ ...alarm, key: `a${alarm.at} ${alarm.phase}` })), ...events].sort(
    (a, b) => b.at - a.at,
  );
  const list = byId("timeline");
  show(list, items.length > 0);
  show(byId("timeline-empty"), items.length === 0);
  const create = (item) =>
    make(
      "li",
      item.event ? "event" : "alarm",
      "",
      make("p", "what", "", make("strong"), make("span", "pill")),
      make("p", "soft small"),
    );
  keyed(
    list,
    items,
    (item) => item.key,
    create,
    (node, item) => {
      const [strong, pill, small] = [node.querySelector("strong"), node.querySelector(".pill"), node.querySelector(".small")];
      const when = clock(state.dated(item.at), state.simulated, state.dated(state.current?.now ?? item.at));
      if (item.event) {
        write(
          strong,
          item.from === item.to
            ? `Now best: ${state.hello.demo.titles[item.to_id]?.title ?? item.to}`
            : `People now want “${words(item.to)}”`,
        );
        const open = item.took === null && item === newest;
        write(pill, open ? "learning" : item.took === null ? "overtaken by the next" : `followed in ${count(item.took)}`);
        pill.dataset.kind = open ? "warn" : item.took === null ? "plain" : "good";
        const took = item.took === null ? "" : ` · ${count(item.took)} impressions until the top was right`;
        write(small, `${when} · before: ${words(item.from)}${took}`);
        return;
      }
      const [verdict, kind] = VERDICTS[item.verdict] ?? [item.verdict, "plain"];
      write(strong, `Alarm: ${CAUSES[item.signal] ?? words(item.signal)}`);
      write(pill, verdict);
      pill.dataset.kind = kind;
      node.dataset.kind = kind;
      write(small, `${when} · phase ${item.phase}${item.value === null ? "" : ` · surprise ${item.value.toFixed(2)}`}`);
    },
  );
}

/** The text with which a listed query is watched: its own text or, if that is not stored or is of two records, its key. */
export const addressed = (one) => (one.query === null || one.control ? `key:${one.key}` : one.query);

/** Draw the most asked and the last shifted queries; a click watches one. */
export function drawQueries(state, query, watch) {
  const { sample } = state;
  drawList(byId("top"), (sample?.top ?? []).slice(0, 8), "No traffic yet.", query, watch, (one) => `${count(one.requests)} asked`);
  drawList(byId("shifted"), (sample?.shifted ?? []).slice(0, 6), "No query has shifted yet.", query, watch, (one) =>
    one.shifted === null ? "" : ago(sample.now - one.shifted),
  );
}

function drawList(list, lines, none, query, watch, figure) {
  const items = lines.length ? lines : [{ key: "none" }];
  const create = (one) => {
    if (one.key === "none") return make("li", "empty", none);
    const label = one.query ?? `${one.key.slice(0, 12)}…`;
    const kind = one.query === null ? "name quiet hash" : "name quiet";
    const name = make("button", kind, one.control ? `${label} (control)` : label);
    if (one.query === null) name.title = "The text of queries is not stored; this is the query's key.";
    name.type = "button";
    name.addEventListener("click", () => watch(addressed(one)));
    return make("li", "", "", name, make("span", "pill", "testing"), make("span", "soft figure"));
  };
  keyed(
    list,
    items,
    (one) => one.key,
    create,
    (node, one) => {
      if (one.key === "none") return;
      node.firstChild.setAttribute("aria-pressed", String(addressed(one) === query));
      show(node.querySelector(".pill"), one.testing);
      write(node.querySelector(".figure"), figure(one));
    },
  );
}

/** Draw throughput, latency and store: the current figure, and the last minutes as a line. */
export function drawHealth(state) {
  const { sample, samples } = state;
  if (!sample) return;
  const { store } = sample;
  const [rank, of] = sample.rank_ms ? [sample.rank_ms, "a ranking"] : [sample.rank_batch_ms, "a batch"];
  const feedback = sample.feedback_ms ?? sample.feedback_batch_ms;
  const kind = { ok: "good", starting: "warn", stopping: "warn" }[store.state] ?? "bad";
  const each = store.commit_ms === null ? "" : ` of ${places(store.commit_ms)} ms`;
  const tiles = [
    {
      name: "Rankings",
      value: `${perSecond(sample.rank_per_s)} /s`,
      note: `${count(sample.decisions)} decisions so far`,
      line: samples.map((one) => one.rank_per_s),
    },
    {
      name: "Feedback",
      value: `${perSecond(sample.feedback_per_s)} /s`,
      note: feedback ? `${places(feedback.p50)} ms durable, 99 %: ${places(feedback.p99)} ms` : "none just now",
      line: samples.map((one) => one.feedback_per_s),
    },
    {
      name: "Latency",
      value: rank ? `${places(rank.p50, 2)} ms` : "–",
      note: rank ? `of ${of}; 99 % within ${places(rank.p99, 2)} ms` : "no requests just now",
      line: samples.map((one) => (one.rank_ms ?? one.rank_batch_ms)?.p50 ?? 0),
    },
    {
      name: "Store",
      value: words(store.state),
      kind,
      note: `${perSecond(store.commits_per_s)} commits/s${each}; ${count(store.pending)} waiting`,
    },
    { name: "Queries stored", value: count(store.rows), note: `${count(store.errors)} store errors` },
    {
      name: "Alarms",
      value: count(sample.alarms),
      note: `${count(sample.restarts)} restarts; ${perSecond(sample.degraded_per_s)} degraded answers/s`,
      kind: sample.degraded_per_s > 0 ? "warn" : "",
    },
  ];
  const create = (tile) =>
    make(
      "div",
      "tile",
      "",
      make("dt", "", tile.name),
      make("dd", "value"),
      make("dd", "note soft small"),
      ...(tile.line ? [spark()] : []),
    );
  keyed(
    byId("health"),
    tiles,
    (tile) => tile.name,
    create,
    (node, tile) => {
      const value = node.querySelector(".value");
      write(value, tile.value);
      value.dataset.kind = tile.kind ?? "";
      write(node.querySelector(".note"), tile.note);
      if (tile.line) node.querySelector("path").setAttribute("d", path(tile.line.slice(-120)));
    },
  );
}

const SVG = "http://www.w3.org/2000/svg";

/** A small line without axes beside a figure. */
function spark() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 120 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(SVG, "path"));
  return svg;
}

function path(values) {
  if (values.length < 2) return "";
  const most = Math.max(...values, 1e-9);
  const step = 120 / (values.length - 1);
  return values.map((value, j) => `${j ? "L" : "M"}${(j * step).toFixed(1)} ${(23 - (value / most) * 21).toFixed(1)}`).join("");
}
