// The policies on the same simulated users: clicks lost so far, as lines and as a table.

import { themed } from "./colours.js";
import { byId, count, keyed, make, places, show, write } from "./dom.js";
import { CONFIG, axis, base } from "./plots.js";

const POLICIES = {
  swerve: { name: "Swerve", about: "this service, live", colour: "--accent", width: 3 },
  oracle: { name: "Oracle", about: "is told of every shift", colour: "--good", dash: "dot" },
  bwc: { name: "BWC", about: "the paper's algorithm", colour: "--hue-1" },
  ucb1: { name: "UCB1", about: "learns, never forgets", colour: "--hue-3" },
  fixed: { name: "Engine's order", about: "as found, learns nothing", colour: "--ink", width: 2.25, dash: "dash" },
};

/** Draw the chart; `plotly` is the library. */
export function drawRegret(state, plotly) {
  const { times, lines } = state.regrets();
  if (!state.simulated || times.length < 2) return;
  const at = axis(state);
  const x = times.map(at);
  const traces = Object.entries(lines).map(([name, values]) => {
    const policy = POLICIES[name] ?? { name, colour: "--soft" };
    const line = { color: themed(policy.colour), width: policy.width ?? 1.75, dash: policy.dash ?? "solid" };
    return {
      type: "scatter",
      mode: "lines",
      name: policy.name,
      x,
      y: values,
      line,
      hovertemplate: "%{y:,.0f} %{fullData.name}<extra></extra>",
    };
  });
  const layout = base("regret", true);
  Object.assign(layout.xaxis, { range: [x[0], x.at(-1)] });
  Object.assign(layout.yaxis, { rangemode: "tozero", nticks: 5 });
  plotly.react("regret", traces, layout, CONFIG);
}

/** Draw the table, best policy first. */
export function drawPolicies(state) {
  const { demo } = state;
  show(byId("regret-part"), state.simulated);
  if (!demo) return;
  const rows = Object.keys(demo.regret).sort((a, b) => demo.regret[a] - demo.regret[b]);
  const create = (name) => {
    const policy = POLICIES[name] ?? { name, about: "" };
    const head = make(
      "th",
      "",
      "",
      make("span", "swatch line"),
      make("span", "name", policy.name),
      make("span", "about soft", policy.about),
    );
    head.scope = "row";
    return make("tr", name, "", head, make("td"), make("td"));
  };
  keyed(
    byId("policies"),
    rows,
    (name) => name,
    create,
    (row, name) => {
      row.querySelector(".swatch").style.borderTopColor = themed(POLICIES[name]?.colour ?? "--soft");
      row.querySelector(".swatch").style.borderTopStyle = { dot: "dotted", dash: "dashed" }[POLICIES[name]?.dash] ?? "solid";
      write(row.cells[1], count(demo.regret[name]));
      write(row.cells[2], demo.ctr?.[name] === undefined || demo.ctr[name] === null ? "–" : `${places(demo.ctr[name] * 100)} %`);
    },
  );
}
