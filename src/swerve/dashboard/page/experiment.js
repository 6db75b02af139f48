// The experiment: does it help, how sure is that, and how long until it is decided.

import { byId, count, keyed, make, places, show, write } from "./dom.js";

const SURE = "the interval holds at all times together, with 95 %";

/** A difference in percentage points, with its sign. */
const points = (value) => (Number.isFinite(value) ? `${value < 0 ? "−" : "+"}${places(Math.abs(100 * value))}` : "–");
const decimals = (value) => `${value < 0 ? "−" : "+"}${places(Math.abs(value), 2)}`;
const rate = (value) => (Number.isFinite(value) ? `${places(100 * value)} %` : "–");
const share = (value) => `${+(100 * value).toFixed(2)} %`;

/** The verdict in words: whether it helps, by how much, and if that is open, for how long. */
function said({ verdict, more_searches: more, outcomes: { reward } }, searches) {
  const { relative, difference, low, high } = reward;
  const by = relative === null ? `${points(difference)} points` : `${relative < 0 ? "−" : "+"}${places(Math.abs(100 * relative))} %`;
  if (verdict === "helps") return `It helps: ${by} reward per search. At least ${points(low)} points; this is decided.`;
  if (verdict === "hurts") return `It hurts: ${by} reward per search. At most ${points(high)} points; this is decided.`;
  if (difference === null) return "Nothing to compare yet: visits are judged some minutes after they began, where both arms have some.";
  const wait = more === null ? "too many more searches to say how many" : `about ${count(more)} more searches, after ${count(searches)}`;
  return `Not decided yet: ${by} reward per search so far. At this difference, decided in ${wait}.`;
}

/** Draw the experiment, if one runs. */
export function drawExperiment(state, query, watch) {
  const experiment = state.sample?.experiment;
  show(byId("experiment-part"), Boolean(experiment?.outcomes));
  if (!experiment?.outcomes) return;
  const { name, treated, verdict, outcomes, arms, open, control } = experiment;
  const searches = arms.treated.searches + arms.control.searches;
  write(byId("experiment-title"), `Experiment “${name}”`);
  write(byId("experiment-share"), `${share(treated)} treated, the rest gets ${control ? `the order of ${control}` : "the given order"}`);
  const line = byId("experiment-verdict");
  write(line, said(experiment, searches));
  line.dataset.right = { helps: "true", hurts: "false" }[verdict] ?? "open";
  drawInterval(outcomes.reward);
  const waiting = open ? ` ${count(open)} visits wait to be judged.` : "";
  write(byId("experiment-note"), `${count(outcomes.reward.visits)} visits compared; ${SURE}.${waiting}`);
  const tiles = [
    { title: "Reward per search", effect: outcomes.reward, figure: rate, change: points, unit: " points" },
    { title: "Clicks per search", effect: outcomes.clicks, figure: (value) => places(value, 2), change: decimals, unit: "" },
    { title: "Abandonment", effect: outcomes.abandonment, figure: rate, change: points, unit: " points" },
  ];
  keyed(
    byId("experiment-tiles"),
    tiles,
    ({ title }) => title,
    ({ title }) => make("div", "tile", "", make("dt", "", title), make("dd", "value"), make("dd", "note soft small")),
    (node, { effect, figure, change, unit }) => {
      const value = node.querySelector(".value");
      write(value, figure(effect.treated));
      value.dataset.kind = { helps: "good", hurts: "bad" }[effect.verdict] ?? "";
      const range = effect.low === null ? "" : `; ${change(effect.difference)}${unit}, from ${change(effect.low)} to ${change(effect.high)}`;
      write(node.querySelector(".note"), `treated, against ${figure(effect.control)}${range}`);
    },
  );
  drawGuarded(experiment.guarded ?? [], query, watch);
}

/** Draw the difference and its interval around 0. */
function drawInterval({ verdict, difference, low, high }) {
  const line = byId("experiment-line");
  show(line, low !== null);
  if (low === null) return;
  const most = 1.1 * Math.max(Math.abs(low), Math.abs(high), 0.01);
  const at = (value) => 50 + (50 * value) / most;
  line.dataset.kind = verdict;
  line.ariaLabel = `Difference of the reward per search, in points: ${points(difference)}, from ${points(low)} to ${points(high)}`;
  for (const [part, value] of [
    ["--from", at(low)],
    ["--size", at(high) - at(low)],
    ["--at", at(difference)],
  ])
    line.style.setProperty(part, `${value.toFixed(2)}%`);
}

/** List the queries that the guard shows in their given order, with the reason. */
function drawGuarded(lines, query, watch) {
  show(byId("guarded-title"), lines.length > 0);
  keyed(
    byId("guarded"),
    lines.slice(0, 6),
    ({ name }) => name,
    ({ name, query: text }) => {
      const button = text ? make("button", "name quiet", text) : make("button", "name quiet hash", `${name.slice(4, 16)}…`);
      button.type = "button";
      button.addEventListener("click", () => watch(name));
      return make("li", "", "", button, make("p", "why soft small"));
    },
    (node, { name, why }) => {
      node.firstChild.setAttribute("aria-pressed", String(name === query));
      write(node.querySelector(".why"), why);
    },
  );
}
