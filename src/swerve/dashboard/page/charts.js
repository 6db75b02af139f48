// The chart of click shares: the plot, its key, and a table of the figures.

import { themed } from "./colours.js";
import { byId, count, keyed, make, percent, show, words, write } from "./dom.js";
import { CONFIG, LABEL, axis, base, plotly } from "./plots.js";
import { drawPolicies, drawRegret } from "./regret.js";

const VERDICTS = { open: "--warn", true: "--accent", false: "--soft", none: "--soft" };
const MOST_LABELS = 8;
export class Charts {
  constructor(state, colours) {
    Object.assign(this, { state, colours, plotly: null });
    plotly().then((found) => {
      this.plotly = found;
      if (!found) this.missing();
      else this.again?.();
    });
  }

  missing() {
    for (const id of ["share", "regret"]) {
      byId(id).replaceChildren(make("p", "empty", "The charts could not be loaded; the tables have the figures."));
    }
  }

  /** Draw everything; once a second is often enough. */
  draw(query) {
    this.again = () => this.draw(query);
    const shares = this.state.clickShares();
    const found = shares.times.length > 1;
    show(byId("share-empty"), !found);
    show(byId("share"), found);
    if (!found) {
      write(byId("share-about"), "");
      this.key([], { shares: new Map() });
    }
    this.table(shares);
    drawPolicies(this.state);
    if (!this.plotly || document.hidden) return;
    if (found) this.share(query, shares);
    drawRegret(this.state, this.plotly);
  }

  meaning(id) {
    return this.state.hello?.demo?.titles[id]?.meaning;
  }

  /** Lanes from the top: shares of the meanings (in a simulation), shares of clicks, alarms. */
  share(query, { times, shares, window }) {
    const { state, colours } = this;
    const at = axis(state);
    const wanted = state.simulated ? state.intents(query) : { times: [], shares: new Map() };
    const lanes = wanted.times.length > 1;
    const area = (name, x, y, colour, yaxis) => ({
      type: "scatter",
      mode: "lines",
      name,
      x,
      y,
      yaxis,
      stackgroup: yaxis,
      line: { width: 0.5, color: colour, shape: "linear" },
      fillcolor: colour,
      hoverinfo: "skip",
    });
    const x = times.map(at);
    // results of one meaning side by side, so that a shift is one moving edge
    for (const name of wanted.shares.keys()) colours.hue(name);
    const ids = [...shares.keys()].sort((a, b) => colours.place(a, this.meaning(a)) - colours.place(b, this.meaning(b)));
    const traces = ids.map((id) => area(this.brief(id), x, shares.get(id), colours.result(id, this.meaning(id)), "y"));
    if (lanes) {
      const when = wanted.times.map(at);
      for (const [name, parts] of wanted.shares) traces.push(area(`want ${words(name)}`, when, parts, colours.meaning(name), "y2"));
    }
    traces.push(this.hover(x, ids, shares));
    const alarms = (state.current?.state.alarms ?? []).filter((alarm) => alarm.at >= times[0]);
    traces.push({
      type: "scatter",
      mode: "markers",
      yaxis: "y3",
      x: alarms.map((alarm) => at(alarm.at)),
      y: alarms.map(() => 0.5),
      marker: {
        symbol: alarms.map((alarm) => (alarm.verdict === "false" ? "diamond-open" : "diamond")),
        size: 9,
        color: alarms.map((alarm) => themed(VERDICTS[alarm.verdict] ?? "--soft")),
      },
      text: alarms.map((alarm) => words(alarm.signal)),
      hovertemplate: "alarm: %{text}<extra></extra>",
    });
    const layout = base("share", state.simulated);
    const span = [at(lanes ? Math.min(times[0], wanted.times[0]) : times[0]), at(Math.max(times.at(-1), wanted.times.at(-1) ?? 0))];
    Object.assign(layout.xaxis, { range: span, anchor: "y3" });
    layout.margin.t = lanes ? 24 : 8;
    const middle = [0.1, lanes ? 0.76 : 1];
    const upper = [0.8, 1];
    layout.yaxis = {
      ...layout.yaxis,
      domain: middle,
      range: [0, 1],
      tickformat: ".0%",
      tickvals: [0, 0.5, 1],
      title: { text: lanes ? "clicked" : "", standoff: 4 },
    };
    layout.yaxis2 = {
      domain: upper,
      range: [0, 1],
      fixedrange: true,
      showgrid: false,
      zeroline: false,
      tickvals: [],
      title: { text: lanes ? "wanted" : "", standoff: 34 },
    };
    layout.yaxis3 = { domain: [0, 0.07], range: [0, 1], fixedrange: true, showgrid: false, zeroline: false, tickvals: [] };
    const bar = (time, y0, y1, line) => ({ type: "line", xref: "x", yref: "paper", x0: at(time), x1: at(time), y0, y1, line });
    const events = state.events(query).filter((event) => at(event.at) >= span[0]);
    layout.shapes = [
      ...state.phases().map((time) => bar(time, 0, 0.07, { width: 1, color: themed("--soft"), dash: "dot" })),
      ...(lanes ? [upper, middle] : [middle]).flatMap(([low, high]) =>
        events.map((event) => bar(event.at, low, high, { width: 1.5, color: themed("--ink") })),
      ),
    ];
    layout.annotations = this.labels(events, at, span);
    this.plotly.react("share", traces, layout, CONFIG);
    write(byId("share-about"), `share of the last ${count(window)} clicks, on any slot`);
    this.key(ids, wanted);
  }

  /** One hover text for all: a list of every result, most of them empty, would hide the chart. */
  hover(x, ids, shares) {
    const text = x.map((_, j) => {
      const first = ids
        .map((id) => [id, shares.get(id)[j]])
        .filter(([, part]) => part >= 0.01)
        .sort((a, b) => b[1] - a[1])
        .slice(0, 4);
      return first.map(([id, part]) => `${percent(part)} ${this.brief(id)}`).join("<br>");
    });
    return {
      type: "scatter",
      mode: "lines",
      x,
      y: x.map(() => 0.5),
      text,
      line: { width: 0, color: themed("--soft") },
      hovertemplate: "%{text}<extra></extra>",
    };
  }

  /** Labels of shifts; labels that would overlap are left out. */
  labels(events, at, span) {
    const room = (span[1] - span[0]) * (LABEL / byId("share").clientWidth);
    let free = Infinity;
    const kept = [];
    for (const event of events.slice(-MOST_LABELS).reverse()) {
      const x = at(event.at);
      if (free - x < room) continue;
      free = x;
      // a label at the edge would be cut off
      const xanchor = span[1] - x < room / 2 ? "right" : x - span[0] < room / 2 ? "left" : "center";
      kept.push({
        x,
        xref: "x",
        xanchor,
        y: 1.01,
        yref: "paper",
        yanchor: "bottom",
        showarrow: false,
        text: words(event.to).replaceAll("<", ""),
        font: { size: 11, color: themed("--ink") },
      });
    }
    return kept;
  }

  /** The key of the colours: meanings if they are known, otherwise results. */
  key(ids, wanted) {
    const meanings = this.state.simulated
      ? [...new Set([...wanted.shares.keys(), ...ids.map((id) => this.meaning(id) ?? id)])]
      : null;
    const items = meanings
      ? meanings.map((name) => [words(name), this.colours.meaning(name)])
      : ids.map((id) => [this.brief(id), this.colours.result(id)]);
    const create = () => make("li", "", "", make("span", "swatch"), make("span", "name"));
    keyed(
      byId("share-key"),
      items,
      ([name]) => name,
      create,
      (node, [name, colour]) => {
        node.firstChild.style.background = colour;
        write(node.lastChild, name);
      },
    );
  }

  brief(id) {
    const title = this.state.hello?.demo?.titles[id]?.title ?? id;
    // Plotly interprets some markup in names, and ids come from outside
    const plain = title.replace(/[<>&]/g, " ");
    return plain.length > 40 ? `${plain.slice(0, 38)}…` : plain;
  }

  table({ latest }) {
    const { share } = this.state.tops();
    const arms = this.state.current?.state.arms ?? [];
    const create = (arm) =>
      make(
        "tr",
        "",
        "",
        make("th", "", this.state.hello?.demo?.titles[arm.id]?.title ?? arm.id),
        make("td"),
        make("td"),
        make("td"),
        make("td"),
      );
    keyed(
      byId("share-table"),
      arms,
      (arm) => arm.id,
      create,
      (row, arm) => {
        row.cells[0].scope = "row";
        write(row.cells[1], percent(latest[arm.id] ?? 0));
        write(row.cells[2], percent(share[arm.id] ?? 0));
        write(row.cells[3], `${count(arm.phase_clicks)} of ${count(arm.phase_plays)}`);
        write(row.cells[4], count(arm.clicks));
      },
    );
  }
}
